package gpushare

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// sight is what the plugin knows of one node between two scheduling cycles. A cycle computes the occupancy of a node when it
// first sees a change: without a pod to place, what it computed last is old, and after a start there is none.
type sight struct {
	name, problem string
	last          *occupancy
	// empty is the node without owners, nil where it has no devices.
	empty *vgpu.Node
	// current says that last is of the present epoch. Else reserved and holds are what the plugin keeps in memory.
	current  bool
	reserved []vgpu.Assignment
	holds    []vgpu.Hold
}

// sight looks at a node. It holds the lock for the time of one node only.
func (s *state) sight(n *node) sight {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v := sight{name: n.name, last: n.cached.Load(), empty: n.empty, problem: cmp.Or(n.problem, n.pause.problem())}
	if v.last != nil {
		v.problem, v.current = n.problemWith(v.last.offered), v.last.epoch == n.epoch
	}
	if v.current {
		return v
	}
	for _, uid := range slices.Sorted(maps.Keys(n.reserved)) {
		v.reserved = append(v.reserved, s.reservations[uid])
	}
	for _, uid := range slices.Sorted(maps.Keys(n.unresolved)) {
		v.holds = append(v.holds, vgpu.Hold{Assignment: n.unresolved[uid].Assignment, Priority: unresolvedPriority})
	}
	for _, uid := range slices.Sorted(maps.Keys(n.held)) {
		if _, unresolved := n.unresolved[uid]; !unresolved {
			v.holds = append(v.holds, s.holds[uid])
		}
	}
	return v
}

// ledger returns who has which share of the node now, nil where it has no devices: what the last cycle computed, without the
// pods that are gone and with those that the informer shows by now. Pods are those with a node by the informer; waits reports
// whether a pod exists that has none. The result is not modified later.
func (v *sight) ledger(pods map[vgpu.UID]*v1.Pod, waits func(*vgpu.Assignment) bool) *vgpu.Node {
	if v.empty == nil {
		return nil
	}
	stays := func(a *vgpu.Assignment) bool { return pods[a.UID] != nil || waits(a) }
	if v.current && v.holdsAll(pods, stays) {
		return v.last.ledger
	}
	n := v.base()
	for _, a := range n.Assignments() {
		if !stays(&a) {
			n.Remove(a.UID)
		}
	}
	booked := map[vgpu.UID]bool{}
	n.Each(func(a *vgpu.Assignment) { booked[a.UID] = true })
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		if booked[uid] {
			continue
		}
		if a, err := kube.AssignmentOf(pods[uid]); err == nil {
			_ = n.Add(a) // what does not fit is a stray pod for the next cycle
		}
	}
	return n
}

// holdsAll reports whether the last ledger has the pods that it should have. Strays have no assignment in any ledger.
func (v *sight) holdsAll(pods map[vgpu.UID]*v1.Pod, stays func(*vgpu.Assignment) bool) bool {
	all, found := true, 0
	v.last.ledger.Each(func(a *vgpu.Assignment) {
		all = all && stays(a)
		if pods[a.UID] != nil {
			found++
		}
	})
	return all && found+len(v.last.strays) >= len(pods)
}

// base returns a ledger of the node's present devices with the assignments and holds that the plugin knows.
func (v *sight) base() *vgpu.Node {
	if v.current {
		return v.last.ledger.Clone()
	}
	n := v.empty.Clone()
	for _, a := range v.reserved {
		_ = n.Add(a) // devices may have changed since
	}
	if v.last != nil && v.last.ledger != nil {
		v.last.ledger.Each(func(a *vgpu.Assignment) { _ = n.Add(*a) }) // one that is reserved is there already
		n.SetRoom(v.last.ledger.Room())
	}
	for _, h := range v.holds {
		_ = n.Hold(h)
	}
	return n
}
