package checks_test

import (
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func podNamed(w *world, name string) *v1.Pod { return of[*v1.Pod](w, name) }

func single(w *world) {
	remove[*coordination.Lease](w, scheduler)
	d := of[*apps.Deployment](w, scheduler)
	d.Spec.Replicas, d.Status.AvailableReplicas = ptr.To(int32(1)), 1
}

func olderKubelet(w *world) {
	of[*v1.Node](w, "gpu-2").Status.NodeInfo.KubeletVersion = "v1.36.3"
	for i := range w.gpuNodes[1].Status.Conditions {
		if c := &w.gpuNodes[1].Status.Conditions[i]; c.Type == v1alpha1.ConditionPodsKnown {
			c.Reason = v1alpha1.PodsFromServer
		}
	}
}

func strayThatEnded(w *world) {
	p := podNamed(w, "waits")
	p.Spec.NodeName, p.Spec.SchedulerName, p.Status.Phase = "gpu-2", "default-scheduler", v1.PodSucceeded
}

func byDigest(w *world) {
	of[*apps.Deployment](w, "tandem-controller").Spec.Template.Spec.Containers[0].Image = "registry.example.com:5000/tandem-controller@sha256:00"
}

func olderMPS(w *world) {
	of[*apps.DaemonSet](w, "tandem-mps").Spec.Template.Spec.Containers[0].Image = "tandem-device-plugin:v0.1.0"
}

// ownBinding adds a second binding that looks at less: the first looks at all.
func ownBinding(w *world) {
	w.add(&admission.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "a-of-their-own"}, Spec: admission.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "tandem-pods", ValidationActions: []admission.ValidationAction{admission.Audit},
	}})
}

// runsImage is a pod on gpu-1 with a container, that an object of a kind made.
func runsImage(name, container, image, kind string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}},
		Spec:       v1.PodSpec{NodeName: "gpu-1", Containers: []v1.Container{{Name: container, Image: image}}},
	}
}
