package deploy

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	genuine = `{"version":1,"node":"n1"}`
	forged  = `{"version":1,"node":"n1","forged":true}`
)

// request is one way to send an assignment; the pod is the stored one that is attacked.
type request func(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error

func updatePod(value *string) request {
	return func(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
		_, err := c.CoreV1().Pods(team).Update(ctx, annotate(p, value), metav1.UpdateOptions{})
		return err
	}
}

func updateStatus(value *string) request {
	return func(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
		_, err := c.CoreV1().Pods(team).UpdateStatus(ctx, annotate(p, value), metav1.UpdateOptions{})
		return err
	}
}

func patch(kind types.PatchType, body string, subresources ...string) request {
	return func(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
		_, err := c.CoreV1().Pods(team).Patch(ctx, p.Name, kind, []byte(body), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func applyPod(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
	apply := applycorev1.Pod(p.Name, team).WithAnnotations(map[string]string{v1alpha1.AnnotationAssignment: forged})
	_, err := c.CoreV1().Pods(team).Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

func bind(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
	return c.CoreV1().Pods(team).Bind(ctx, binding(p, forged), metav1.CreateOptions{})
}

func bindLegacy(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
	return c.CoreV1().RESTClient().Post().Namespace(team).Resource("bindings").
		Body(binding(p, forged)).Do(ctx).Error()
}

var (
	mergePatch = fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationAssignment, forged)
	removal    = fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationAssignment)
	jsonPatch  = fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations","value":{%q:%q}}]`, v1alpha1.AnnotationAssignment, forged)
)

// Refusals by the policies, and by RBAC for accounts that get no further.
const (
	byPodPolicy     = "ValidatingAdmissionPolicy 'tandem-assignment-pods'"
	byBindingPolicy = "ValidatingAdmissionPolicy 'tandem-assignment-bindings'"
	byRBAC          = "cannot "
)

func TestAssignmentIsRefusedOnExistingPods(t *testing.T) {
	tests := []struct {
		name  string
		send  request
		who   []account
		want  string
		alsoM []string // further texts of the message
	}{
		{name: "update sets it", send: updatePod(ptr.To(forged)), who: []account{admin, jane}, want: byPodPolicy,
			alsoM: []string{"delete the pod and create it again"}},
		{name: "update sets it empty", send: updatePod(ptr.To("")), who: []account{admin, jane}, want: byPodPolicy},
		{name: "update by accounts of deploy", send: updatePod(ptr.To(forged)), who: []account{scheduler, agent}, want: byRBAC},
		{name: "merge patch", send: patch(types.MergePatchType, mergePatch), who: []account{admin, jane}, want: byPodPolicy},
		{name: "strategic merge patch", send: patch(types.StrategicMergePatchType, mergePatch), who: []account{jane}, want: byPodPolicy},
		{name: "JSON patch", send: patch(types.JSONPatchType, jsonPatch), who: []account{jane}, want: byPodPolicy},
		{name: "server-side apply", send: applyPod, who: []account{admin, jane}, want: byPodPolicy},
		{name: "status update", send: updateStatus(ptr.To(forged)), who: []account{admin, jane, kubeScheduler}, want: byPodPolicy},
		{name: "status update by the scheduler", send: updateStatus(ptr.To(forged)), who: []account{scheduler}, want: byOneOfTwo},
		{name: "status update by the agent", send: updateStatus(ptr.To(forged)), who: []account{agent}, want: byRBAC},
		{name: "status patch", send: patch(types.MergePatchType, mergePatch, "status"), who: []account{admin, jane}, want: byPodPolicy},
		{name: "status patch by the scheduler", send: patch(types.MergePatchType, mergePatch, "status"), who: []account{scheduler}, want: byOneOfTwo},
		{name: "binding", send: bind, who: []account{admin, jane, kubeScheduler}, want: byBindingPolicy,
			alsoM: []string{"set spec.schedulerName: tandem-scheduler"}},
		{name: "binding by the agent", send: bind, who: []account{agent}, want: byRBAC},
		{name: "legacy binding", send: bindLegacy, who: []account{admin, jane, kubeScheduler}, want: byBindingPolicy},
		{name: "legacy binding by accounts of deploy", send: bindLegacy, who: []account{scheduler, agent}, want: byRBAC},
	}
	for _, test := range tests {
		for _, who := range test.who {
			t.Run(test.name+"/"+string(who), func(t *testing.T) {
				p := create(t.Context(), t, client(t.Context(), t, admin), pod("victim"))
				err := test.send(t.Context(), client(t.Context(), t, who), p)
				wantRefusal(t, err, append(test.alsoM, test.want)...)
				stored := get(t.Context(), t, p)
				if value, ok := stored.Annotations[v1alpha1.AnnotationAssignment]; ok || stored.Spec.NodeName != "" {
					t.Errorf("the pod has the assignment %q and node %q", value, stored.Spec.NodeName)
				}
			})
		}
	}
}

func TestAssignmentOfBoundPodNeverChanges(t *testing.T) {
	tests := []struct {
		name string
		send request
		who  []account
		want string // "" where the API server accepts the request and drops the change
	}{
		{name: "update changes it", send: updatePod(ptr.To(forged)), who: []account{admin, jane}, want: byPodPolicy},
		{name: "update empties it", send: updatePod(ptr.To("")), who: []account{jane}, want: byPodPolicy},
		{name: "update removes it", send: updatePod(nil), who: []account{admin, jane}, want: byPodPolicy},
		{name: "patch removes it", send: patch(types.MergePatchType, removal), who: []account{jane}, want: byPodPolicy},
		{name: "status update changes it", send: updateStatus(ptr.To(forged)), who: []account{jane, kubelet}, want: byPodPolicy},
		{name: "status update by the scheduler", send: updateStatus(ptr.To(forged)), who: []account{scheduler}, want: byOneOfTwo},
		{name: "status update removes it", send: updateStatus(nil), who: []account{jane, kubelet}, want: byPodPolicy},
		{name: "status patch", send: patch(types.StrategicMergePatchType, mergePatch, "status"), who: []account{kubelet}, want: byPodPolicy},
		{name: "second binding", send: bind, who: []account{admin, jane}, want: byBindingPolicy},
		{name: "ephemeral containers", send: patch(types.MergePatchType, mergePatch, "ephemeralcontainers"), who: []account{admin, jane}},
		{name: "resize", send: patch(types.MergePatchType, mergePatch, "resize"), who: []account{admin, jane}},
	}
	for _, test := range tests {
		for _, who := range test.who {
			t.Run(test.name+"/"+string(who), func(t *testing.T) {
				p := createBound(t.Context(), t, genuine)
				err := test.send(t.Context(), client(t.Context(), t, who), p)
				if test.want != "" {
					wantRefusal(t, err, test.want)
				}
				if got := get(t.Context(), t, p).Annotations[v1alpha1.AnnotationAssignment]; got != genuine {
					t.Errorf("the assignment is %q now", got)
				}
			})
		}
	}
}

func TestAssignmentIsRefusedAtCreation(t *testing.T) {
	withoutVGPU := pod("plain")
	withoutVGPU.Spec.Containers = []corev1.Container{container("main")}
	tests := []struct {
		name  string
		pod   *corev1.Pod
		value string
		who   []account
		want  string
	}{
		{name: "forged", pod: pod("forged"), value: forged, who: []account{admin, jane}, want: byPodPolicy},
		{name: "empty", pod: pod("empty"), value: "", who: []account{admin, jane}, want: byPodPolicy},
		{name: "pod without vGPUs", pod: withoutVGPU, value: forged, who: []account{admin, jane}, want: byPodPolicy},
		{name: "accounts of deploy", pod: pod("forged"), value: forged, who: []account{scheduler, agent}, want: byRBAC},
	}
	for _, test := range tests {
		for _, who := range test.who {
			t.Run(test.name+"/"+string(who), func(t *testing.T) {
				p := annotate(test.pod, &test.value)
				_, err := client(t.Context(), t, who).CoreV1().Pods(team).Create(t.Context(), p, metav1.CreateOptions{})
				wantRefusal(t, err, test.want)
			})
		}
	}
}

// Server-side apply creates what is absent.
func TestAssignmentIsRefusedWhenApplyCreates(t *testing.T) {
	spec := applycorev1.PodSpec().WithContainers(applycorev1.Container().WithName("main").WithImage("image"))
	p := applycorev1.Pod("applied", team).WithSpec(spec).
		WithAnnotations(map[string]string{v1alpha1.AnnotationAssignment: forged})
	_, err := client(t.Context(), t, jane).CoreV1().Pods(team).
		Apply(t.Context(), p, metav1.ApplyOptions{FieldManager: "test"})
	wantRefusal(t, err, byPodPolicy, "remove it and create the pod again")
}

// A kubelet mirrors static pods, with their annotations.
func TestAssignmentIsRefusedOnMirrorPods(t *testing.T) {
	p := annotate(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "static-n1", Namespace: team,
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{container("main")}},
	}, ptr.To(forged))
	node, err := client(t.Context(), t, admin).CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: "n1", UID: node.UID, Controller: ptr.To(true),
	}}
	kubeletClient := client(t.Context(), t, kubelet)
	_, err = kubeletClient.CoreV1().Pods(team).Create(t.Context(), p, metav1.CreateOptions{})
	wantRefusal(t, err, byPodPolicy)
	// The same pod without the annotation is what the policy must leave alone.
	create(t.Context(), t, kubeletClient, annotate(p, nil))
}

func TestSchedulerBindsWithAssignment(t *testing.T) {
	p := createBound(t.Context(), t, genuine)
	if got := p.Annotations[v1alpha1.AnnotationAssignment]; got != genuine || p.Spec.NodeName != "n1" {
		t.Errorf("bound to %q with the assignment %q, want n1 and %s", p.Spec.NodeName, got, genuine)
	}
}

// The policies still allow what others do with pods every day.
func TestOtherRequestsAreAccepted(t *testing.T) {
	t.Run("another scheduler binds without an assignment", func(t *testing.T) {
		plain := pod("plain")
		plain.Spec = corev1.PodSpec{Containers: []corev1.Container{container("main")}}
		p := create(t.Context(), t, client(t.Context(), t, jane), plain)
		err := client(t.Context(), t, kubeScheduler).CoreV1().Pods(team).Bind(t.Context(), binding(p, ""), metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	tests := []struct {
		name string
		who  account
		send request
	}{
		{"the kubelet reports status", kubelet, patch(types.StrategicMergePatchType, `{"status":{"phase":"Running"}}`, "status")},
		{"the kubelet writes the whole status", kubelet, func(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
			p = p.DeepCopy()
			p.Status.Message = "all is well"
			_, err := c.CoreV1().Pods(team).UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err
		}},
		{"the scheduler writes a condition", scheduler, patch(types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"X","status":"True"}]}}`, "status")},
		{"a user sets another annotation", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"},"labels":{"c":"d"}}}`)},
		{"a user corrects a limit", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationComputeLimit+`":"50"}}}`)},
		{"a user resizes", jane, patch(types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"200m"}}}]}}`, "resize")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := createBound(t.Context(), t, genuine)
			err := test.send(t.Context(), client(t.Context(), t, test.who), p)
			if err != nil {
				t.Error(err)
			}
			if got := get(t.Context(), t, p).Annotations[v1alpha1.AnnotationAssignment]; got != genuine {
				t.Errorf("the assignment is %q now", got)
			}
		})
	}
}
