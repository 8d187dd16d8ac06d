package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// sets looks for the cheapest whole devices of one shape to clear, depth first, the cheapest first.
type sets struct {
	h *hunt
	// list has the devices that some have to leave.
	list []clearing
	// own[at] lists what the devices from at on cost by themselves, the least first: pods of no gang that are on no other.
	own [][]int64
	// over counts the steps beyond the bound.
	over int
}

// clearing is a device and what it costs to clear it alone.
type clearing struct {
	device int
	lone   Cost
	// own is the work that is lost with its own pods: those that go for no other device.
	own int64
}

// solve looks for a share of whole devices like the first of a shape, device i.
func (s *sets) solve(i int, share *vgpu.Share) {
	at := &s.h.site
	need := share.Devices
	s.list, s.over = s.list[:0], 0
	for j := i; j < len(at.shapes); j++ {
		if at.shapes[j] != at.shapes[i] || at.sick[j] {
			continue
		}
		lacks := at.lacksOn(j, share.Use())
		lacks[3], lacks[4] = 0, 0
		if lacks.met() {
			need--
		} else if cost, may := s.clear(j, lacks); may {
			s.list = append(s.list, clearing{j, cost, s.ownOf(j)})
		}
	}
	slices.SortStableFunc(s.list, func(a, b clearing) int { return cmp.Or(a.lone.Compare(b.lone), cmp.Compare(a.device, b.device)) })
	s.rank()
	s.search(0, need)
}

// ownOf adds up the work that is lost with pods of no gang that are on one device only.
func (s *sets) ownOf(device int) (lost int64) {
	for _, t := range s.h.site.takes {
		if p := &s.h.q.who.Pods[t.pod]; t.device == device && t.only && p.Gang < 0 {
			lost = vgpu.Sum(lost, p.Lost)
		}
	}
	return lost
}

// rank fills in own.
func (s *sets) rank() {
	for len(s.own) <= len(s.list) {
		s.own = append(s.own, nil)
	}
	s.own[len(s.list)] = s.own[len(s.list)][:0]
	for at := len(s.list) - 1; at >= 0; at-- {
		lost := s.list[at].own
		k, _ := slices.BinarySearch(s.own[at+1], lost)
		s.own[at] = append(append(append(s.own[at][:0], s.own[at+1][:k]...), lost), s.own[at+1][k:]...)
	}
}

// dearer reports whether so many more devices from at on cost more than the best: one of them costs as much as the last of
// the cheapest alone, and they lose at least what they have for themselves.
func (s *sets) dearer(at, more int) bool {
	best := s.h.best
	if best == nil {
		return false
	}
	if last := s.list[at+more-1].lone; last.Compare(best.cost) > 0 {
		return true
	}
	least := s.h.picked.cost
	for _, lost := range s.own[at][:more] {
		least.Lost = vgpu.Sum(least.Lost, lost)
	}
	return least.Compare(best.cost) > 0
}

// clear returns what it costs that all leave a device, and whether they may and that gives back what is lacking.
func (s *sets) clear(device int, lacks amount) (cost Cost, may bool) {
	for _, t := range s.h.site.takes {
		if t.device == device {
			lacks = lacks.minus(amountOf(t.use, vgpu.Room{}))
		}
	}
	if !lacks.met() {
		return cost, false
	}
	m := s.h.picked.mark()
	may = s.leave(device)
	cost = s.h.picked.cost
	s.h.picked.undo(m)
	return cost, may && (s.h.best == nil || cost.Compare(s.h.best.cost) <= 0)
}

// leave makes all go that are on a device, and reports whether they may.
func (s *sets) leave(device int) bool {
	for _, t := range s.h.site.takes {
		if t.device == device && !s.h.picked.add(t.pod) {
			return false
		}
	}
	return true
}

// cleared reports whether all that are on a device go.
func (s *sets) cleared(device int) bool {
	for _, t := range s.h.site.takes {
		if t.device == device && !s.h.picked.gone[t.pod] {
			return false
		}
	}
	return true
}

// search clears so many more of the devices from at on. Those that are empty, since pods with shares of several devices
// went, are taken as they are.
func (s *sets) search(at, need int) {
	empty := s.empty(at, len(s.list))
	if need <= empty {
		s.host()
		return
	}
	for at < len(s.list) && s.cleared(s.list[at].device) {
		at, need, empty = at+1, need-1, empty-1
	}
	if need > len(s.list)-at || s.h.hopeless() || s.dearer(at, need-empty) || !s.step() {
		return
	}
	m, passed := s.h.picked.mark(), s.empty(0, at)
	if s.leave(s.list[at].device) && s.empty(0, at) == passed { // else one that was passed over is empty: that set is another branch
		s.search(at+1, need-1)
	}
	s.h.picked.undo(m)
	s.search(at+1, need)
}

// empty counts the devices of a part of the list that all leave.
func (s *sets) empty(from, to int) (count int) {
	for k := from; k < to; k++ {
		if s.cleared(s.list[k].device) {
			count++
		}
	}
	return count
}

// step counts a step, and reports whether the search may go on: up to the bound, and then as far as to a first set.
func (s *sets) step() bool {
	if s.h.step() {
		return true
	}
	s.over++
	return s.h.best == nil && s.over <= len(s.list)
}

// host makes room on the host for what is cleared.
func (s *sets) host() {
	lacks := s.h.site.lacks
	for _, p := range s.h.site.pods {
		if s.h.picked.gone[p] {
			lacks = lacks.minus(amountOf(vgpu.Use{}, s.h.q.who.Pods[p].Host))
		}
	}
	if lacks.met() {
		s.h.offer()
	} else if !s.h.hopeless() {
		s.h.onHost(lacks)
	}
}
