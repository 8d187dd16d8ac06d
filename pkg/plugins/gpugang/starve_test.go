package gpugang

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

// in has pods go to one rack only.
func in(name string, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Spec.NodeSelector = map[string]string{rack: name}
	}
	return pods
}

func asking(cpu string, pods []*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	return pods
}

// taint gives all nodes a taint.
func (c *cluster) taint(t v1.Taint) {
	c.T.Helper()
	nodes, err := c.Client.CoreV1().Nodes().List(c.T.Context(), metav1.ListOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	for i := range nodes.Items {
		nodes.Items[i].Spec.Taints = []v1.Taint{t}
		if _, err := c.Client.CoreV1().Nodes().Update(c.T.Context(), &nodes.Items[i], metav1.UpdateOptions{}); err != nil {
			c.T.Fatal(err)
		}
	}
}

// holding reports for the pods of which gangs room is kept.
func (c *cluster) holding(prefix string) bool {
	for _, p := range c.Pods() {
		if _, held := c.plugin.shares().Held(kube.UIDOf(&p)); held && strings.HasPrefix(p.Name, prefix) {
			return true
		}
	}
	return false
}

// A gang that waits for a pod that never ends has no turn: another that waits behind it has room kept.
func TestHopelessGangStopsNoDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1, 1)
		serves := in("r1", pod("serves", 10))[0]
		serves.Spec.RestartPolicy = v1.RestartPolicyAlways
		c.Create(serves, in("r1", pod("beside", 10))[0], in("r2", pod("first", 10))[0], in("r2", pod("second", 10))[0])
		c.AwaitBound("", 4)
		c.Clock.Pass(2 * time.Second)
		c.Create(requireLevel(in("r1", members("hopeless", 2, 2, 10)...), rack)...)
		c.AwaitMessage("hopeless", "needs 2")
		c.Clock.Pass(2 * time.Second)
		c.Create(requireLevel(in("r2", members("large", 2, 2, 10)...), rack)...)
		c.AwaitMessage("large", "needs 2")
		c.Clock.Pass(2 * time.Minute)
		c.Remove("first")
		c.Create(in("r2", pod("passing", 10))[0])
		c.AwaitBound("passing", 1)
		c.Remove("second")
		c.AwaitMessage("large", "room for it is kept on 2 nodes")
		if c.holding("hopeless") {
			t.Error("room is kept for the gang that waits for a pod that never ends")
		}
	})
}

// A gang that no host is large enough for gets that reason, with the numbers, and nothing is kept for it.
func TestTooLargeForAnyHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.Create(pod("small-1", 10), pod("small-2", 10))
		c.AwaitBound("small", 2)
		c.Create(asking("100", members("large", 2, 2, 10))...)
		c.AwaitMessage("large", "takes at most 0 even when all its devices are free and healthy; hosts keep members out: "+
			"2 Insufficient cpu (64000m CPU in an empty host at most, each member asks for 100000m)")
		c.Clock.Pass(10 * time.Minute)
		c.Remove("small-1")
		c.Create(pod("small-3", 10))
		c.AwaitBound("small-3", 1)
		if c.holding("large") {
			t.Error("room is kept for a gang that fits nowhere")
		}
	})
}

// The message names the reason, beside devices, that keeps a gang from nodes, as for single pods.
func TestBarredNodesAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.Create(in("r7", members("elsewhere", 2, 2, 10)...)...)
		c.AwaitMessage("elsewhere", "hosts keep members out: 2 node(s) didn't match Pod's node affinity/selector")
		c.taint(v1.Taint{Key: "dedicated", Value: "infra", Effect: v1.TaintEffectNoSchedule})
		c.Create(members("large", 2, 2, 10)...)
		c.AwaitMessage("large", "hosts keep members out: 2 node(s) had untolerated taint {dedicated: infra}")
	})
}

// Sizes that are legal on GPUs of cordoned nodes alone are legal for gangs too, whether those GPUs are free or not.
func TestGangForCordonedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1, 2)
		patch := []byte(`[{"op":"replace","path":"/status/devices/0/slots","value":4},{"op":"replace","path":"/status/devices/0/model","value":"T4"},
			{"op":"replace","path":"/status/devices/1/slots","value":4},{"op":"replace","path":"/status/devices/1/model","value":"T4"}]`)
		if _, err := c.Dynamic.Resource(v1alpha1.GPUNodes).Patch(t.Context(), "n3", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.start()
		c.Create(pod("busy", 10))
		c.AwaitBound("busy", 1)
		cordon := func(closed bool) {
			body := []byte(fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, closed))
			for _, name := range []string{"n1", "n2"} {
				if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, body, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		cordon(true)
		bubble.Rest() // the scheduler has seen it
		c.Create(members("large", 2, 2, 10)...)
		if got := c.AwaitMessage("large", "hosts keep members out: 2 node(s) were unschedulable"); strings.Contains(got, "legal") {
			t.Errorf("the message is %q", got)
		}
		c.Create(requireLevel(members("near", 2, 2, 10), rack)...)
		if got := c.AwaitMessage("near", "hosts keep members out: 2 node(s) were unschedulable"); strings.Contains(got, "legal") {
			t.Errorf("the message is %q", got)
		}
		for _, p := range append(members("large", 2, 2, 10), pod("busy", 10)) {
			c.Remove(p.Name)
		}
		cordon(false)
		c.AwaitBound("near", 2)
	})
}

// If the end of no pod would help a gang, its message does not say that pods do not declare their ends.
func TestBoundedDrainsAreNotToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.Drain = config.DrainBounded
		c.start()
		c.MakeSick("n2")
		c.Create(within(pod("first", 10), 20*time.Minute))
		c.AwaitBound("first", 1)
		c.Create(requireLevel(members("large", 2, 2, 10), rack)...)
		c.AwaitMessage("large", "needs 2")
		c.Clock.Pass(2 * time.Minute)
		time.Sleep(2 * time.Minute) // on the bubble's clock: the plugin looks for room again meanwhile
		if text := c.AwaitMessage("large", "needs 2"); strings.Contains(text, "no room is kept") {
			t.Errorf("the message is %q", text)
		}
	})
}

// Bounded drains keep room only where all pods to wait for say when they end, and soon; else the message of the gang says what is
// missing.
func TestBoundedDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.Drain = config.DrainBounded
		c.start()
		c.Create(within(pod("first", 10), 20*time.Minute), ending(pod("second", 10)))
		c.AwaitBound("", 2)
		c.Create(requireLevel(members("large", 2, 2, 10), rack)...)
		c.AwaitMessage("large", "needs 2")
		c.Clock.Pass(2 * time.Minute)
		c.AwaitMessage("large", "no room is kept for it: pods in its way do not say when they end")
		c.Remove("second")
		c.Create(within(pod("third", 10), 30*time.Minute))
		c.AwaitBound("third", 1)
		c.Clock.Pass(2 * time.Minute)
		c.AwaitMessage("large", "no room is kept for it yet: the last of the pods to wait for ends within 2")
		if c.holding("large") {
			t.Error("room is kept although the last pod ends late")
		}
		c.Clock.Pass(24 * time.Minute)
		c.AwaitMessage("large", "room for it is kept on 2 nodes as pods end there")
	})
}
