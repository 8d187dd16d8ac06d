package gpupreempt

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

func devicesOf(t testing.TB, p *v1.Pod) string {
	t.Helper()
	a, err := kube.AssignmentOf(p)
	must.OK(t, err)
	var all []string
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			all = append(all, string(id))
		}
	}
	return strings.Join(all, "+")
}

func expect[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The pod of the lowest priority goes, on the device that it has; its event says for whom and why, its condition what it was.
func TestEvictsOnTheRightDevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 1)
		c.createBound(pod("a", 20, 3), pod("b", 10, 5))
		c.Remove("a")
		c.createBound(pod("c", 10, 2), pod("d", 10, 1))
		device := c.devices("d")
		high := pod("high", 10, 100)
		high.Spec.InitContainers = []v1.Container{*high.Spec.Containers[0].DeepCopy()} // which has them before
		high.Spec.InitContainers[0].Name = "init"
		c.Create(high)
		expect(t, "victims", []string{"d"}, c.awaitVictims(1))
		c.Await("the victim is marked", func() bool {
			for _, x := range c.Pod("d").Status.Conditions {
				if x.Type == v1.DisruptionTarget {
					return x.Status == v1.ConditionTrue && x.Reason == v1.PodReasonPreemptionByScheduler
				}
			}
			return false
		})
		e := c.awaitEvent("d", "Preempted")
		for _, want := range []string{"Preempted by pod default/high (priority 100)", "on node n1", "needs 10 vGPU slots"} {
			if !strings.Contains(e.Note, want) {
				t.Errorf("the event of the victim is %q, want %q in it", e.Note, want)
			}
		}
		if e.Related == nil || e.Related.Name != "high" {
			t.Errorf("the event of the victim relates to %v", e.Related)
		}
		expect(t, "nominated node", "n1", c.Pod("high").Status.NominatedNodeName)
		c.Remove("d")
		c.AwaitBound("high", 1)
		expect(t, "devices", device+"+"+device, c.devices("high"))
		expect(t, "victims", []string{"d"}, c.victims())
	})
}

// Eight devices of one node are freed, where most are free already, and not eight here and there.
func TestFreesANodeForEightDevices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 8, 8)
		c.createBound(pod("half-0", 40, 0), pod("half-1", 40, 0), pod("part-0", 70, 0), pod("one", 10, 0))
		c.Create(pod("eight", 80, 10))
		victims := c.awaitVictims(2)
		nodes := map[string]bool{}
		for _, v := range victims {
			nodes[c.Pod(v).Spec.NodeName] = true
		}
		if len(victims) != 2 || len(nodes) != 1 {
			t.Errorf("%v are evicted on %v", victims, nodes)
		}
		c.Remove(victims...)
		c.AwaitBound("eight", 1)
	})
}

// While a victim uses its grace period up, its room is kept, and no other pod is evicted.
func TestRoomIsKeptWhileAVictimLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 10, 0))
		c.Create(pod("high", 10, 100))
		c.awaitVictims(1)
		c.AwaitMessage("high", "1 of 1 pod (default/low) yet to leave node n1, within ")
		c.Create(pod("rush-0", 10, 50), pod("rush-1", 10, 0))
		c.AwaitMessage("rush-0", "free share is 0")
		c.Clock.Pass(29 * time.Second) // of 30
		expect(t, "pending", 1.0, c.count("pending", ""))
		if h, held := c.shares.Held("uid-high"); !held || h.Node != "n1" || h.Priority != 100 {
			t.Errorf("room is held: %v, on %s for priority %d", held, h.Node, h.Priority)
		}
		c.Remove("low")
		expect(t, "who has the room", map[string]string{"high": "n1"}, c.AwaitBound("high", 1))
		expect(t, "victims", []string{"low"}, c.victims())
		expect(t, "the rush", map[string]string{}, c.Bound("rush"))
		c.Await("nothing is pending", func() bool { return len(c.rooms()) == 0 })
		expect(t, "pending", 0.0, c.count("pending", ""))
		expect(t, "plans", 1.0, c.count("attempts_total", resultEvicting))
		expect(t, "victims", 1.0, c.count("victims_total", "single"))
		if lost := c.count("lost_gpu_seconds_total", ""); lost < 0 || lost > 60 {
			t.Errorf("%v seconds of a GPU are lost", lost)
		}
	})
}

// The work that is lost is that of the whole GPU since the pod started.
func TestLostWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 5, 0))
		c.Clock.Pass(time.Hour)
		c.Create(pod("high", 10, 100))
		c.awaitVictims(1)
		c.Await("it is counted", func() bool { return c.count("lost_gpu_seconds_total", "") > 0 })
		if lost := c.count("lost_gpu_seconds_total", ""); lost < 1800 || lost > 1860 {
			t.Errorf("%v seconds of a GPU are lost of half a GPU in an hour", lost)
		}
	})
}

// Pods that are being deleted already are waited for, and no pod is evicted in their place.
func TestWaitsForPodsThatLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("low", 10, 0), pod("other", 10, 0))
		must.OK(t, c.Client.CoreV1().Pods("default").Delete(t.Context(), "low", metav1.DeleteOptions{}))
		on := c.Pod("low").Spec.NodeName
		c.Create(pod("high", 10, 100))
		c.AwaitMessage("high", "waits for default/low to leave")
		expect(t, "nominated node", on, c.Pod("high").Status.NominatedNodeName)
		expect(t, "attempts", []float64{1, 0}, []float64{c.count("attempts_total", resultWaiting), c.count("attempts_total", resultEvicting)})
		c.Remove("low")
		expect(t, "place", map[string]string{"high": on}, c.AwaitBound("high", 1))
		expect(t, "deleted", []string{"low"}, c.victims())
	})
}

// A pod that leaves makes room whatever its priority.
func TestWaitsForEqualsThatLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("first", 10, 100))
		must.OK(t, c.Client.CoreV1().Pods("default").Delete(t.Context(), "first", metav1.DeleteOptions{}))
		c.Create(pod("second", 10, 100))
		c.AwaitMessage("second", "waits for default/first to leave")
		c.Create(pod("third", 10, 99))
		c.AwaitMessage("third", "GPU")
		c.Remove("first")
		c.AwaitBound("second", 1)
	})
}

// A victim that stays beyond its grace period, on a node that does not answer, is given up: another one goes elsewhere.
func TestOverdueVictim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		c.Create(pod("high", 10, 100))
		first := c.awaitVictims(1)[0]
		c.AwaitMessage("high", "yet to leave")
		c.Clock.Pass(2 * time.Minute)
		c.awaitVictims(2)
		expect(t, "victims", []string{"low-0", "low-1"}, c.victims())
		expect(t, "why", "1 of 1 pod did not leave node "+c.Pod(first).Spec.NodeName+" in time", c.pauses("high").Why)
		second := map[string]string{"low-0": "low-1", "low-1": "low-0"}[first]
		node := c.Pod(second).Spec.NodeName
		c.Remove(second)
		expect(t, "place", map[string]string{"high": node}, c.AwaitBound("high", 1))
	})
}

// A node that is lost while its victim leaves, or that takes the preemptor no more, is given up.
func TestNodeLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(c *cluster, node string){
		"gone":     func(c *cluster, node string) { c.RemoveNode(node) },
		"cordoned": func(c *cluster, node string) { c.changeNode(node, func(n *v1.Node) { n.Spec.Unschedulable = true }) },
		"tainted": func(c *cluster, node string) {
			c.changeNode(node, func(n *v1.Node) {
				n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 1)
				c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
				c.Create(pod("high", 10, 100))
				first := c.awaitVictims(1)[0]
				c.AwaitMessage("high", "yet to leave")
				lose(c, c.Pod(first).Spec.NodeName)
				c.Clock.Pass(5 * time.Second) // the pause
				c.awaitVictims(2)
				expect(t, "why", "node "+c.Pod(first).Spec.NodeName+" is gone or takes the pod no more", c.pauses("high").Why)
				second := map[string]string{"low-0": "low-1", "low-1": "low-0"}[first]
				node := c.Pod(second).Spec.NodeName
				c.Remove(second)
				expect(t, "place", map[string]string{"high": node}, c.AwaitBound("high", 1))
			})
		})
	}
}

// Room that comes elsewhere, or on another device of the node, is taken: the preemptor need not wait for a victim.
func TestTakesOtherRoom(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string][]int{"elsewhere": {1, 1}, "on the node": {2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, nodes...)
				c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 1))
				c.Create(pod("high", 10, 100))
				expect(t, "victims", []string{"low-0"}, c.awaitVictims(1))
				c.AwaitMessage("high", "yet to leave")
				device := c.devices("low-1")
				c.Remove("low-1")
				c.AwaitBound("high", 1)
				expect(t, "device", device, c.devices("high"))
				c.Await("nothing is pending", func() bool { return len(c.rooms()) == 0 })
				c.Create(pod("next", 10, 0))
				c.Remove("low-0")
				c.AwaitBound("next", 1)
			})
		})
	}
}

// If a victim cannot be evicted, the others stay, and the preemptor is tried again.
func TestEvictionFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		c.refuseDeletes(func(string) error { return apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("not you")) })
		c.Create(pod("high", 20, 100))
		c.AwaitMessage("high", "the last one came to nothing")
		c.AwaitMessage("high", "is forbidden: not you")
		expect(t, "victims", nil, c.victims())
		if h, held := c.shares.Held("uid-high"); held {
			t.Errorf("room is held on %s", h.Node)
		}
		c.refuseDeletes(nil)
		for len(c.victims()) < 2 {
			c.Clock.Pass(time.Minute)
			c.Await("it is tried again", func() bool {
				return len(c.victims()) == 2 || strings.Contains(fakecluster.Message(c.Pod("high")), "came to nothing")
			})
		}
		c.Remove("low-0", "low-1")
		c.AwaitBound("high", 1)
	})
}

// If the pod does not fit although its victims are gone, since a device is sick now, another node is tried after a pause.
func TestMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 1))
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"low-0"}, c.awaitVictims(1))
		c.AwaitMessage("high", "yet to leave")
		lost := c.Pod("low-0").Spec.NodeName
		c.makeKnownSick(lost)
		c.Remove("low-0")
		c.Await("the preemption came to nothing", func() bool { return c.pauses("high").Failures == 1 })
		expect(t, "why", "all victims have left node "+lost+", and the pod does not fit there: no healthy GPU could take the share, others are sick or cordoned", c.pauses("high").Why)
		if h, held := c.shares.Held("uid-high"); held && h.Node == lost {
			t.Errorf("room is kept on %s, where the pod does not fit", h.Node)
		}
		c.Clock.Pass(2 * time.Second)
		expect(t, "victims", []string{"low-0", "low-1"}, c.awaitVictims(2))
		c.Remove("low-1")
		c.AwaitBound("high", 1)
	})
}

// A pod that ends by itself within its grace period is not evicted, and neither is another: the preemptor waits for it.
func TestWaitsForAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		ends, deadline := pod("ends", 10, 50), int64(25)
		ends.Spec.ActiveDeadlineSeconds = &deadline
		c.createBound(ends, pod("other", 10, 5))
		c.Create(pod("high", 10, 100))
		c.says("high", "waits for default/ends to leave")
		expect(t, "victims", nil, c.victims())
		c.Remove("ends")
		c.AwaitBound("high", 1)
		expect(t, "victims", nil, c.victims())
	})
}

// Another preemptor waits for a pod that ends soon, and its nomination takes the CPU that was kept. Both preemptors run once that pod
// is gone: the first evicts nobody else meanwhile.
func TestWaitsForAnEndThatAnotherAwaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.createBound(pod("low", 20, 0))
		high := pod("high", 20, 100)
		needsHost(high, "20")
		c.Create(high)
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		ends, deadline := pod("ends", 10, 0), int64(25)
		ends.Spec.ActiveDeadlineSeconds = &deadline
		needsHost(ends, "30")
		c.createBound(ends)
		peer := pod("peer", 10, 100)
		needsHost(peer, "20")
		c.Create(peer)
		c.says("peer", "waits for default/ends to leave")
		c.Remove("low")
		c.AwaitMessage("high", "1 of 1 pod (default/ends) yet to leave node n1")
		c.Remove("ends")
		c.AwaitBound("high", 1)
		c.AwaitBound("peer", 1)
		expect(t, "victims", []string{"low"}, c.victims())
	})
}

// A pod of the same priority that ends soon gives its room to whoever is first then: no preemptor keeps it.
func TestKeepsNoEndOfEquals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		ends, deadline := pod("ends", 10, 100), int64(25)
		ends.Spec.ActiveDeadlineSeconds = &deadline
		c.createBound(ends, pod("other", 10, 5))
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"other"}, c.awaitVictims(1))
	})
}
