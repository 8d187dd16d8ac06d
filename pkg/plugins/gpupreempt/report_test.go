package gpupreempt

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/bubble"
)

// A dry run asks other plugins too, and keeps no room: it says what would be done.
func TestDryRunOfAGangCallsOtherPlugins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1, 1)
		c.args.Mode = config.PreemptionDryRun
		c.start()
		high := c.blockedGang()
		c.AwaitMessage("high", "(dry run) on 2 nodes it would evict 2 pods: default/low-1, default/low-2")
		expect(t, "victims", nil, c.victims())
		for _, p := range high {
			if h, held := c.shares.Held(kube.UIDOf(p)); held {
				t.Errorf("room is kept for %s on %s", p.Name, h.Node)
			}
		}
	})
}

// A dry run changes nothing: the room that is kept for a gang while others end stays.
func TestDryRunLetsADrainGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.Mode = config.PreemptionDryRun
		c.start()
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		high := team("high", 2, 2, 10, 100)
		c.Create(high...)
		c.AwaitMessage("high", "(dry run) on 2 nodes it would evict 2 pods: default/low-0, default/low-1")
		for i := range 2 { // others pass it over
			c.Clock.Pass(10 * time.Second)
			c.Remove(fmt.Sprintf("low-%d", i))
			c.createBound(pod(fmt.Sprintf("late-%d", i), 10, 0))
		}
		c.Clock.Pass(2 * time.Minute)
		c.Await("room is kept for the gang", func() bool { return c.held(high...) == 2 })
		c.Clock.Pass(2 * time.Minute)
		c.AwaitMessage("high", "it would evict 2 pods: default/late-0, default/late-1; costs ")
		c.AwaitMessage("high", " GPU-minutes; other plugins were not asked, since room is kept for the gang")
		expect(t, "members for which room is kept", 2, c.held(high...))
	})
}

// held counts the pods for which room is kept.
func (c *cluster) held(pods ...*v1.Pod) int {
	count := 0
	for _, p := range pods {
		if _, held := c.shares.Held(kube.UIDOf(p)); held {
			count++
		}
	}
	return count
}

// The message of a pod whose request no GPU can meet says that, and does not speak of preemption.
func TestIllegalRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 5, 0))
		latency, memory := pod("latency", 10, 100), pod("memory", 10, 100)
		latency.Annotations = map[string]string{v1alpha1.AnnotationMaxLatency: "soon"}
		memory.Annotations = map[string]string{v1alpha1.AnnotationMemoryLimit: "all"}
		c.Create(pod("slots", 15, 100), latency, memory)
		for name, says := range map[string]string{"slots": "15", "latency": "soon", "memory": "all"} {
			if got := c.AwaitMessage(name, says); strings.Contains(got, "preemption") {
				t.Errorf("%s: the message is %q", name, got)
			}
		}
		expect(t, "attempts", 3.0, c.count("attempts_total", resultIneligible))
	})
}

// The message of a pod whose request is legal on GPUs of cordoned nodes alone says that, and names no other sizes. Preemption has
// nothing to say unless it is asked, as for a node that lacks CPU.
func TestRequestForCordonedNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		patch := []byte(`[{"op":"replace","path":"/status/devices/0/slots","value":4},{"op":"replace","path":"/status/devices/0/model","value":"T4"}]`)
		if _, err := c.Dynamic.Resource(v1alpha1.GPUNodes).Patch(t.Context(), "n2", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.start()
		busy := pod("busy", 4, 0) // fits on n2 alone
		busy.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("64")
		busy.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n2"}
		c.createBound(pod("low", 10, 0), busy)
		c.changeNode("n1", func(n *v1.Node) { n.Spec.Unschedulable = true })
		bubble.Rest() // the scheduler has seen it
		high, asking := pod("high", 10, 100), pod("lacks-cpu", 10, 100)
		asking.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1")
		c.Create(high, asking)
		const closed = "nearest GPU: only 1 node has GPUs for such a request, and it does not take the pod: 1 node(s) were unschedulable"
		if got := c.AwaitMessage("high", closed); strings.Contains(got, "preemption") {
			t.Errorf("the message is %q", got)
		}
		const asked = "preemption: no pods of a priority below 100 make room: no node with devices for it admits it by its other conditions"
		if got := c.AwaitMessage("lacks-cpu", asked); strings.Contains(got, "legal") {
			t.Errorf("the message is %q", got)
		}
		expect(t, "evicted", 0, len(c.victims()))
	})
}

func TestWould(t *testing.T) {
	t.Parallel()
	for is, want := range map[string]string{
		"evicts 2 pods: a, b": "would evict 2 pods: a, b", "evicts no pod, waits for c to leave": "would evict no pod, would wait for c to leave",
	} {
		expect(t, is, want, inConditional(is))
	}
}
