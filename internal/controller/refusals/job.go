package refusals

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// policyHelps says what helps where failures of a Job are counted by Kubernetes.
const policyHelps = ": create the Job again; with restartPolicy Never and a podFailurePolicy whose first rule ignores DisruptionTarget its pods would be evicted"

// usualBackoffLimit is that of a Job that says none.
const usualBackoffLimit = 6

// job is what one pass knows of a Job.
type job struct {
	// stays says why no pod of the Job is evicted, and what helps, "" where some may be.
	stays string
	// ignores says that evictions do not count as failures.
	ignores bool
	// limit is the backoffLimit, and room how many more failures it takes; evictions of this pass are taken off.
	limit, room int
	// perIndex is how many failures an index takes, nil where the Job has no such limit.
	perIndex *int32
}

// jobs are the Jobs of which a pass has read something, by their UIDs.
type jobs map[types.UID]*job

// keeps says why the eviction of a pod could fail its owner, "" where it cannot. The operators of Kubeflow and of workflows may count it as a failure,
// and a policy of a Volcano Job may end all of the Job for it; another owner whose pods always restart makes another one.
func (c *Controller) keeps(ctx context.Context, known jobs, p *v1.Pod, by *metav1.OwnerReference) (string, error) {
	of := schema.FromAPIVersionAndKind(by.APIVersion, by.Kind).GroupKind()
	switch {
	case of != schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		if p.Spec.RestartPolicy == v1.RestartPolicyAlways && of.Group != "kubeflow.org" && of.Group != "batch.volcano.sh" {
			return "", nil
		}
		if of.Group == "ray.io" { // making the cluster again would end what runs in it
			return fmt.Sprintf("the pods of its %s do not always restart: delete the pod, and KubeRay makes another one", by.Kind), nil
		}
		return fmt.Sprintf("its %s may count that as a failure: create that again", by.Kind), nil
	case known[by.UID] == nil:
		j, err := c.readJob(ctx, p.Namespace, by)
		if err != nil {
			return "", err
		}
		known[by.UID] = j
	}
	return known[by.UID].keeps(p), nil
}

// keeps says why the eviction of a pod could fail the Job, "" where it cannot.
func (j *job) keeps(p *v1.Pod) string {
	switch {
	case j.stays != "":
		return j.stays
	case j.ignores:
		return ""
	case j.room <= 0:
		return fmt.Sprintf("one more failure could fail its Job, whose backoffLimit is %d%s", j.limit, policyHelps)
	}
	if j.perIndex != nil {
		failures, err := strconv.Atoi(p.Annotations[batchv1.JobIndexFailureCountAnnotation])
		if err != nil || failures >= int(*j.perIndex) {
			return fmt.Sprintf("one more failure could fail its index of the Job, whose backoffLimitPerIndex is %d%s", *j.perIndex, policyHelps)
		}
	}
	return ""
}

// readJob reads how many more failures a Job takes. The pods are read first: one that is counted in between is taken off twice, never not at all.
func (c *Controller) readJob(ctx context.Context, namespace string, by *metav1.OwnerReference) (*job, error) {
	pods, err := c.options.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{batchv1.ControllerUidLabel: string(by.UID)}.String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of Job %s/%s: %w", namespace, by.Name, err)
	}
	object, err := c.options.Kube.BatchV1().Jobs(namespace).Get(ctx, by.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && object.UID != by.UID:
		return &job{stays: "its Job does not exist, so nothing would make it anew: delete it"}, nil
	case apierrors.IsForbidden(err):
		return &job{stays: fmt.Sprintf("its Job may count that as a failure, and the controller may not read it (%v): let the controller get Jobs, or create the Job again", err)}, nil
	case err != nil:
		return nil, fmt.Errorf("read Job %s/%s: %w", namespace, by.Name, err)
	}
	s := &object.Spec
	if m := ptr.Deref(s.ManagedBy, batchv1.JobControllerName); m != batchv1.JobControllerName {
		return &job{stays: fmt.Sprintf("its Job is managed by %s, which may count that as a failure: create the Job again", m)}, nil
	}
	j := &job{ignores: kube.IgnoresDisruption(object), limit: usualBackoffLimit, perIndex: s.BackoffLimitPerIndex}
	if s.BackoffLimitPerIndex != nil {
		j.limit = math.MaxInt32
	}
	if s.BackoffLimit != nil {
		j.limit = int(*s.BackoffLimit)
	}
	if f := s.PodFailurePolicy; f != nil && !j.ignores && slices.ContainsFunc(f.Rules, fails) {
		j.stays = "a rule of the podFailurePolicy of its Job may fail the Job or an index for that" + policyHelps
	}
	j.room = j.limit - int(object.Status.Failed)
	if u := object.Status.UncountedTerminatedPods; u != nil {
		j.room -= len(u.Failed)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if (p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed) && slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) {
			j.room-- // the Job controller has not counted it yet
		}
	}
	return j, nil
}

// fails reports whether a rule fails more than a pod.
func fails(rule batchv1.PodFailurePolicyRule) bool {
	return rule.Action == batchv1.PodFailurePolicyActionFailJob || rule.Action == batchv1.PodFailurePolicyActionFailIndex
}
