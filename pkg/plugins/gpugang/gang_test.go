package gpugang

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

func TestGangStartsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2, 2, 2)
		pods := members("train", 4, 4, 10)
		c.Create(pods[:3]...)
		c.Create(pod("other", 5))
		c.AwaitBound("other", 1) // the scheduler has been at work, and the gang lacks a member
		if got := c.Bound("train"); len(got) != 0 {
			t.Fatalf("three of four members exist, and %v are bound", got)
		}
		c.Create(pods[3])
		nodes := c.AwaitBound("train", 4)
		racks := map[string]bool{}
		for _, n := range nodes {
			racks[rackOf(n)] = true
		}
		if len(racks) != 1 {
			t.Errorf("the members are on %v, more than one rack", nodes)
		}
	})
}

func TestGangOfFractionsShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.Create(members("notebook", 4, 4, 5)...)
		nodes := c.AwaitBound("notebook", 4)
		if nodes["notebook-0"] != nodes["notebook-1"] || nodes["notebook-2"] != nodes["notebook-3"] {
			t.Errorf("neighbours by rank are apart: %v", nodes)
		}
	})
}

// Two gangs that need more than half of the cluster each: one runs, the other waits whole, and runs when the first ends.
func TestTwoLargeGangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		a, b := members("a", 3, 3, 10), members("b", 3, 3, 10)
		for i := range a {
			c.Create(a[i], b[i])
		}
		c.Await("one gang is bound", func() bool { return len(c.Bound("a-")) == 3 || len(c.Bound("b-")) == 3 })
		first, second := "a-", "b-"
		if len(c.Bound("b-")) == 3 {
			first, second = "b-", "a-"
		}
		text := c.AwaitMessage(second, "needs 3")
		if len(c.Bound(second)) != 0 {
			t.Fatalf("both gangs have members bound: %v %v", c.Bound("a-"), c.Bound("b-"))
		}
		if !strings.Contains(text, "gang default/"+second[:1]+" needs 3") {
			t.Errorf("the message does not name the gang and what it needs: %s", text)
		}
		for name := range c.Bound(first) {
			c.Remove(name)
		}
		c.AwaitBound(second, 3)
	})
}

func TestFailedBindIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		denied := true
		c.RefuseBinds(func(pod string) error {
			if pod == "train-1" && denied {
				return errors.New("no answer")
			}
			return nil
		})
		c.Create(members("train", 2, 2, 10)...)
		c.AwaitBound("train", 1)
		// The place of the other is kept: this pod would fit there.
		c.Create(pod("greedy", 10))
		c.AwaitMessage("greedy", "free share is 0")
		c.RefuseBinds(nil)
		nodes := c.AwaitBound("train", 2)
		if nodes["train-0"] == nodes["train-1"] {
			t.Errorf("two whole GPUs of one-GPU nodes: %v", nodes)
		}
		if len(c.Bound("greedy")) != 0 {
			t.Error("the place of the member whose bind failed was given away")
		}
	})
}

func TestHalfBoundGangIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.RefuseBinds(func(pod string) error {
			if pod == "train-1" {
				return apierrors.NewForbidden(v1.Resource("pods/binding"), pod, errors.New("by a test"))
			}
			return nil
		})
		c.Create(members("train", 2, 2, 10)...)
		c.AwaitBound("train", 1)
		c.Clock.Pass(6 * time.Minute)
		c.AwaitBound("train", 0)
		c.Create(pod("other", 10), pod("another", 10))
		c.AwaitBound("other", 1)
		c.AwaitBound("another", 1)
	})
}

// A member that is made anew while its siblings run comes back near them, and nothing is evicted when the deadline passes.
func TestMemberReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2, 2, 2)
		c.Create(requireLevel(members("train", 4, 4, 10), rack)...)
		before := c.AwaitBound("train", 4)
		c.Await("the gang is known to have started", func() bool {
			phase, _ := c.phase("train")
			return phase == reservation.Running
		})
		c.Remove("train-2")
		c.Clock.Pass(10 * time.Minute)
		c.plugin.Tick(t.Context())
		if got := c.Bound("train"); len(got) != 3 {
			t.Fatalf("bound are %v, want the three siblings of the member that is gone", got)
		}
		again := requireLevel(members("train", 4, 4, 10), rack)[2]
		again.UID = "uid-again"
		c.Create(again)
		after := c.AwaitBound("train", 4)
		if before["train-2"] != after["train-2"] {
			t.Errorf("the member was on %s and is on %s, the siblings on %v", before["train-2"], after["train-2"], after)
		}
	})
}

// A member with a scheduling gate is missing, and says why. The rest of a gang that has started runs without it.
func TestGatedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		pods := members("train", 3, 3, 10)
		gated := func(p *v1.Pod) *v1.Pod {
			p = p.DeepCopy()
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
			return p
		}
		ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "train"}
		c.Create(pods[0], pods[1], gated(pods[2]), pod("other", 10))
		c.AwaitBound("other", 1) // the scheduler has been at work
		if _, err := c.plugin.gangs.Gang(ref); err == nil || !strings.HasPrefix(err.Error(), "2 of 3 members are without scheduling gates: it waits until the gate example.com/quota of pod train-2") {
			t.Errorf("the gang has the problem %v", err)
		}
		for _, p := range c.Pods() {
			if text := fakecluster.Message(&p); text != "" {
				t.Errorf("%s is refused: %s", p.Name, text)
			}
		}
		c.update(pods[2])
		c.AwaitBound("train", 3)
		c.Await("the gang is known to have started", func() bool {
			phase, _ := c.phase("train")
			return phase == reservation.Running
		})
		c.Remove("train-1")
		c.Remove("train-2")
		again := []*v1.Pod{members("train", 3, 3, 10)[1], gated(pods[2])}
		again[0].UID, again[1].UID = "uid-again-1", "uid-again-2"
		c.Create(again[1])
		c.Await("the gated one is known", func() bool {
			pg, _ := c.plugin.gangs.Gang(ref)
			return pg != nil && len(pg.Members) == 2 && len(pg.Members[1].Spec.SchedulingGates) == 1
		})
		c.Create(again[0])
		c.AwaitBound("train", 2)
	})
}

func TestNodeLostUnderGang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2, 2, 2)
		c.Create(requireLevel(members("train", 2, 2, 20), rack)...)
		nodes := c.AwaitBound("train", 2)
		c.loseNode(nodes["train-1"])
		again := requireLevel(members("train", 2, 2, 20), rack)[1]
		again.UID = "uid-again"
		c.Create(again)
		// The rack of the sibling has no other node: the member waits, and the sibling runs on.
		c.AwaitMessage("train-1", "gang default/train")
		c.checkWhole("train-0", 1)
		if got := c.Bound("train"); len(got) != 1 || got["train-0"] != nodes["train-0"] {
			t.Errorf("the sibling was on %s, bound are %v", nodes["train-0"], got)
		}
	})
}

func TestMembersBeyondTheLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 1)
		c.Create(members("elastic", 5, 2, 10)...)
		c.AwaitBound("elastic", 3)
		c.AwaitMessage("elastic", "none for this pod")
		c.CreateNode("n3", "r2", 2)
		c.AwaitBound("elastic", 5)
	})
}

func TestOtherPluginRefusesThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		pods := members("train", 2, 2, 10)
		for _, p := range pods {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}} // one to a node
		}
		c.Create(pods...)
		nodes := c.AwaitBound("train", 2)
		if nodes["train-0"] == nodes["train-1"] {
			t.Errorf("both hold the port of one host: %v", nodes)
		}
	})
}

// An object that is not read yet when the scheduler starts is no refusal: every member gets the true refusal when it is read.
func TestMembersGetTheReasonWhenAllIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 2)
		var readable atomic.Bool
		c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !readable.Load(), nil, errors.New("not now")
		})
		c.start()
		c.Create(members("train", 3, 3, 10)...)
		for i := range 3 {
			c.AwaitMessage(fmt.Sprint("train-", i), "not now")
		}
		readable.Store(true)
		for i := range 3 {
			c.AwaitMessage(fmt.Sprint("train-", i), "needs 3")
		}
	})
}

// ending has a pod run once.
func ending(p *v1.Pod) *v1.Pod {
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	return p
}

func TestDrainForALargeGang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1, 1)
		for i := range 4 {
			c.Create(pod(fmt.Sprintf("small-%d", i), 10))
		}
		c.AwaitBound("small", 4)
		c.Clock.Pass(2 * time.Second)
		c.Create(requireLevel(members("large", 2, 2, 10), rack)...)
		c.AwaitMessage("large", "needs 2")
		c.Clock.Pass(2 * time.Minute)
		// small-0 makes room for one that comes later. When small-1 ends too, only that one is in the way: the gang was passed over.
		first, second := c.Bound("small-0")["small-0"], ""
		for name, node := range c.Bound("small") {
			if rackOf(node) == rackOf(first) && node != first {
				second = name
			}
		}
		c.Remove("small-0")
		c.Create(ending(pod("passing", 10)))
		c.AwaitBound("passing", 1)
		if text := c.AwaitMessage("large", "needs 2"); strings.Contains(text, "is kept") {
			t.Fatalf("room is kept before the gang was passed over: %s", text)
		}
		c.Remove(second)
		text := c.AwaitMessage("large", "room for it is kept on 2 nodes")
		if !strings.Contains(text, "after default/passing (priority 0) ends") {
			t.Errorf("the message does not say whom the gang waits for: %s", text)
		}
		// Pods that come later find no room where it is kept, and go elsewhere.
		c.Create(pod("later", 10))
		c.AwaitMessage("later", "free share is 0")
		for name, node := range c.Bound("small") {
			if rackOf(node) != rackOf(first) {
				c.Remove(name)
				break
			}
		}
		c.AwaitBound("later", 1)
		c.checkWhole("large", 2)
		c.Remove("passing")
		c.AwaitBound("large", 2)
	})
}

func rackOf(node string) string {
	return map[string]string{"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2"}[node]
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func([]*v1.Pod)
		want   string
	}{
		{"larger than the cluster", func(pods []*v1.Pod) { pods[0].Spec.Containers[0].Resources = pod("x", 80).Spec.Containers[0].Resources },
			"needs"},
		{"a label that no node has", func(pods []*v1.Pod) { requireLevel(pods, "example.com/row") }, "example.com/row"},
		{"unlike priorities", func(pods []*v1.Pod) { pods[1].Spec.Priority = new(int32); *pods[1].Spec.Priority = 7 }, "priority"},
		{"a number that is none", func(pods []*v1.Pod) {
			for _, p := range pods {
				p.Annotations[v1alpha1.AnnotationMinMembers] = "many"
			}
		}, v1alpha1.AnnotationMinMembers},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2, 2)
				pods := members("bad", 2, 2, 10)
				test.change(pods)
				c.Create(pods...)
				c.AwaitMessage("bad", test.want)
				if got := c.Bound("bad"); len(got) != 0 {
					t.Errorf("bound are %v", got)
				}
			})
		})
	}
}

// A member that waits for others gets the reason once a sibling comes that is unlike it.
func TestUnlikeSiblingIsReportedToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		first, second := members("odd", 2, 2, 10)[0], members("odd", 2, 3, 10)[1]
		c.Create(first)
		c.Await("the first member waits for another", func() bool {
			_, need := c.phase("odd")
			return need == reservation.Incomplete
		})
		c.Create(second)
		for _, name := range []string{first.Name, second.Name} {
			c.AwaitMessage(name, v1alpha1.AnnotationMinMembers)
		}
	})
}

func TestRestartWithHalfBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.RefuseBinds(func(pod string) error {
			if pod == "train-1" {
				return errors.New("no answer")
			}
			return nil
		})
		c.Create(members("train", 2, 2, 10)...)
		c.AwaitBound("train", 1)
		c.stop()
		c.RefuseBinds(nil)
		c.start()
		c.AwaitBound("train", 2)
	})
}

// A drain for a gang whose room does not come free ends after its timeout: others get what was kept.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.Create(pod("small-0", 10), pod("small-1", 10))
		c.AwaitBound("small", 2)
		c.Clock.Pass(2 * time.Second)
		c.Create(members("large", 2, 2, 10)...)
		c.AwaitMessage("large", "needs 2")
		c.Clock.Pass(2 * time.Minute)
		c.Remove("small-0")
		c.Create(pod("passing", 10))
		c.AwaitBound("passing", 1)
		c.Remove("small-1")
		c.AwaitMessage("large", "room for it is kept on 2 nodes")
		c.Create(pod("later", 10))
		c.AwaitMessage("later", "free share is 0")
		c.Clock.Pass(time.Hour)
		c.AwaitBound("later", 1)
		c.checkWhole("large", 2)
	})
}

// Others take devices between the plan and the hold: the whole gang is refused and planned again, and nothing stays held.
func TestDevicesThatCannotBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		var taken atomic.Bool
		taken.Store(true)
		c.refuseHold = func(h vgpu.Hold) error {
			if h.Pod == "default/train-1" && taken.Load() {
				return errors.New("others took its devices")
			}
			return nil
		}
		c.start()
		c.Create(members("train", 2, 2, 10)...)
		c.Await("a member is told", func() bool {
			return slices.ContainsFunc(c.Pods(), func(p v1.Pod) bool {
				if strings.Contains(fakecluster.Message(&p), reservation.GivenUp) {
					t.Errorf("pod %s was given the place of a plan that had ended", p.Name)
				}
				return strings.Contains(fakecluster.Message(&p), "others took its devices")
			})
		})
		if held := c.keptFor("train"); len(held) > 0 {
			t.Errorf("devices are held on %v for a gang without a plan", held)
		}
		taken.Store(false)
		c.Clock.Pass(2 * time.Minute)
		c.AwaitBound("train", 2)
	})
}
