package fleets

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// reasonQuotaExceeded is the reason of the condition Scaled while a ResourceQuota keeps a variant from replicas that it should have.
const reasonQuotaExceeded = "QuotaExceeded"

// quotaPatience is for how long a ResourceQuota refuses pods of a variant before the fleet plans without them. Pods that end count against a quota,
// so the one that replaces an evicted pod is refused until that has ended. A shorter time takes that for a cap, a longer one has other variants take
// the load later.
const quotaPatience = time.Minute

// bound has a variant plan with the pods that it has while a ResourceQuota refuses others, so that other variants may take the load. The scale target
// keeps its number: Kubernetes makes the pods once the quota lets it.
func (v *visit) bound(ctx context.Context, out *traffic.Variant, t *target) error {
	quota, amounts, is, err := t.quota(ctx)
	if err != nil {
		return err
	}
	since, known := v.memory.refusedSince[out.Name]
	switch {
	case !is:
		delete(v.memory.refusedSince, out.Name)
	case !known:
		v.memory.refusedSince[out.Name] = v.now
	case v.now.Sub(since) >= quotaPatience:
		t.capped = fmt.Sprintf("ResourceQuota %s refuses pods of %s %s beyond %d (%.300s): raise it, or lower maxReplicas", quota, t.ref.Kind, t.ref.Name, t.pods, amounts)
		out.Wanted, out.Most = t.pods, min(out.Most, t.pods)
		out.Least = min(out.Least, out.Most)
	}
	return nil
}

// capped reports whether the number of a scale target stays although the plan has a smaller one: a quota alone keeps the variant from more.
func (v *visit) capped(i int) bool {
	t := v.targets[i]
	return t.capped != "" && v.plan.Variants[i].Replicas >= t.pods
}

// quotaExceeded says which variant a ResourceQuota keeps from replicas, nil where none does.
func (v *visit) quotaExceeded() *refusal {
	for i, t := range v.targets {
		if t != nil && v.capped(i) {
			return &refusal{reasonQuotaExceeded, fmt.Sprintf("variant %s: %s", v.fleet.Variants[i].Name, t.capped)}
		}
	}
	return nil
}

// quota returns the ResourceQuota that refuses pods of a scale target, with its amounts, and whether one does.
func (t *target) quota(ctx context.Context) (quota, amounts string, is bool, err error) {
	if t.pods >= t.replicas {
		return "", "", false, nil
	}
	message, err := t.failure(ctx)
	if err == nil {
		quota, amounts, is = exceeded(message)
	}
	return quota, amounts, is, err
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
	_, rest, is := strings.Cut(message, " is forbidden: exceeded quota: ")
	quota, amounts, _ = strings.Cut(rest, ", ")
	is = is && len(validation.IsDNS1123Subdomain(quota)) == 0 && !strings.ContainsFunc(amounts, unicode.IsControl)
	return quota, amounts, is
}
