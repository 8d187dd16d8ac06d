package gpugang

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/podgroup"
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

// incomplete creates the members of a gang but one: they wait, and nobody tries them.
func (c *cluster) incomplete(name string, count int) []*v1.Pod {
	c.T.Helper()
	pods := members(name, count, count, 10)[:count-1]
	c.Create(pods...)
	c.awaitMembers(pods)
	return pods
}

// gated creates all members of a gang, and nobody tries them: what a test writes down for them stands.
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
		c.plugin.state.mu.Lock()
		ref, _ := c.plugin.gangs.Of(pods[0])
		g := c.plugin.state.group(ref)
		g.places[uidOf(pods[0])] = place{Assignment: vgpu.Assignment{Node: "n1"}}
		c.plugin.state.mu.Unlock()
		c.plugin.denominate("n1")
		if got := c.nominated("n1"); !got["train-0"] || got["train-1"] || !got["single"] || len(got) != 2 {
			t.Errorf("nominated are %v, want the member with the place and the pod of no gang", got)
		}
	})
}

// What the API says of a member's node is no place: it ends without the member being tried.
func TestNominationsInTheAPIEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		p := c.incomplete("train", 3)[0].DeepCopy()
		p.Status.NominatedNodeName = "n1"
		if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Await("the informer shows the nomination", func() bool { return c.plugin.seen(uidOf(p), "default/"+p.Name).Status.NominatedNodeName != "" })
		c.nominate(p, "n1")
		c.Await("the nomination is gone", func() bool { return len(c.nominated("n1")) == 0 })
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
func TestMembersThatPauseStayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		train := c.gated("train", 3, 3)
		some := c.incomplete("some", 3)
		member := train[0]
		gpu, plain := pod("left", 5), pod("plain", 0)
		soon := c.Clock.Now().Add(time.Hour)
		tests := []struct {
			name  string
			set   func(g *group)
			left  *v1.Pod
			queue bool
		}{
			{"nothing is known", func(*group) {}, gpu, true},
			{"the member pauses", func(g *group) { g.repairs[uidOf(member)] = repair{failures: 1, at: soon} }, gpu, false},
			{"another member pauses", func(g *group) { g.repairs["other"] = repair{failures: 1, at: soon} }, gpu, true},
			{"its pause is over", func(g *group) { g.repairs[uidOf(member)] = repair{failures: 1, at: soon.Add(-2 * time.Hour)} }, gpu, true},
			{"the gang pauses", func(g *group) { g.retry = soon }, gpu, false},
			{"hosts are short", func(g *group) { g.refusal = &refused{host: true} }, plain, true},
			{"devices are short", func(g *group) { g.refusal = &refused{} }, plain, false},
			{"devices are short, and some are left", func(g *group) { g.refusal = &refused{} }, gpu, true},
		}
		queues := func(name string, of *v1.Pod, set func(*group), left *v1.Pod, want bool) {
			t.Helper()
			ref, _ := c.plugin.gangs.Of(of)
			c.plugin.state.mu.Lock()
			delete(c.plugin.state.gangs, ref)
			set(c.plugin.state.group(ref))
			c.plugin.state.mu.Unlock()
			if hint, err := c.plugin.afterPodLeft(klog.Background(), of, left, nil); err != nil || (hint == fwk.Queue) != want {
				t.Errorf("%s: afterPodLeft = %v, %v, want Queue: %v", name, hint, err, want)
			}
		}
		for _, tc := range tests {
			queues(tc.name, member, tc.set, tc.left, tc.queue)
		}
		queues("a member is missing", some[0], func(*group) {}, gpu, false)
		queues("a member is missing of a gang that has started", some[0], func(g *group) {
			g.started, g.letGo, g.bound[uidOf(some[1])] = true, soon, true
		}, gpu, true)
		if hint, err := c.plugin.afterPodLeft(klog.Background(), pod("single", 5), gpu, nil); hint != fwk.QueueSkip || err != nil {
			t.Errorf("afterPodLeft for a pod of no gang = %v, %v, want QueueSkip", hint, err)
		}
	})
}

// known is a Gangs that knows one gang.
type known struct {
	Gangs
	gang *podgroup.Gang
}

func (k *known) Gang(podgroup.Ref) (*podgroup.Gang, error) { return k.gang, nil }

// activator is a Handle that notes which pods are to be tried.
type activator struct {
	fwk.Handle
	names []string
}

func (a *activator) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	a.names = append(a.names, slices.Sorted(maps.Keys(pods))...)
}

// When something about a gang changes its members are tried: not in a pause, and of a refused gang those that have to be.
func TestWhoIsTriedAfterAChange(t *testing.T) {
	now := time.Unix(1e9, 0)
	all := []string{"default/train-0", "default/train-1", "default/train-2"}
	tests := []struct {
		name string
		set  func(g *group)
		want []string
	}{
		{"nothing is known", func(*group) {}, all},
		{"it pauses", func(g *group) { g.retry = now.Add(time.Second) }, nil},
		{"its pause is over", func(g *group) { g.retry = now }, all},
		{"it was refused, and all know", func(g *group) {
			g.refusal, g.told = &refused{}, map[vgpu.UID]bool{"uid-train-0": true, "uid-train-1": true, "uid-train-2": true}
		}, all[:1]},
		{"it was refused, and one does not know", func(g *group) {
			g.refusal, g.told = &refused{}, map[vgpu.UID]bool{"uid-train-0": true, "uid-train-1": true}
		}, []string{all[0], all[2]}},
		{"it has a plan", func(g *group) {
			for _, uid := range []vgpu.UID{"uid-train-0", "uid-train-1", "uid-train-2"} {
				g.places[uid] = place{}
			}
		}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "train"}
			a := &activator{}
			p := &Plugin{
				handle: a, state: newState(now), now: func() time.Time { return now },
				gangs: &known{gang: &podgroup.Gang{Ref: ref, MinCount: 3, Members: members("train", 3, 3, 10)}},
			}
			tc.set(p.state.group(ref))
			p.changed(ref)
			if !slices.Equal(a.names, tc.want) {
				t.Errorf("tried are %v, want %v", a.names, tc.want)
			}
		})
	}
}

// A member whose bind is in doubt is planned where it may be, and elsewhere only where the gang has no place else.
func TestDoubtfulMembersArePlannedWhereTheyMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.RefuseBinds(func(string) error { return errors.New("no answer") })
		c.Create(members("train", 2, 2, 10)...)
		c.Await("both binds are in doubt", func() bool { return c.plugin.shares().Doubts() == 2 })
		want := map[string]string{}
		for _, p := range c.Pods() {
			for _, a := range c.plugin.shares().Unresolved(uidOf(&p)) {
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
func (c *cluster) activate(pods ...*v1.Pod) {
	for _, p := range pods {
		c.plugin.handle.Activate(klog.Background(), map[string]*v1.Pod{pathOf(p): p})
	}
}

var inPause = regexp.MustCompile(`planned again in \d+h`)

// The member that has the gang planned where binds in doubt may have put it has the others tried, too.
func TestDoubtfulMembersAreTriedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.RefuseBinds(func(string) error { return errors.New("no answer") })
		train := members("train", 2, 2, 10)
		c.Create(train...)
		c.Await("both binds are in doubt", func() bool { return c.plugin.shares().Doubts() == 2 })
		c.RefuseBinds(nil)
		ref, _ := c.plugin.gangs.Of(train[0])
		pause := func(until time.Time) {
			c.plugin.state.mu.Lock()
			defer c.plugin.state.mu.Unlock()
			g := c.plugin.state.gangs[ref]
			g.retry, g.repairs = until, map[vgpu.UID]repair{}
		}
		pause(c.Clock.Now().Add(1000 * time.Hour))
		c.Await("both are refused for the pause", func() bool {
			c.activate(train...)
			return !slices.ContainsFunc(c.Pods(), func(p v1.Pod) bool { return !inPause.MatchString(fakecluster.Message(&p)) })
		})
		pause(time.Time{}) // it is over, and no step of Run has seen that
		c.activate(train[1])
		c.AwaitBound("train", 2)
	})
}
