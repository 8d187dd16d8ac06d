package gpugang

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// reservedGang writes down a plan for gated members, all of their gang, of which the first ones are reserved.
func (c *cluster) reservedGang(pods []*v1.Pod, reserved int, letGo time.Time) *group {
	c.T.Helper()
	c.plugin.state.mu.Lock()
	defer c.plugin.state.mu.Unlock()
	ref, _ := c.plugin.gangs.Of(pods[0])
	g := c.plugin.state.group(ref)
	g.forget()
	g.made, g.letGo = c.Clock.Now(), letGo
	for i, p := range pods {
		g.places[uidOf(p)] = place{Assignment: vgpu.Assignment{UID: uidOf(p), Node: "n1"}, pinned: true}
		if i < reserved {
			g.reserved[uidOf(p)] = true
		}
	}
	return g
}

// What fails for one member before the members are let go ends the plan of all, and after that keeps the member's place.
func TestUnreserve(t *testing.T) {
	tests := []struct {
		name                     string
		letGo, bound, unreserved bool
		places, repairs          int
	}{
		{name: "before the members are let go"},
		{name: "after that", letGo: true, bound: true, places: 3, repairs: 1},
		{name: "after that, another is on its way", letGo: true, places: 3, repairs: 1},
		{name: "a member that was not reserved", unreserved: true, places: 3},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2)
				pods := c.gated("train", 3, 3)
				at, reserved := time.Time{}, 2
				if tc.letGo {
					at = c.Clock.Now()
				}
				if tc.bound || tc.unreserved {
					reserved = 1
				}
				g := c.reservedGang(pods, reserved, at)
				failing := pods[0]
				if tc.unreserved {
					failing = pods[1]
				}
				c.plugin.state.mu.Lock()
				g.bound[uidOf(pods[1])] = tc.bound
				c.plugin.state.mu.Unlock()
				c.plugin.Unreserve(t.Context(), framework.NewCycleState(), failing, "n1")
				c.plugin.state.mu.Lock()
				defer c.plugin.state.mu.Unlock()
				if len(g.places) != tc.places || len(g.repairs) != tc.repairs {
					t.Errorf("%d places and %d repairs are left, want %d and %d", len(g.places), len(g.repairs), tc.places, tc.repairs)
				}
				if pauses := !g.repairs[uidOf(failing)].at.IsZero(); pauses != (tc.repairs > 0) {
					t.Errorf("the member pauses: %v, want %v", pauses, tc.repairs > 0)
				}
			})
		})
	}
}

// Where no member of those that were let go is bound or on its way, the gang starts over as a whole.
func TestUnreserveOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := c.gated("train", 3, 3)
		g := c.reservedGang(pods, 1, c.Clock.Now())
		c.plugin.state.mu.Lock()
		gate := g.gate
		c.plugin.state.mu.Unlock()
		c.plugin.Unreserve(t.Context(), framework.NewCycleState(), pods[0], "n1")
		c.plugin.state.mu.Lock()
		defer c.plugin.state.mu.Unlock()
		if g.planned() || !g.letGo.IsZero() || !g.retry.After(c.Clock.Now()) {
			t.Errorf("planned %v, let go %v, tried again %v, want a gang without a plan that pauses", g.planned(), g.letGo, g.retry)
		}
		select {
		case <-gate:
		default:
			t.Error("members that wait in Bind are not let go on")
		}
	})
}

// Members wait longer than the placement deadline, so that the plan is cancelled first, which says why.
func TestPermitOutlastsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := c.gated("train", 3, 3)
		c.reservedGang(pods, 1, time.Time{})
		status, wait := c.plugin.Permit(t.Context(), framework.NewCycleState(), pods[0], "n1")
		if least := c.args.PlacementDeadline.Duration + 2*step; !status.IsWait() || wait < least {
			t.Errorf("Permit = %v for %v, want Wait for %v at least: deadlines are looked at every %v", status, wait, least, step)
		}
	})
}

// What members that come back from Permit are told differs each time: the change of their condition brings back what the queue lost.
func TestRejectionsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := c.gated("train", 3, 3)
		told := map[string]bool{}
		for plans := 1; plans <= 3; plans++ {
			g := c.reservedGang(pods, 2, time.Time{})
			c.plugin.state.mu.Lock()
			told[g.rejection("a test says so")] = true
			c.plugin.cancel(g, "a test says so")
			c.plugin.state.mu.Unlock()
			if len(told) != plans {
				t.Errorf("after %d plans members were told %v", plans, slices.Sorted(maps.Keys(told)))
			}
		}
	})
}

// lobby is a Handle of pods that wait in Permit, which notes those that are sent back.
type lobby struct {
	fwk.Handle
	sentBack []types.UID
}

type guest struct {
	fwk.WaitingPod
	uid types.UID
	at  *lobby
}

func (l *lobby) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if uid == "uid-train-2" {
		return nil
	}
	return &guest{uid: uid, at: l}
}

func (g *guest) Reject(string, string) bool {
	g.at.sentBack = append(g.at.sentBack, g.uid)
	return true
}

// A member that waits for nothing is sent back: its plan was given up before the framework knew that it waits.
func TestMembersDoNotWaitForNothing(t *testing.T) {
	l := &lobby{}
	p := &Plugin{handle: l, state: newState(time.Unix(1e9, 0))}
	ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "train"}
	g := p.state.group(ref)
	pods := members("train", 4, 4, 10)
	g.reserved[uidOf(pods[0])] = true
	pods[3].Spec.NodeName = "n1"
	p.sendBack(g, &podgroup.Gang{Ref: ref, Members: pods})
	if want := []types.UID{"uid-train-1"}; !slices.Equal(l.sentBack, want) {
		t.Errorf("sent back are %v, want %v: the one that waits and is not reserved", l.sentBack, want)
	}
}

// awaited tells when somebody is about to wait for its end.
type awaited struct {
	context.Context
	once sync.Once
	by   chan struct{}
}

// Done is the context's.
func (a *awaited) Done() <-chan struct{} {
	a.once.Do(func() { close(a.by) })
	return a.Context.Done()
}

// Members of a native gang wait in Bind: those whose plan ends there are not bound, those that are let go are.
func TestBindWaitsForTheGate(t *testing.T) {
	for _, end := range []string{"cancelled", "let go"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2)
				pods := c.gated("train", 3, 3)
				g := c.reservedGang(pods, 2, time.Time{})
				result := make(chan *fwk.Status, 1)
				ctx := &awaited{Context: t.Context(), by: make(chan struct{})}
				go func() { result <- c.plugin.Bind(ctx, framework.NewCycleState(), pods[0], "n1") }()
				select {
				case <-ctx.by: // it knows the gate
				case status := <-result:
					t.Fatalf("Bind = %v, and did not wait", status)
				}
				c.plugin.state.mu.Lock()
				if end == "cancelled" {
					c.plugin.cancel(g, "a test says so")
				} else {
					pg, _ := c.plugin.gangs.Gang(g.Ref)
					c.plugin.letGo(g, pg)
				}
				c.plugin.state.mu.Unlock()
				if status := <-result; status.IsSkip() != (end == "let go") {
					t.Errorf("Bind = %v of a gang that was %s", status, end)
				}
			})
		})
	}
}

// A Binding that succeeded counts before the informer shows it.
func TestPostBindCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := c.gated("train", 3, 3)
		g := c.reservedGang(pods, 2, c.Clock.Now())
		c.plugin.PostBind(t.Context(), framework.NewCycleState(), pods[0], "n1")
		c.plugin.state.mu.Lock()
		defer c.plugin.state.mu.Unlock()
		pg, _ := c.plugin.gangs.Gang(g.Ref)
		if bound := c.plugin.boundOf(g, pg); bound != 1 || g.reserved[uidOf(pods[0])] || !g.reserved[uidOf(pods[1])] || g.started {
			t.Errorf("%d are bound, %v are on their way, started %v, want 1, the other, and false", bound, g.reserved, g.started)
		}
		// One that is being deleted does not count.
		leaving := *pg
		leaving.Members = []*v1.Pod{pods[0].DeepCopy()}
		leaving.Members[0].DeletionTimestamp = &metav1.Time{Time: c.Clock.Now()}
		if bound := c.plugin.boundOf(g, &leaving); bound != 0 {
			t.Errorf("%d are bound, and the only one is being deleted", bound)
		}
	})
}

func TestReserveWithoutAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		p := c.incomplete("train", 3)[0]
		if status := c.plugin.Reserve(t.Context(), framework.NewCycleState(), p, "n1"); status.Code() != fwk.Unschedulable {
			t.Errorf("Reserve = %v of a member without a place, want Unschedulable", status)
		}
	})
}

func TestFilter(t *testing.T) {
	node := framework.NewNodeInfo()
	node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{rack: "r1"}}})
	tests := []struct {
		name string
		at   *place
		want fwk.Code
	}{
		{"a pod of no gang", nil, fwk.Success},
		{"the planned node", &place{Assignment: vgpu.Assignment{Node: "n1"}, pinned: true}, fwk.Success},
		{"another node", &place{Assignment: vgpu.Assignment{Node: "n2"}, pinned: true}, fwk.UnschedulableAndUnresolvable},
		{"another node, not pinned", &place{Assignment: vgpu.Assignment{Node: "n2"}}, fwk.Success},
		{"in the required domain", &place{within: map[string]string{rack: "r1"}}, fwk.Success},
		{"outside of it", &place{within: map[string]string{rack: "r2"}}, fwk.UnschedulableAndUnresolvable},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cs := framework.NewCycleState()
			if tc.at != nil {
				cs.Write(placeKey, tc.at)
			}
			if status := (&Plugin{}).Filter(t.Context(), cs, pod("a", 1), node); status.Code() != tc.want {
				t.Errorf("Filter = %v, want code %v", status, tc.want)
			}
		})
	}
}

// A member that another plugin refuses after its siblings were let go pauses with its gang, and loses its place alone.
func TestRefusedAfterTheOthersWereLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := c.gated("train", 3, 3)
		g := c.reservedGang(pods, 1, c.Clock.Now())
		cs := framework.NewCycleState()
		cs.Write(placeKey, &place{Assignment: vgpu.Assignment{Node: "n1"}, pinned: true})
		_, status := c.plugin.PostFilter(t.Context(), cs, pods[1], framework.NewDefaultNodeToStatus())
		c.plugin.state.mu.Lock()
		defer c.plugin.state.mu.Unlock()
		if _, capped := g.capped["n1"]; !capped || !g.retry.After(c.Clock.Now()) || len(g.places) != 2 || status.Code() != fwk.UnschedulableAndUnresolvable {
			t.Errorf("PostFilter = %v, capped %v, tried again %v, %d places, want a cap, a pause and the siblings' places", status, g.capped, g.retry, len(g.places))
		}
		if until := g.capped["n1"].until; !until.After(g.retry.Add(capFor / 2)) {
			t.Errorf("the cap ends at %v, the pause at %v: the same plan would be made", until, g.retry)
		}
	})
}

// Room that is given up is for the gangs that wait for room.
func TestEndOfADrainStirsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.plugin.state.mu.Lock()
		defer c.plugin.state.mu.Unlock()
		s := c.plugin.state
		ref := func(name string) podgroup.Ref {
			return podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: name}
		}
		draining, waiting, hopeless := s.group(ref("draining")), s.group(ref("waiting")), s.group(ref("hopeless"))
		waiting.refusal, hopeless.refusal = &refused{kind: gang.NoRoom}, &refused{kind: gang.NeverFits}
		s.drain = draining.Ref
		c.plugin.endDrain(draining)
		if waiting.retry.IsZero() || !hopeless.retry.IsZero() || s.drain != (podgroup.Ref{}) {
			t.Errorf("tried again: %v, and %v that never fits; draining %v", waiting.retry, hopeless.retry, s.drain)
		}
	})
}

// A plan leaves to the members of other plans the CPU that they will use and do not use yet.
func TestPlansLeaveHostsToEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		others := c.gated("others", 2, 2)
		g := c.reservedGang(others, 1, c.Clock.Now()) // the first is in the snapshot, the second is not
		c.plugin.state.mu.Lock()
		for uid, at := range g.places {
			at.host = vgpu.Room{MilliCPU: 31000}
			g.places[uid] = at
		}
		c.plugin.state.mu.Unlock()
		asking := func(name, cpu string) *v1.Pod {
			p := members(name, 1, 1, 10)[0]
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
			return p
		}
		c.Create(asking("large", "34"))
		c.AwaitMessage("large", "Insufficient cpu")
		c.Create(asking("small", "32"))
		c.AwaitBound("small", 1)
	})
}
