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
	"github.com/tandem-gpu/tandem/test/cluster"
)

// forgery is a well-formed assignment of two slots to the container main of a pod with the UID.
func forgery(uid string) string {
	return encode(v1alpha1.Assignment{
		Version: v1alpha1.AssignmentVersion, UID: uid, Node: nodeName,
		Containers: []v1alpha1.ContainerAssignment{{
			Name: "main", Devices: []string{uuid(1)}, Slots: 2, MemoryBytes: 1 << 30,
			ComputeLimitPercent: 100, MemoryLimitBytes: 1 << 30,
		}},
	})
}

// encode writes an assignment without the checks of the scheduler.
func encode(a v1alpha1.Assignment) string {
	raw, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// forgedPod brings an assignment of its own.
func forgedPod(name string) *v1.Pod {
	pod := newPod(name, share("main", 2))
	pod.Annotations[v1alpha1.AnnotationAssignment] = forgery("11111111-2222-3333-4444-555555555555")
	return pod
}

// forgedDenied: with the policies of deploy/ nobody but the scheduler sets an assignment, at creation or later.
func forgedDenied(n *Tenant) {
	_, err := n.pods.Create(n.t.Context(), forgedPod("forged"), metav1.CreateOptions{})
	n.denied(err, "creating a pod with an assignment")
	n.create(newPod("honest", share("main", 2)))
	before := n.running("honest")[0]
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.AnnotationAssignment, forgery(string(before.UID)))
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

// pastScheduler: pods that reach the node without Tandem's scheduler: with an assignment of their own, without one, and
// by a scheduler that knows nothing of devices.
func pastScheduler(n *Tenant) {
	n.withoutPolicies()
	forged, bare, foreign := forgedPod("forged"), newPod("bare", share("main", 2)), newPod("foreign", share("main", 2))
	forged.Spec.NodeName, bare.Spec.NodeName = nodeName, nodeName
	foreign.Spec.SchedulerName = "another-scheduler"
	for _, pod := range []*v1.Pod{forged, bare, foreign} {
		n.create(pod)
	}
	n.must(n.client.CoreV1().Pods(n.namespace).Bind(n.t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
		Target:     v1.ObjectReference{Kind: "Node", Name: nodeName},
	}, metav1.CreateOptions{}))
	n.t.Logf("event: %s", n.event("forged", "assignment", "11111111-2222-3333-4444-555555555555"))
	n.t.Logf("event: %s", n.event("bare", "assigned", "spec.nodeName"))
	n.t.Logf("event: %s", n.event("foreign", "assigned", "another-scheduler", v1alpha1.SchedulerName))
	for _, name := range []string{"forged", "bare", "foreign"} {
		n.neverStarted(name)
	}
}

// forgedCapacity: the best forgery there is names the pod's own UID, its node, its slots and their memory. It cannot
// take slots that another pod was let start with.
func forgedCapacity(n *Tenant) {
	n.withoutPolicies()
	n.create(newPod("full", share("main", 10)))
	n.create(newPod("honest", share("main", 2)))
	pods := n.running("full", "honest")
	thief := newPod("thief", share("main", 2))
	thief.Spec.NodeName = nodeName
	thief = n.create(thief)
	n.event("thief", "assigned", "spec.nodeName")
	a := n.assignment(pods[1])
	a.UID, a.Containers[0].Devices = string(thief.UID), []string{n.device(pods[0])}
	n.patch("thief", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.AnnotationAssignment, encode(a)))
	n.t.Logf("event: %s", n.event("thief", "does not fit", n.device(pods[0])))
	n.neverStarted("thief")
	n.checkShares(pods[0])
}

// withoutPolicies takes the admission policies of deploy/ away for the rest of the test.
func (n *Tenant) withoutPolicies() {
	n.t.Helper()
	const kind = "ValidatingAdmissionPolicyBinding"
	bindings := n.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := cluster.Apply(ctx, n.plane, "deploy")
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
