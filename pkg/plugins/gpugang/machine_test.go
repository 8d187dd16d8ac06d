package gpugang

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Members that may not be bound yet can be taken back, and those that are being bound cannot.
func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 1)
		large := c.wanted().Pods[0]
		withdrawable := func(p *v1.Pod) (is bool) {
			ref, _ := c.plugin.gangs.Of(p)
			c.plugin.machine.Lock(func(l machine.Locked) { is = l.State.Withdrawable(ref, kube.UIDOf(p)) })
			return is
		}
		if !withdrawable(large) {
			t.Error("a member that has no place is to be evicted")
		}
		waiting := c.gated("waiting", 2, 2)
		c.planned(waiting, 2, vgpu.Room{})
		if !withdrawable(waiting[0]) {
			t.Error("a member that may not be bound yet cannot be taken back")
		}
		c.withdraw(waiting[0])
		if phase, _ := c.phase("waiting"); phase != reservation.Unplaced {
			t.Errorf("the gang of which a member was taken back is %v", phase)
		}
		binding := c.gated("binding", 2, 2)
		c.planned(binding, 2, vgpu.Room{})
		c.plugin.Permit(t.Context(), framework.NewCycleState(), binding[0], "n1")
		if withdrawable(binding[0]) {
			t.Error("a member can be taken back that is being bound")
		}
	})
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
		c.plugin.machine.Lock(func(l machine.Locked) {
			f := l.Facts(ref)
			if got := l.State.Least(&f); got != reservation.OnlyWhole {
				t.Errorf("%d must stay", got)
			}
		})
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
		torn := func() (is bool) {
			c.plugin.machine.Lock(func(l machine.Locked) {
				f := l.Facts(ref)
				is = l.State.Torn(&f, func(uid vgpu.UID) bool { return leaving[uid] })
			})
			return is
		}
		c.Await("all are seen to be bound", func() bool {
			pg, _ := c.plugin.gangs.Gang(ref)
			return pg != nil && !slices.ContainsFunc(pg.Members, func(m *v1.Pod) bool { return m.Spec.NodeName == "" })
		})
		for i, want := range []bool{false, true, false} { // two, one, and none stay
			if leaving[kube.UIDOf(ran[i])] = true; torn() != want {
				t.Errorf("a gang of three of which %d leave is torn: %v", i+1, !want)
			}
		}
		delete(leaving, kube.UIDOf(ran[0]))
		delete(leaving, kube.UIDOf(ran[1]))
		late := members("ran", 4, 2, 80)[3] // fits nowhere
		c.Create(late)
		c.Remove("ran-1")
		c.Await("one of the gang stays", torn)
		c.plugin.PostBind(t.Context(), nil, late, "n1")
		if torn() {
			t.Error("a member whose Binding succeeded does not count")
		}
		c.Create(members("ran", 5, 3, 10)[4])
		c.Await("it is not known how many must run", torn)
		if ref.Name = "gone"; torn() {
			t.Error("a gang that is gone is torn")
		}
	})
}

// While all members that have a place are being evicted, no other member gets one. That ends when they are ending, and after a while
// in which their evictions do not begin.
func TestVacated(t *testing.T) {
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
				ref, _ := c.plugin.gangs.Of(ran[0])
				c.step(ref, func(reservation.Facts) reservation.Event {
					return reservation.Vacated{Ref: ref, Members: []vgpu.UID{kube.UIDOf(ran[0]), kube.UIDOf(ran[1])}}
				})
				c.Create(ran[2])
				c.AwaitMessage("ran-2", "are being evicted")
				test.do(c)
				c.Await("the other member is bound", func() bool { return c.Bound("ran-2")["ran-2"] != "" })
			})
		})
	}
}
