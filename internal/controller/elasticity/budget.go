package elasticity

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-gpu/tandem/pkg/resize"
)

// refusalIn returns what the API server says of the disruption budget or the policy for which it refused an eviction, with its name where the
// answer has it; "" where the eviction went well, or failed for another reason.
func refusalIn(err error) string {
	if cause, is := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); is && cause.Message != "" {
		return cause.Message
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	// Without a cause: the budget's controller has not seen the pods yet, or a pod has two budgets.
	said := status.Status().Message
	if text := strings.ToLower(said); apierrors.IsForbidden(err) || strings.Contains(text, "disruption budget") || strings.Contains(text, "poddisruptionbudget") {
		return said
	}
	return ""
}

// warn tells why a member stays that must leave, the first time for each change.
func (p *pass) warn(d *decision, effects []resize.Effect) {
	for _, e := range effects {
		if e, is := e.(resize.Warn); is {
			p.options.Recorder.Eventf(d.about(), nil, v1.EventTypeWarning, "ElasticEvictionRefused", resizing(len(d.running), d.workers), "%s",
				e.Why+"; the controller tries again in each pass")
		}
	}
}
