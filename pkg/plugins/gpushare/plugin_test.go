package gpushare

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// The trap of extended resources: the node has 20 slots, 5 + 6 + 5 + 4 = 20, and no device may hold 11.
func TestSharesNeverSpanDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n1 := gpuNode("n1", 2)
		c := newCluster(t, n1)
		for i, slots := range []int{5, 6, 5, 4} {
			name := string(rune('a' + i))
			c.createPod(pod(name, slots))
			c.awaitBound(name)
		}
		want := map[string]vgpu.Slots{"GPU-n1-0": 10, "GPU-n1-1": 10}
		if diff := cmp.Diff(want, c.checkLedger(n1)); diff != "" {
			t.Errorf("slots used (-want +got):\n%s", diff)
		}
	})
}

func TestPodPendsWithTheNearestMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n1 := gpuNode("n1", 2)
		c := newCluster(t, n1)
		c.createPod(pod("a", 6))
		c.awaitBound("a")
		c.createPod(pod("b", 6))
		c.awaitBound("b")
		c.createPod(pod("c", 8))
		got := c.awaitPending("c", "nearest GPU")
		for _, want := range []string{
			"0/1 nodes are available", "1 largest free share is 4 of 10 slots", "largest free share is 4 of 10 slots on n1/g0; container main asks for 8",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("the message is %q, it lacks %q", got, want)
			}
		}
		c.deletePod("a")
		c.awaitBound("c")
		c.checkLedger(n1)
	})
}

func TestRestartRebuildsFromPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n1 := gpuNode("n1", 2)
		c := newCluster(t, n1)
		c.createPod(pod("a", 5))
		c.createPod(pod("b", 6))
		c.awaitBound("a")
		c.awaitBound("b")
		c.stop()
		c.createPod(pod("c", 5))
		c.createPod(pod("d", 4))
		c.start()
		c.awaitBound("c")
		c.awaitBound("d")
		want := map[string]vgpu.Slots{"GPU-n1-0": 10, "GPU-n1-1": 10}
		if diff := cmp.Diff(want, c.checkLedger(n1)); diff != "" {
			t.Errorf("slots used (-want +got):\n%s", diff)
		}
	})
}

func TestMalformedRequestsNameTheField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		c.createPod(pod("thirteen", 13))
		got := c.awaitPending("thirteen", "resources.limits")
		want := `spec.containers[0].resources.limits[tandem-gpu.io/vgpu]: "13" is not legal, the nearest legal values are 10 and 20; ` +
			`the field is immutable: the pod must be replaced`
		if !strings.Contains(got, want) {
			t.Errorf("the message is %q, it lacks %q", got, want)
		}

		c.createPod(with(pod("corrected", 5), func(p *v1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationComputeLimit: "half"}
		}))
		c.awaitPending("corrected", `metadata.annotations[tandem-gpu.io/compute-limit]: "half" is not legal`)
		c.annotate("corrected", v1alpha1.AnnotationComputeLimit, "40")
		c.awaitPending("corrected", "it must not be below the request, 50 percent of a device")
		c.annotate("corrected", v1alpha1.AnnotationComputeLimit, "60")
		c.awaitBound("corrected")
	})
}

func (c *cluster) annotate(name, key, value string) {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	must.OK(c.t, err)
	p.Annotations[key] = value
	p.ResourceVersion += "1" // the API in memory does not, and the scheduler ignores updates of the same version
	if _, err := c.client.CoreV1().Pods("default").Update(c.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func TestPreemptionSeesTheDevicesThatItFrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Both devices hold 6 and 4. Eight slots need the 6 of one device to go, whichever; the 4 and 4 would free as many
		// slots of the node and no room.
		n1 := gpuNode("n1", 2)
		c := newCluster(t, n1)
		for name, slots := range map[string]int{"six-a": 6, "six-b": 6} {
			c.createPod(pod(name, slots))
			c.awaitBound(name)
		}
		c.createPod(with(pod("four", 4), func(p *v1.Pod) { p.Spec.Priority = new(int32(100)) }))
		c.awaitBound("four")
		c.createPod(with(pod("urgent", 8), func(p *v1.Pod) { p.Spec.Priority = new(int32(50)) }))
		got := c.awaitBound("urgent")
		used := c.checkLedger(n1)
		if used["GPU-n1-0"] != 10 && used["GPU-n1-1"] != 10 {
			t.Errorf("used %v, urgent is on %s", used, got)
		}
		left, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		must.OK(t, err)
		if len(left.Items) != 3 {
			t.Errorf("%d pods are left, want 3: one victim makes room", len(left.Items))
		}
	})
}

func TestStrayPodsTakeSlotsAndNoDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A pod with nodeName takes 8 slots from the kubelet and no device: 12 of 20 are left for the node as a whole.
		n1 := gpuNode("n1", 2)
		c := newCluster(t, n1)
		c.createPod(with(pod("stray", 8), func(p *v1.Pod) { p.Spec.NodeName = "n1" }))
		c.createPod(pod("a", 10))
		c.awaitBound("a")
		c.createPod(pod("b", 3))
		c.awaitPending("b", "pods without an assignment hold the node's slots")
		c.createPod(pod("c", 2))
		c.awaitBound("c")
		c.deletePod("stray")
		c.awaitBound("b")
	})
}

func TestForgedAssignmentOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The annotation of "forged" is for another UID; it is overwritten at the bind of a pending pod and ignored on a
		// pod with nodeName.
		forged := `{"version":1,"uid":"other","node":"n1","containers":[{"name":"main","devices":["GPU-n1-0"],"slots":10,` +
			`"memoryBytes":1,"computeLimitPercent":100,"memoryLimitBytes":1}]}`
		annotate := func(p *v1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationAssignment: forged} }
		c := newCluster(t, gpuNode("n1", 2))
		c.createPod(with(with(pod("forged", 10), annotate), func(p *v1.Pod) { p.Spec.NodeName = "n1" }))
		c.createPod(with(pod("pending", 10), annotate))
		if got := c.awaitBound("pending"); got != "n1/GPU-n1-0" {
			t.Errorf("pending is on %s, want n1/GPU-n1-0: the forged assignment holds it", got)
		}
		c.createPod(pod("third", 1))
		c.awaitPending("third", "pods without an assignment hold the node's slots")
	})
}

func TestGPUNodeComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.createNode("n1")
		c.createPod(pod("a", 3))
		c.awaitPending("a", "the node has no GPUs")

		g := gpuNode("n1", 1)
		g.Status.Conditions[0].Status = metav1.ConditionFalse
		c.applyGPUNode(g)
		c.awaitPending("a", "the node's GPU agent is not ready")

		g = gpuNode("n1", 1)
		g.Status.Devices[0].Health, g.Status.Devices[0].Reason = v1alpha1.Unhealthy, "XID79"
		c.applyGPUNode(g)
		c.awaitPending("a", "no healthy GPU could take the share, others are sick or cordoned")

		c.applyGPUNode(gpuNode("n1", 1))
		if got := c.awaitBound("a"); got != "n1/GPU-n1-0" {
			t.Errorf("a is on %s", got)
		}
	})
}

// A cordoned GPU takes no new pod until it is uncordoned, and its pods stay. The kubelet goes on to offer its slots.
func TestCordonedGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		c.createPod(pod("before", 6))
		if got := c.awaitBound("before"); got != "n1/GPU-n1-0" {
			t.Fatalf("before is on %s", got)
		}
		g := gpuNode("n1", 2)
		g.Spec.CordonedDevices = []v1alpha1.CordonedDevice{{ID: "GPU-n1-0", Reason: "fan"}, {ID: "GPU-elsewhere"}}
		c.applyGPUNode(g)
		synctest.Wait() // until the scheduler has seen it
		c.createPod(pod("beside", 3))
		if got := c.awaitBound("beside"); got != "n1/GPU-n1-1" {
			t.Errorf("with g0 cordoned a pod is on %s", got)
		}
		c.createPod(pod("waits", 9))
		c.awaitPending("waits", "largest free share is 7 of 10 slots on n1/g1")
		g = gpuNode("n1", 2)
		g.Spec.CordonedDevices = []v1alpha1.CordonedDevice{{ID: "GPU-n1-0"}, {ID: "GPU-n1-1"}}
		c.applyGPUNode(g)
		c.awaitPending("waits", "no healthy GPU could take the share, others are sick or cordoned")
		c.deletePod("before")
		c.applyGPUNode(gpuNode("n1", 2))
		if got := c.awaitBound("waits"); got != "n1/GPU-n1-0" {
			t.Errorf("after both are uncordoned the pod is on %s", got)
		}
	})
}

func TestPodsWithoutVGPUsAreNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		c.createPod(pod("plain", 0))
		p := c.await("plain", "it is bound", isBound)
		if len(p.Annotations) != 0 {
			t.Errorf("the pod carries %v", p.Annotations)
		}
		if got := c.plugin.Published(); len(got) != 0 {
			t.Errorf("the plugin computed %d nodes for a pod that asks for no vGPU", len(got))
		}
	})
}
