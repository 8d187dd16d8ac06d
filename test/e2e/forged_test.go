package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// forgery is a well-formed assignment of a whole device to the container main of a pod with the UID.
func forgery(uid string, slots int) string {
	raw, err := json.Marshal(v1alpha1.Assignment{
		Version: v1alpha1.AssignmentVersion, UID: uid, Node: nodeName,
		Containers: []v1alpha1.ContainerAssignment{{
			Name: "main", Devices: []string{uuid(1)}, Slots: int32(slots), MemoryBytes: 1 << 30,
			ComputeLimitPercent: 100, MemoryLimitBytes: 1 << 30,
		}},
	})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// forgedPod brings an assignment of its own.
func forgedPod(name string) *v1.Pod {
	pod := newPod(name, share("main", 2))
	pod.Annotations[v1alpha1.AnnotationAssignment] = forgery("11111111-2222-3333-4444-555555555555", 2)
	return pod
}

// forgedDenied: with the policies of deploy/ nobody but the scheduler sets an assignment, at creation or later.
func forgedDenied(n *Tenant) {
	_, err := n.pods.Create(n.t.Context(), forgedPod("forged"), metav1.CreateOptions{})
	n.denied(err, "creating a pod with an assignment")
	n.create(newPod("honest", share("main", 2)))
	before := n.running("honest")[0]
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.AnnotationAssignment, forgery(string(before.UID), 2))
	_, err = n.pods.Patch(n.t.Context(), "honest", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	n.denied(err, "changing an assignment")
	if after := n.get("honest"); after.Annotations[v1alpha1.AnnotationAssignment] != before.Annotations[v1alpha1.AnnotationAssignment] {
		n.t.Errorf("the assignment was changed to %s", after.Annotations[v1alpha1.AnnotationAssignment])
	}
}

// denied fails the test unless the error is a policy's that names the annotation.
func (n *Tenant) denied(err error, what string) {
	n.t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), v1alpha1.AnnotationAssignment) {
		n.t.Errorf("%s: got %v, want it forbidden with the name of the annotation", what, err)
	}
}

// forgedOverwritten: even without the policies a forged assignment is gone once the scheduler has bound the pod.
func forgedOverwritten(n *Tenant) {
	n.withoutPolicies()
	pod := n.create(forgedPod("forged"))
	forged := pod.Annotations[v1alpha1.AnnotationAssignment]
	pod = n.running("forged")[0]
	a := n.assignment(pod)
	if pod.Annotations[v1alpha1.AnnotationAssignment] == forged || a.UID != string(pod.UID) {
		n.t.Errorf("the bound pod carries %s", pod.Annotations[v1alpha1.AnnotationAssignment])
	}
	if got := a.Containers[0].ComputeLimitPercent; got != 20 {
		n.t.Errorf("the compute limit is %d %%, want 20", got)
	}
	n.checkShares(pod)
}

// forgedRefused: a pod that names its node itself goes past the scheduler; the agent does not believe its assignment.
func forgedRefused(n *Tenant) {
	n.withoutPolicies()
	pod := forgedPod("forged")
	pod.Spec.NodeName = nodeName
	n.create(pod)
	n.t.Logf("event: %s", n.event("forged", "assignment", "11111111-2222-3333-4444-555555555555"))
	bare := newPod("bare", share("main", 2))
	bare.Spec.NodeName = nodeName
	n.create(bare)
	n.t.Logf("event: %s", n.event("bare", "assigned", "spec.nodeName"))
	n.neverStarted("forged")
	n.neverStarted("bare")
}

// otherScheduler: a scheduler that knows nothing of devices binds a pod that asks for vGPUs.
func otherScheduler(n *Tenant) {
	n.withoutPolicies()
	pod := newPod("foreign", share("main", 2))
	pod.Spec.SchedulerName = "another-scheduler"
	n.create(pod)
	n.must(n.client.CoreV1().Pods(n.namespace).Bind(n.t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
		Target:     v1.ObjectReference{Kind: "Node", Name: nodeName},
	}, metav1.CreateOptions{}))
	n.t.Logf("event: %s", n.event("foreign", "assigned", "another-scheduler", v1alpha1.SchedulerName))
	n.neverStarted("foreign")
}

// withoutPolicies takes the admission policies of deploy/ away for the rest of the test.
func (n *Tenant) withoutPolicies() {
	n.t.Helper()
	const kind = "ValidatingAdmissionPolicyBinding"
	bindings := n.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := n.apply(ctx, func(k string) bool { return k == kind })
		if err == nil {
			err = poll(ctx, "the policies", func(ctx context.Context) error { return n.enforced(ctx, true) })
		}
		if err != nil {
			n.t.Error(err)
		}
	})
	for _, r := range n.deploy.Resources() {
		if r.GetKind() == kind {
			n.must(bindings.Delete(n.t.Context(), r.GetName(), metav1.DeleteOptions{}))
		}
	}
	n.await("the end of the policies", func(ctx context.Context) error { return n.enforced(ctx, false) })
}

// enforced returns nil when the policies are in force, or are not, as wanted. The API server takes a moment to notice.
func (n *Tenant) enforced(ctx context.Context, want bool) error {
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	forged, direct := forgedPod("probe"), newPod("probe", share("main", 2))
	direct.Spec.NodeName = nodeName
	for _, pod := range []*v1.Pod{forged, direct} {
		_, err := n.pods.Create(ctx, pod, dryRun)
		switch {
		case want && err == nil:
			return errors.New("the policies are not in force")
		case !want && err != nil:
			return err
		}
	}
	return nil
}
