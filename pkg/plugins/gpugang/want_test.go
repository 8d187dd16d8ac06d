package gpugang

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Least counts on members that are bound only, and wants gangs whole of which it does not know better.
// No room is made for a gang that the scheduler tries in one cycle while too few of its members can be tried, and made for one
// whose members are tried one by one: they wait for each other.
func TestWantOfPausedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		c.Create(members("ran", 3, 2, 10)...)
		c.AwaitBound("ran", 3)
		ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "waits"}
		pods := members("waits", 3, 2, 10)
		bound := c.Pods()
		for _, tc := range []struct {
			grouped              bool
			min, running, paused int
			want                 string
		}{
			{true, 2, 0, 0, ""}, {true, 2, 0, 1, ""},
			{true, 2, 0, 2, "none before member waits-0 is tried again in 1s, since its last bind failed"},
			{true, 2, 1, 2, ""}, {true, 4, 2, 1, ""},
			{true, 4, 2, 2, "none before member waits-0 is tried again in 1s, since its last bind failed"},
			{true, 9, 0, 0, ""}, // whatever it waits for, it is no pause
			{false, 2, 0, 2, ""},
		} {
			cs := framework.NewCycleState()
			gang := &podgroup.Gang{Ref: ref, MinCount: tc.min}
			for i := range tc.running {
				gang.Members = append(gang.Members, &bound[i])
			}
			cs.Write(wantKey, &want{Want: podgroup.Want{Gang: gang, Pods: pods}, grouped: tc.grouped})
			c.failed(ref, pods, tc.paused)
			if w, why := c.plugin.Want(cs, ref); why != tc.want || (w != nil) != (tc.want == "") {
				t.Errorf("%+v: wants %v, %q", tc, w != nil, why)
			}
		}
	})
}

// failed has the binds of the first members of a gang fail a moment ago, and the gang lose its plan.
func (c *cluster) failed(ref podgroup.Ref, pods []*v1.Pod, count int) {
	c.T.Helper()
	f := reservation.Facts{Ref: ref}
	take := func(e reservation.Event) answer {
		return c.plugin.with(func(*reservation.State) reservation.Event { return e })
	}
	take(reservation.Changed{Gang: f}) // it is forgotten
	f.MinCount = len(pods)
	for _, p := range pods {
		f.Members = append(f.Members, memberOf(p))
	}
	asked := take(reservation.Tried{Gang: f, UID: uidOf(pods[0])})
	found := reservation.PlanFound{Gang: f, UID: uidOf(pods[0]), Version: asked.plan.Version}
	for _, p := range pods {
		found.Places = append(found.Places, reservation.Place{Assignment: vgpu.Assignment{UID: uidOf(p), Pod: pathOf(p), Node: "n1"}})
	}
	take(found)
	for _, p := range pods {
		take(reservation.Reserved{Ref: ref, UID: uidOf(p)})
	}
	take(reservation.Permitted{Gang: f, UID: uidOf(pods[0])})
	for _, p := range pods[:count] {
		take(reservation.Unreserved{Gang: f, UID: uidOf(p), Pod: pathOf(p)})
	}
	f.Problem = &reservation.Problem{Message: "a test says so"}
	take(reservation.Changed{Gang: f})
}

// A gang whose wishes contradict each other goes whole, although its least number is known.
func TestLeastOfMalformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		c.Create(members("ran", 3, 2, 10)...)
		c.AwaitBound("ran", 3)
		ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "ran"}
		for _, p := range c.Pods() {
			p.Annotations[v1alpha1.AnnotationRequiredTopology] = v1.LabelHostname
			p.Annotations[v1alpha1.AnnotationPreferredTopology] = v1.LabelHostname
			c.update(&p)
		}
		c.Await("all members are seen to have the same wishes", func() bool {
			pg, err := c.plugin.gangs.Gang(ref)
			return pg != nil && pg.MinCount == 2 && err != nil
		})
		if got := c.plugin.Least(ref); got != reservation.OnlyWhole {
			t.Errorf("%d must stay", got)
		}
	})
}

// A gang is torn where fewer of its members are bound and stay than must run, and some do.
func TestTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		ran := members("ran", 3, 2, 10)
		c.Create(ran...)
		c.AwaitBound("ran", 3)
		ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "ran"}
		leaving := map[vgpu.UID]bool{}
		torn := func() bool { return c.plugin.Torn(ref, func(uid vgpu.UID) bool { return leaving[uid] }) }
		c.Await("all are seen to be bound", func() bool {
			pg, _ := c.plugin.gangs.Gang(ref)
			return pg != nil && !slices.ContainsFunc(pg.Members, func(m *v1.Pod) bool { return m.Spec.NodeName == "" })
		})
		for i, want := range []bool{false, true, false} { // two, one, and none stay
			if leaving[uidOf(ran[i])] = true; torn() != want {
				t.Errorf("a gang of three of which %d leave is torn: %v", i+1, !want)
			}
		}
		delete(leaving, uidOf(ran[0]))
		delete(leaving, uidOf(ran[1]))
		late := members("ran", 4, 2, 80)[3] // fits nowhere
		c.Create(late)
		c.Remove("ran-1")
		c.Await("one of the gang stays", torn)
		c.plugin.PostBind(t.Context(), nil, late, "n1")
		if torn() {
			t.Error("a member whose Binding succeeded does not count")
		}
		c.Create(members("ran", 5, 3, 10)[4])
		c.Await("nobody knows how many must run", torn)
		if ref.Name = "gone"; torn() {
			t.Error("a gang that is gone is torn")
		}
	})
}

// Members that were not let go are taken back together, and those that are bound or about to be are not.
func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 1)
		ran, large := members("ran", 1, 1, 0)[0], c.leader()
		c.Create(ran)
		c.AwaitBound("ran", 1)
		for _, p := range []*v1.Pod{ran, pod("small-0", 10), pod("gone", 5)} {
			if c.plugin.Withdraw(p) {
				t.Errorf("pod %s was taken back", p.Name)
			}
		}
		if !c.plugin.Withdraw(large) {
			t.Error("a member that has no place is to be evicted")
		}
		waiting := c.gated("waiting", 2, 2)
		c.planned(waiting, 2, vgpu.Room{})
		if !c.plugin.Withdraw(waiting[0]) {
			t.Error("a member that may not be bound yet was not taken back")
		}
		if phase, _ := c.phase("waiting"); phase != reservation.Unplaced {
			t.Errorf("the gang of which a member was taken back is %v", phase)
		}
		binding := c.gated("binding", 2, 2)
		c.planned(binding, 2, vgpu.Room{})
		c.plugin.Permit(t.Context(), framework.NewCycleState(), binding[0], "n1")
		if c.plugin.Withdraw(binding[0]) {
			t.Error("a member was taken back that is being bound")
		}
	})
}

// While all members that have a place are being evicted no other gets one, until they are ending, and where nobody evicts them
// for a while only.
func TestDoom(t *testing.T) {
	tests := []struct {
		name string
		do   func(c *cluster)
	}{
		{"the eviction begins", func(c *cluster) { c.Remove("ran-0"); c.Remove("ran-1") }},
		{"the eviction does not begin", func(c *cluster) { c.Clock.Pass(31 * time.Second) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 4)
				ran := members("ran", 3, 1, 10)
				c.Create(ran[:2]...)
				c.AwaitBound("ran", 2)
				c.plugin.Doom(ran[:2])
				c.Create(ran[2])
				c.AwaitMessage("ran-2", "are being evicted")
				test.do(c)
				c.Await("the other member is bound", func() bool { return c.Bound("ran-2")["ran-2"] != "" })
			})
		})
	}
}
