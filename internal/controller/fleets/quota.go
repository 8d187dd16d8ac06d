package fleets

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// reasonQuotaExceeded is the reason of the condition Scaled while a ResourceQuota keeps a variant from replicas that it should have.
const reasonQuotaExceeded = "QuotaExceeded"

// quotaPause is for how long a variant does not ask for more replicas than have pods, once a quota refused others. A longer pause notices later that the
// quota was raised; a shorter one writes the size more often for nothing. It is the first pause of sizes of elastic jobs that find no places.
const quotaPause = 5 * time.Minute

// capped is how many pods a ResourceQuota lets a variant have.
type capped struct {
	pods int
	// until is when more are asked for again, and generation that of the fleet: another one is tried at once.
	until      time.Time
	generation int64
	message    string
}

// bound has a variant plan with the pods that it has while a ResourceQuota refuses others. Other variants may take the load.
func (v *visit) bound(ctx context.Context, out *traffic.Variant, t *target) error {
	if t.pods < t.replicas {
		message, err := t.failure(ctx)
		if err != nil {
			return err
		}
		if quota, amounts, is := exceeded(message); is {
			until := v.now.Add(quotaPause)
			v.memory.capped[out.Name] = &capped{t.pods, until, v.object.Generation, fmt.Sprintf("ResourceQuota %.253s refuses pods of %s %s beyond %d (%.300s): "+
				"raise it, or lower maxReplicas; the controller asks for more at %s", quota, t.ref.Kind, t.ref.Name, t.pods, amounts, until.UTC().Format("15:04 MST"))}
		}
	}
	c := v.memory.capped[out.Name]
	switch {
	case c == nil:
	case t.pods > c.pods || c.generation != v.object.Generation:
		delete(v.memory.capped, out.Name)
	case v.now.Before(c.until):
		out.Most = min(out.Most, c.pods)
		out.Least = min(out.Least, out.Most)
	}
	return nil
}

// uncap forgets the quotas that keep no variant from anything. Until more pods exist than before, the quota counts: elastic jobs keep no GPUs for a try.
func (v *visit) uncap() {
	for i, t := range v.targets {
		name := v.fleet.Variants[i].Name
		if c := v.memory.capped[name]; c != nil && !v.now.Before(c.until) && (t == nil || v.plan.Variants[i].Replicas <= t.pods) {
			delete(v.memory.capped, name)
		}
	}
}

// noneLeaves reports whether the smaller size of a variant takes back replicas alone that a quota refused.
func (v *visit) noneLeaves(i int) bool {
	return v.memory.capped[v.fleet.Variants[i].Name] != nil && v.targets[i].pods <= v.plan.Variants[i].Replicas
}

// quotaExceeded says which variant a ResourceQuota keeps from replicas, nil where none does.
func (v *visit) quotaExceeded() *refusal {
	for i := range v.fleet.Variants {
		if c := v.memory.capped[v.fleet.Variants[i].Name]; c != nil && v.plan.Variants[i].Replicas >= c.pods {
			return &refusal{reasonQuotaExceeded, fmt.Sprintf("variant %s: %s", v.fleet.Variants[i].Name, c.message)}
		}
	}
	return nil
}

// failure returns why Kubernetes does not make the pods that a scale target asks for, "" where it makes them or the target does not say it, as
// StatefulSets do not.
func (t *target) failure(ctx context.Context) (string, error) {
	o, err := t.client.Get(ctx, t.ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // of other kinds the controller may have the right to scales alone
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", t.ref.Kind, t.ref.Name, err)
	}
	if seen, said, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); said && seen < o.GetGeneration() {
		return "", nil // it is about an earlier number
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, each := range conditions {
		c, _ := each.(map[string]any)
		if c["type"] == string(appsv1.DeploymentReplicaFailure) && c["status"] == string(metav1.ConditionTrue) {
			message, _ := c["message"].(string)
			return message, nil
		}
	}
	return "", nil
}

// exceeded returns the ResourceQuota that refused a pod, and the amounts that Kubernetes names.
//
// Example: `pods "bert-x" is forbidden: exceeded quota: replicas, requested: requests.tandem-gpu.io/vgpu=5, used: …` is of the quota replicas.
func exceeded(message string) (quota, amounts string, is bool) {
	_, rest, is := strings.Cut(message, "exceeded quota: ")
	quota, amounts, _ = strings.Cut(rest, ", ")
	return quota, amounts, is
}
