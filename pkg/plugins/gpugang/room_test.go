package gpugang

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
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
func (c *cluster) wanted() *podgroup.Want {
	c.T.Helper()
	pg, err := c.plugin.gangs.Gang(largeRef)
	if err != nil {
		c.T.Fatal(err)
	}
	w := &podgroup.Want{Gang: pg, Group: &gang.Group{Name: largeRef.String(), MinCount: pg.MinCount}, Pods: pg.Members, Unbound: pg.MinCount}
	for i, m := range pg.Members {
		r, err := c.plugin.shares().Request(m)
		if err != nil {
			c.T.Fatal(err)
		}
		w.Group.Members = append(w.Group.Members, gang.Member{Request: r, Rank: i})
	}
	return w
}

var largeRef = podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "large"}

// keep has room kept for gang "large" on nodes, whose pods leave for it. It returns how often it was told that the room ended.
func (c *cluster) keep(nodes ...string) *int {
	c.T.Helper()
	w, ended := c.wanted(), new(int)
	places := make([]vgpu.Assignment, len(w.Group.Members))
	var victims []*v1.Pod
	for i, node := range nodes {
		a, refusal := placement.Assign(c.emptyNode(node), &w.Group.Members[i].Request, placement.Policy{})
		if refusal != nil {
			c.T.Fatal(refusal)
		}
		places[i] = a
		name := c.on(node)
		for _, p := range c.Pods() {
			if p.Name == name {
				victims = append(victims, &p)
			}
		}
	}
	if err := c.plugin.Keep(w, places, victims, func() { *ended++ }); err != nil {
		c.T.Fatal(err)
	}
	return ended
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
		if h, held := c.plugin.shares().Held(uidOf(&p)); held && strings.HasPrefix(p.Name, prefix) {
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
		ended := c.keep("n2", "n3")
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
		if *ended != 0 {
			t.Error("the room ended with the first victim")
		}
		c.Remove(c.on("n3"))
		nodes := c.AwaitBound("large", 2)
		if nodes["large-0"] == "n1" || nodes["large-1"] == "n1" || len(c.Bound("rush")) != 0 {
			t.Errorf("the gang is on %v, the others on %v", nodes, c.Bound("rush"))
		}
		c.Await("the room has ended", func() bool { return !c.hasRoom() })
		if *ended != 1 {
			t.Errorf("the room ended %d times", *ended)
		}
	})
}

// The members are nominated for the nodes where room is made, and for none when it ends.
func TestRoomNominates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 2)
		c.keep("n1", "n2")
		c.plugin.Nominate(t.Context(), c.wanted())
		nominated := func(node string) bool { return len(c.plugin.handle.NominatedPodsForNode(node)) == 1 }
		if !nominated("n1") || !nominated("n2") {
			t.Error("a member is not nominated")
		}
		c.Clock.Pass(time.Second)
		c.plugin.Tick(t.Context())
		if !nominated("n1") || !nominated("n2") {
			t.Error("the nominations are gone although the room is kept")
		}
		c.plugin.GiveUp(largeRef, "for a test", 0)
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
		// dry: the gang waits longer before room is made for it again.
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
		{name: "it is given up", do: func(c *cluster) { c.plugin.GiveUp(largeRef, "for a test", 0) }},
		{name: "a device is sick", do: func(c *cluster) { c.MakeSick("n2"); c.plugin.woken.add(c.leader()); c.plugin.flush(c.T.Context()) }, dry: true},
		{name: "the victims stay", do: func(c *cluster) { c.Clock.Pass(6 * time.Minute) }, dry: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := crowded(t, 2)
				ended := c.keep("n1", "n2")
				test.do(c)
				c.Await("no room is kept", func() bool { return !c.hasRoom() && len(c.keptFor("large")) == 0 })
				if *ended != 1 {
					t.Errorf("it was told %d times that the room ended", *ended)
				}
				asked := c.step(largeRef, func(reservation.Facts) reservation.Event { return reservation.RoomWanted{Ref: largeRef} })
				if dry := asked.refuse != nil && strings.Contains(asked.refuse.Why, "came to nothing"); dry != test.dry {
					t.Errorf("that the room came to nothing is noted: %v", dry)
				}
			})
		})
	}
}

// leader returns the first member of gang "large".
func (c *cluster) leader() *v1.Pod {
	c.T.Helper()
	pg, _ := c.plugin.gangs.Gang(largeRef)
	if pg == nil {
		c.T.Fatal("there is no gang")
		return nil
	}
	return pg.Members[0]
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
		if err := c.plugin.shares().Hold(vgpu.Hold{Assignment: taken, Priority: 11}); err != nil {
			t.Fatal(err)
		}
		c.plugin.woken.add(c.leader())
		c.plugin.flush(t.Context())
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
		p.read(func(s *reservation.State) {
			victims := s.MadeRoom(largeRef).Victims
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
	if err != nil {
		c.T.Fatal(err)
	}
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
			c.plugin.read(func(s *reservation.State) {
				f := c.plugin.fresh(ref, pg, nil)
				lacking = f.MinCount - s.Bound(&f)
			})
			return lacking
		}
		var before *podgroup.Gang
		placed := func() (count int) {
			c.plugin.read(func(s *reservation.State) { s.Planned(ref, func(reservation.Place) { count++ }) })
			return count
		}
		c.Await("both are seen to be bound, and neither has a place from its plan any more", func() bool {
			before, _ = c.plugin.gangs.Gang(ref)
			return before != nil && lacking(before) == 0 && placed() == 0
		})
		c.Remove("ran-1")
		c.Await("the store has one member less", func() bool { return c.plugin.seen("uid-ran-1", "default/ran-1") == nil })
		if got := lacking(before); got != 1 {
			t.Errorf("%d members lack a place, want 1", got)
		}
	})
}

// No room is kept for the number of members that lacked a place when the cycle began: another one has ended since.
func TestNoRoomForTooFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 3)
		w := c.wanted()
		w.Unbound--
		place, refusal := placement.Assign(c.emptyNode("n1"), &w.Group.Members[0].Request, placement.Policy{})
		if refusal != nil {
			t.Fatal(refusal)
		}
		err := c.plugin.Keep(w, []vgpu.Assignment{place, {}}, nil, func() { t.Error("room ended that was never kept") })
		if !errors.Is(err, podgroup.ErrChanged) {
			t.Errorf("Keep returned %v, want that the members changed", err)
		}
		if kept := c.keptFor("large"); len(kept) > 0 || c.hasRoom() {
			t.Errorf("room is kept on %v", kept)
		}
	})
}

// A gang that room is made for neither drains nor keeps others from draining.
// Room is sought again after a pause only, twice as long each time, and the gang is tried then if the pause was given.
