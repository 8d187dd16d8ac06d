package gpugang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// crowded returns a cluster of nodes with one GPU each, on each of which is a pod small-I, and gang "large" of the priority 10
// that waits for two.
func crowded(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := newCluster(t, slices.Repeat([]int{1}, nodes)...)
	for i := range nodes {
		c.Create(pod("small-"+string(rune('0'+i)), 10))
	}
	c.AwaitBound("small", nodes)
	c.Create(important(members("large", 2, 2, 10)...)...)
	c.AwaitMessage("large-0", "needs 2")
	c.AwaitMessage("large-1", "needs 2")
	return c
}

// wanted returns what gang "large" wants.
func (c *cluster) wanted() *podgroup.RoomRequest {
	c.T.Helper()
	pg, err := c.plugin.gangs.Gang(largeRef)
	must.OK(c.T, err)
	w := &podgroup.RoomRequest{Gang: pg, Group: &gang.Group{Name: largeRef.String(), MinCount: pg.MinCount}, Pods: pg.Members, Unbound: pg.MinCount}
	for i, m := range pg.Members {
		r, err := c.plugin.shares().Request(m)
		must.OK(c.T, err)
		w.Group.Members = append(w.Group.Members, gang.Member{Request: r, Rank: i})
	}
	return w
}

var largeRef = podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "large"}

// keep has room kept for gang "large" on nodes, whose pods leave for it.
func (c *cluster) keep(nodes ...string) {
	c.T.Helper()
	w := c.wanted()
	made := reservation.Made{
		Places: map[vgpu.UID]reservation.Place{}, Victims: map[vgpu.UID]reservation.Victim{}, Lacking: w.MinCount, Unbound: w.Unbound,
		Until: c.Clock.Now().Add(30 * time.Second),
	}
	for i, node := range nodes {
		a, refusal := placement.Assign(c.emptyNode(node), &w.Group.Members[i].Request, placement.Policy{})
		if refusal != nil {
			c.T.Fatal(refusal)
		}
		made.Places[a.UID] = reservation.Place{Assignment: a, Host: w.Group.Members[i].Request.Host, Pinned: true}
		name := c.on(node)
		for _, p := range c.Pods() {
			if p.Name == name {
				made.Victims[kube.UIDOf(&p)] = reservation.Victim{Pod: kube.PathOf(&p), Node: p.Spec.NodeName}
			}
		}
	}
	if a := c.step(largeRef, func(f reservation.Facts) reservation.Event { return reservation.RoomMade{Gang: f, Room: made} }); a.Refuse != nil {
		c.T.Fatal(a.Refuse.Why)
	}
}

func (c *cluster) emptyNode(name string) *vgpu.Node {
	c.T.Helper()
	for _, p := range c.shares.Published() {
		if p.Name == name {
			return p.Ledger.Without(func(*vgpu.Hold, bool) bool { return true })
		}
	}
	c.T.Fatalf("nothing is known of node %s", name)
	return nil
}

// keptFor returns the nodes where room is held for pods whose names begin with a prefix.
func (c *cluster) keptFor(prefix string) []string {
	c.T.Helper()
	var nodes []string
	for _, p := range c.Pods() {
		if h, held := c.plugin.shares().Held(kube.UIDOf(&p)); held && strings.HasPrefix(p.Name, prefix) {
			nodes = append(nodes, h.Node)
		}
	}
	return nodes
}

// hasRoom reports whether preemption makes room for gang "large".
func (c *cluster) hasRoom() bool {
	_, need := c.phase("large")
	return need == reservation.Preempting
}

// The room of the victims goes to the gang, although others of a lower priority ask for it first and it comes node by node.
func TestRoomGoesToTheGang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 3)
		c.keep("n2", "n3")
		if got := c.keptFor("large"); !slices.Equal(got, []string{"n2", "n3"}) {
			t.Fatalf("room is kept on %v", got)
		}
		rush := important(pod("rush", 10))
		*rush[0].Spec.Priority, rush[0].Spec.PreemptionPolicy = 9, new(v1.PreemptionPolicy)
		*rush[0].Spec.PreemptionPolicy = v1.PreemptNever
		c.Create(rush...)
		c.AwaitMessage("rush", "free share is 0")
		c.Remove(c.on("n2"))
		c.AwaitMessage("large-0", "room is made for it: 2 pods")
		c.checkWhole("large", 2)
		if !c.hasRoom() {
			t.Error("the room ended with the first victim")
		}
		c.Remove(c.on("n3"))
		nodes := c.AwaitBound("large", 2)
		if nodes["large-0"] == "n1" || nodes["large-1"] == "n1" || len(c.Bound("rush")) != 0 {
			t.Errorf("the gang is on %v, the others on %v", nodes, c.Bound("rush"))
		}
		c.Await("the room has ended", func() bool { return !c.hasRoom() })
	})
}

// The members are nominated for the nodes where room is made, and for none when it ends.
func TestRoomNominates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 2)
		c.keep("n1", "n2")
		c.plugin.machine.Expect(t.Context(), largeRef, c.wanted().Pods)
		nominated := func(node string) bool { return len(c.plugin.handle.NominatedPodsForNode(node)) == 1 }
		if !nominated("n1") || !nominated("n2") {
			t.Error("a member is not nominated")
		}
		c.Clock.Pass(time.Second)
		c.plugin.Tick(t.Context())
		if !nominated("n1") || !nominated("n2") {
			t.Error("the nominations are gone although the room is kept")
		}
		c.giveUp(largeRef)
		if nominated("n1") || nominated("n2") {
			t.Error("the nominations stay although the room is given up")
		}
	})
}

// Room ends when the gang it is kept for changes, is gone, when a device is lost, and when the victims stay for too long.
func TestRoomEnds(t *testing.T) {
	tests := []struct {
		name string
		do   func(c *cluster)
		// the room was kept in vain: the gang waits longer before room is made for it again.
		dry bool
	}{
		{name: "a member is gone", do: func(c *cluster) { c.Remove("large-1") }},
		{name: "the gang is gone", do: func(c *cluster) { c.Remove("large-0"); c.Remove("large-1") }},
		{name: "a member comes that must run", do: func(c *cluster) {
			for _, p := range c.Pods() {
				if strings.HasPrefix(p.Name, "large") {
					p.Annotations = members("large", 2, 3, 10)[0].Annotations
					c.update(&p)
				}
			}
			c.Create(important(members("large", 3, 3, 10)[2:]...)...)
		}},
		{name: "the members contradict each other", do: func(c *cluster) {
			p := important(members("large", 3, 2, 5)...)[2]
			*p.Spec.Priority = 11
			c.Create(p)
		}},
		{name: "it is given up", do: func(c *cluster) { c.giveUp(largeRef) }},
		{name: "a device is sick", do: func(c *cluster) { c.MakeSick("n2"); c.try(largeRef) }, dry: true},
		{name: "the victims stay", do: func(c *cluster) { c.Clock.Pass(6 * time.Minute) }, dry: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := crowded(t, 2)
				c.keep("n1", "n2")
				test.do(c)
				c.Await("no room is kept", func() bool { return !c.hasRoom() && len(c.keptFor("large")) == 0 })
				asked := c.step(largeRef, func(reservation.Facts) reservation.Event { return reservation.RoomWanted{Ref: largeRef} })
				if dry := asked.Refuse != nil && strings.Contains(asked.Refuse.Why, "came to nothing"); dry != test.dry {
					t.Errorf("that the room came to nothing is noted: %v", dry)
				}
			})
		})
	}
}

func (c *cluster) update(p *v1.Pod) {
	c.T.Helper()
	if _, err := c.Client.CoreV1().Pods(p.Namespace).Update(c.T.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

// Room that others of a higher priority take ends, though the victims have not left yet.
func TestRoomYieldsToHigherPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 2)
		c.keep("n1", "n2")
		taken, refusal := placement.Assign(c.emptyNode("n1"), &vgpu.Request{
			UID: "uid-higher", Pod: "default/higher", Containers: c.wanted().Group.Members[0].Request.Containers,
		}, placement.Policy{})
		if refusal != nil {
			t.Fatal(refusal)
		}
		must.OK(t, c.shares.Hold(vgpu.Hold{Assignment: taken, Priority: 11}))
		c.try(largeRef)
		c.Await("no room is kept", func() bool { return !c.hasRoom() })
	})
}

// A gang whose victims are gone is tried at each step until it has their room: the scheduler may not have seen yet that they are, and
// others may still leave it.
func TestRoomIsTriedUntilItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 2)
		c.keep("n1", "n2")
		p := c.plugin
		p.machine.Lock(func(l machine.Locked) {
			victims := l.State.MadeRoom(largeRef).Victims
			for uid, v := range victims {
				victims[uid] = reservation.Victim{Pod: "default/gone", Node: v.Node} // to the informer, while the scheduler has them on their nodes
			}
		})
		for step := range 3 {
			before := c.attempts()
			c.Clock.Pass(time.Second)
			p.Tick(t.Context())
			c.Await(fmt.Sprintf("the gang is tried at step %d", step), func() bool { return c.attempts() > before })
		}
	})
}

// attempts returns how often the scheduler tried to plan a gang.
func (c *cluster) attempts() float64 {
	c.T.Helper()
	value, err := testutil.GetCounterMetricValue(c.plugin.metrics.attempts)
	must.OK(c.T, err)
	return value
}

// Room is kept for as many members as the informer's store says, although the gang's copy of a member is behind it.
func TestLackingGoesByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.Create(members("ran", 2, 2, 10)...)
		c.AwaitBound("ran", 2)
		ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "ran"}
		lacking := func(pg *podgroup.Gang) (lacking int) {
			c.plugin.machine.Lock(func(l machine.Locked) {
				f := l.Latest(ref, pg, nil)
				lacking = f.MinCount - l.State.Bound(&f)
			})
			return lacking
		}
		var before *podgroup.Gang
		placed := func() (count int) {
			c.plugin.machine.Lock(func(l machine.Locked) { l.State.Planned(ref, func(reservation.Place) { count++ }) })
			return count
		}
		c.Await("both are seen to be bound, and neither has a place from its plan any more", func() bool {
			before, _ = c.plugin.gangs.Gang(ref)
			return before != nil && lacking(before) == 0 && placed() == 0
		})
		c.Remove("ran-1")
		c.Await("the store has one member less", func() bool { return c.plugin.machine.Seen("uid-ran-1", "default/ran-1") == nil })
		if got := lacking(before); got != 1 {
			t.Errorf("%d members lack a place, want 1", got)
		}
	})
}
