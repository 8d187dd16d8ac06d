package gpugang

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// nominate does what the framework does for a pod that waits in Permit.
func (c *cluster) nominate(p *v1.Pod, node string) {
	c.T.Helper()
	info, err := framework.NewPodInfo(p)
	if err != nil {
		c.T.Fatal(err)
	}
	c.plugin.handle.AddNominatedPod(klog.Background(), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node})
}

func (c *cluster) nominated(node string) map[string]bool {
	names := map[string]bool{}
	for _, info := range c.plugin.handle.NominatedPodsForNode(node) {
		names[info.GetPod().Name] = true
	}
	return names
}

// incomplete creates the members of a gang but one: they wait, and the scheduler does not try them.
func (c *cluster) incomplete(name string, count int) []*v1.Pod {
	c.T.Helper()
	pods := members(name, count, count, 10)[:count-1]
	c.Create(pods...)
	c.awaitMembers(pods)
	return pods
}

// gated creates all members of a gang, and the scheduler does not try them: the state that a test writes down for them stands.
func (c *cluster) gated(name string, count, least int) []*v1.Pod {
	c.T.Helper()
	pods := members(name, count, least, 10)
	for _, p := range pods {
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/test"}}
	}
	c.Create(pods...)
	c.awaitMembers(pods)
	return pods
}

// awaitMembers waits until the plugin knows the members of a gang.
func (c *cluster) awaitMembers(pods []*v1.Pod) {
	c.T.Helper()
	ref, _ := c.plugin.gangs.Of(pods[0])
	c.Await("the members are known", func() bool {
		pg, _ := c.plugin.gangs.Gang(ref)
		return pg != nil && len(pg.Members) == len(pods)
	})
}

// A nomination of a member without a place there ends when a sibling is about to be tried there. Others stay.
func TestNominationsEndWithThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		pods := c.gated("train", 4, 1)
		single := pod("single", 30) // never fits
		c.Create(single)
		c.AwaitMessage("single", "0/2")
		for _, p := range []*v1.Pod{pods[0], pods[1], single} {
			c.nominate(p, "n1")
		}
		c.planned(pods[:1], 0, vgpu.Room{})
		c.plugin.denominate("n1")
		if got := c.nominated("n1"); !got["train-0"] || got["train-1"] || !got["single"] || len(got) != 2 {
			t.Errorf("nominated are %v, want the member with the place and the pod of no gang", got)
		}
	})
}

// A nomination that the API shows of a member is no place: it ends without the member being tried.
func TestNominationsInTheAPIEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		p := c.incomplete("train", 3)[0].DeepCopy()
		p.Status.NominatedNodeName = "n1"
		if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Await("the informer shows the nomination", func() bool {
			return c.plugin.machine.Seen(kube.UIDOf(p), "default/"+p.Name).Status.NominatedNodeName != ""
		})
		c.nominate(p, "n1")
		c.Await("the nomination is gone", func() bool { return len(c.nominated("n1")) == 0 })
	})
}

// A nomination that the API shows of a member may be out of date: it does not end the member's nomination for the node where it
// has its place.
func TestNominationOutlivesOneInTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		pods := c.gated("train", 2, 2)
		p := pods[1].DeepCopy()
		p.Status.NominatedNodeName = "n2"
		if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Await("the queue knows the nomination", func() bool { return c.nominated("n2")["train-1"] })
		c.planned(pods, 0, vgpu.Room{})
		c.nominate(p, "n1")
		c.plugin.Tick(t.Context())
		if !c.nominated("n1")["train-1"] {
			t.Error("the member is not nominated for the node of its place")
		}
	})
}

func TestRefusedMemberHasNoNominatedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := members("train", 3, 3, 10)
		for _, p := range pods {
			p.Status.NominatedNodeName = "n1"
		}
		c.Create(pods...)
		c.AwaitMessage("train", "needs 3")
		c.Await("the nominated node is cleared", func() bool {
			for _, p := range c.Pods() {
				if fakecluster.Message(&p) != "" && p.Status.NominatedNodeName != "" {
					return false
				}
			}
			return true
		})
	})
}

// A member whose plan was given up before its bind began does not wait for the gate of the next plan.
func TestBindAfterThePlanWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		p := c.incomplete("train", 3)[0]
		over, cancel := context.WithCancel(t.Context())
		cancel() // else a member that waits would wait for the placement deadline
		if status := c.plugin.Bind(over, framework.NewCycleState(), p, "n1"); status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "given up") {
			t.Errorf("Bind = %v, want that the plan was given up", status)
		}
		if status := c.plugin.Bind(t.Context(), framework.NewCycleState(), pod("single", 1), "n1"); !status.IsSkip() {
			t.Errorf("Bind of a pod of no gang = %v, want Skip", status)
		}
	})
}

// To the queue a bind that fails is a pod that left. Members that pause are not tried for that.
// known is a Gangs that knows one gang.
// activator is a Handle that notes which pods are to be tried.
// When something about a gang changes its members are tried: not in a pause, and of a refused gang those that have to be.
// A member whose bind is in doubt is planned where it may be, and elsewhere only where the gang has no place else.
func TestUnresolvedMembersArePlannedWhereTheyMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.RefuseBinds(func(string) error { return errors.New("no answer") })
		c.Create(members("train", 2, 2, 10)...)
		c.Await("both binds are in doubt", func() bool { return c.plugin.shares().UnresolvedBinds() == 2 })
		want := map[string]string{}
		for _, p := range c.Pods() {
			for _, a := range c.plugin.shares().Unresolved(kube.UIDOf(&p)) {
				want[p.Name] = a.Node
			}
		}
		c.RefuseBinds(nil)
		got := c.AwaitBound("train", 2)
		for name, node := range want {
			if got[name] != node {
				t.Errorf("%s may have been bound to %s, and is on %s", name, node, got[name])
			}
		}
	})
}

// activate has the scheduler try pods.
// The member that has the gang planned where binds in doubt may have put it has the others tried, too.
