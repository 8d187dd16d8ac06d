package fleets

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// all returns the replicas of both variants of bert.
func (w *world) all() int { return w.replicas["bert-a100"] + w.replicas["bert-t4"] }

// 300 requests a second are seven a100. With a cap of 4 GPUs the fleet has four, also after a restart, and says why. Raised, it grows on; lowered, it
// takes nothing away. A replica of unknown slots is a whole GPU.
func TestCap(t *testing.T) {
	w := newWorld(t)
	w.options.MaxGPUs = new(4.5)
	w.arrive("300")
	w.settle(5 * time.Minute)
	if s := w.fleet("bert").Status; w.all() != 4 || s.Reason != "Capped" || len(s.Variants[0].Later) > 0 {
		t.Errorf("%v: %+v", w.replicas, s)
	}
	if got, want := w.fleet("bert").Status.Message, "330 requests a second are expected, and with all GPUs that the fleets may have together, 181 are served within 1s: "+
		"the controller's flag --inference-max-gpus is that cap"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.restart()
	w.options.MaxGPUs = new(4.5)
	w.settle(5 * time.Minute)
	if w.all() != 4 {
		t.Errorf("after a restart: %v", w.replicas)
	}
	w.options.MaxGPUs = new(6.0)
	w.settle(5 * time.Minute)
	if w.all() != 6 {
		t.Errorf("with a cap of 6 GPUs: %v", w.replicas)
	}
	w.options.MaxGPUs = new(0.0)
	w.settle(5 * time.Minute)
	if w.all() != 6 {
		t.Errorf("a lower cap: %v", w.replicas)
	}
}

// A variant that declares one slot counts for the three that its pods ask for: 15 of 10 slots a device are five replicas.
func TestCapByPods(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) {
		s.Variants[0].Slots, s.Variants[1].MaxReplicas = 1, 0
	})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bert-0", Labels: map[string]string{"app": "bert-a100"}}}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("3")}}}}
	must.OK(t, w.kube.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	w.options.MaxGPUs = new(1.5)
	w.arrive("300")
	w.settle(5 * time.Minute)
	if w.all() != 5 {
		t.Errorf("%v", w.replicas)
	}
}
