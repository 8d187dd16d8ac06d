package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// deviceSets looks for the cheapest whole devices of one shape to clear, depth first, the cheapest first.
type deviceSets struct {
	search *nodeSearch
	// list has the devices that the preemptor needs empty.
	list []clearing
	// own[at] lists the prices of the devices from at on by themselves, the least first. Only pods of no gang that use no
	// other device count.
	own [][]int64
	// over counts the steps beyond the bound.
	over int
}

// clearing is a device and the cost of clearing it alone.
type clearing struct {
	device int
	lone   Cost
	// own is the price of the device's own pods, which use no other device.
	own int64
}

// solve looks for a share of whole devices that have the shape of device i, the first of its shape.
func (s *deviceSets) solve(i int, share *vgpu.Share) {
	at := &s.search.node
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
		} else if cost, may := s.clearingCost(j, lacks); may {
			s.list = append(s.list, clearing{j, cost, s.ownOf(j)})
		}
	}
	slices.SortStableFunc(s.list, func(a, b clearing) int { return cmp.Or(a.lone.Compare(b.lone), cmp.Compare(a.device, b.device)) })
	s.rank()
	s.searchFrom(0, need)
}

// ownOf adds up the prices of pods of no gang that use one device only.
func (s *deviceSets) ownOf(device int) (price int64) {
	for _, t := range s.search.node.podUses {
		if p := &s.search.q.candidates.Pods[t.pod]; t.device == device && t.only && p.Gang < 0 {
			price = vgpu.Sum(price, s.search.q.prices[t.pod].price)
		}
	}
	return price
}

// rank computes own.
func (s *deviceSets) rank() {
	for len(s.own) <= len(s.list) {
		s.own = append(s.own, nil)
	}
	s.own[len(s.list)] = s.own[len(s.list)][:0]
	for at := len(s.list) - 1; at >= 0; at-- {
		own := s.list[at].own
		k, _ := slices.BinarySearch(s.own[at+1], own)
		s.own[at] = append(append(append(s.own[at][:0], s.own[at+1][:k]...), own), s.own[at+1][k:]...)
	}
}

// costsMore reports whether clearing `more` devices from at on costs more than the best set. The most expensive of them
// costs at least as much alone as list[at+more-1]. Together they cost at least the least sum of what devices cost
// by themselves.
func (s *deviceSets) costsMore(at, more int) bool {
	best := s.search.best
	if best == nil {
		return false
	}
	if last := s.list[at+more-1].lone; last.Compare(best.cost) > 0 {
		return true
	}
	least := s.search.victims.cost
	for _, own := range s.own[at][:more] {
		least.Price = vgpu.Sum(least.Price, own)
	}
	return least.Compare(best.cost) > 0
}

// clearingCost returns the cost of evicting all pods of a device. The result is false where the eviction is not
// allowed, or where it gives back too little.
func (s *deviceSets) clearingCost(device int, lacks amount) (cost Cost, may bool) {
	for _, t := range s.search.node.podUses {
		if t.device == device {
			lacks = lacks.minus(amountOf(t.use, vgpu.Room{}))
		}
	}
	if !lacks.met() {
		return cost, false
	}
	m := s.search.victims.mark()
	may = s.evictAll(device)
	cost = s.search.victims.cost
	s.search.victims.undo(m)
	return cost, may && (s.search.best == nil || cost.Compare(s.search.best.cost) <= 0)
}

// evictAll evicts all pods of a device, and reports whether the terms allow that.
func (s *deviceSets) evictAll(device int) bool {
	for _, t := range s.search.node.podUses {
		if t.device == device && !s.search.victims.add(t.pod) {
			return false
		}
	}
	return true
}

// cleared reports whether all pods of a device are victims.
func (s *deviceSets) cleared(device int) bool {
	for _, t := range s.search.node.podUses {
		if t.device == device && !s.search.victims.evicted[t.pod] {
			return false
		}
	}
	return true
}

// searchFrom clears as many more of the devices from at on. Devices that are empty already, because their pods with
// shares of several devices are victims, count as cleared.
func (s *deviceSets) searchFrom(at, need int) {
	empty := s.empty(at, len(s.list))
	if need <= empty {
		s.addHostVictims()
		return
	}
	for at < len(s.list) && s.cleared(s.list[at].device) {
		at, need, empty = at+1, need-1, empty-1
	}
	if need > len(s.list)-at || s.search.notCheaper() || s.costsMore(at, need-empty) || !s.step() {
		return
	}
	m, passed := s.search.victims.mark(), s.empty(0, at)
	if s.evictAll(s.list[at].device) && s.empty(0, at) == passed { // otherwise a device before it is empty without a place in the set; another branch has that set
		s.searchFrom(at+1, need-1)
	}
	s.search.victims.undo(m)
	s.searchFrom(at+1, need)
}

// empty counts the cleared devices in a part of the list.
func (s *deviceSets) empty(from, to int) (count int) {
	for k := from; k < to; k++ {
		if s.cleared(s.list[k].device) {
			count++
		}
	}
	return count
}

// step counts a step, and reports whether the search may go on: up to the bound, and beyond it only until it has a
// first set.
func (s *deviceSets) step() bool {
	if s.search.step() {
		return true
	}
	s.over++
	return s.search.best == nil && s.over <= len(s.list)
}

// addHostVictims evicts more pods where the host of the cleared devices lacks CPU or memory.
func (s *deviceSets) addHostVictims() {
	lacks := s.search.node.hostLacks
	for _, p := range s.search.node.pods {
		if s.search.victims.evicted[p] {
			lacks = lacks.minus(amountOf(vgpu.Use{}, s.search.q.candidates.Pods[p].Host))
		}
	}
	if lacks.met() {
		s.search.offer()
	} else if !s.search.notCheaper() {
		s.search.onHost(lacks)
	}
}
