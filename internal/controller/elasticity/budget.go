package elasticity

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// budgetIn returns what the API server says of the disruption budget for which it refused an eviction, with its name where the answer
// has it; "" where the eviction went well, or failed for another reason.
func budgetIn(err error) string {
	if cause, is := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); is && cause.Message != "" {
		return cause.Message
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	// Without a cause: the budget's controller has not seen the pods yet, or a pod has two budgets.
	said := status.Status().Message
	if text := strings.ToLower(said); strings.Contains(text, "disruption budget") || strings.Contains(text, "poddisruptionbudget") {
		return said
	}
	return ""
}

// tellBudget takes over why a member stays that must leave, "" for none. The first time for a change it is an event. Shrinks says that
// members must leave: while they do, a pass in which no eviction was due or refused is no new change.
func (p *pass) tellBudget(d *decision, kept string, shrinks bool) {
	m := p.memory[d.Ref]
	m.budget = kept
	switch {
	case !shrinks:
		m.budgetOf = 0
	case kept != "" && m.budgetOf != d.workers:
		m.budgetOf = d.workers
		p.options.Recorder.Eventf(d.about(), nil, v1.EventTypeWarning, "ElasticEvictionRefused", resizing(len(d.running), d.workers), "%s",
			kept+"; the controller tries again in each pass")
	}
}
