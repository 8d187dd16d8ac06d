package placement

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// fitMany is Fit for a request of several containers.
func fitMany(n *vgpu.Node, r *vgpu.Request, among *Neighbours) *vgpu.Refusal {
	fits, cut := fitsMany(n, r, among)
	if fits {
		return nil
	}
	return refuseMany(n, r, cut, among)
}

// fitsMany reports whether a request of several containers fits, and whether a limit cut the search.
func fitsMany(n *vgpu.Node, r *vgpu.Request, among *Neighbours) (fits, cut bool) {
	if fitsTogether(n, r, among) {
		return true, false
	}
	s := newSearch(n, r, freeNow(n, r), among)
	return s.find(), s.cut
}

// policySteps is how many steps of other searches one takes that compares devices by a policy.
const policySteps = 2

// arrange finds devices for all containers of a request that no single device can take. The search uses as few devices
// as it can, and of those sets the one that the policy prefers. If it finds nothing within its steps, it takes any
// arrangement, so that it succeeds where Fit does. nil means that there is none.
func arrange(n *vgpu.Node, r *vgpu.Request, p *Policy) *search {
	free := freeNow(n, r)
	policy := *p // a copy keeps the policies of requests without a search off the heap
	most := stepsOf(r) / policySteps
	last := newSearch(n, r, free, p.neighbours)
	if !last.enough(0) {
		return nil
	}
	for limit := last.fewest(); limit <= len(free) && most > 0; limit++ {
		s := newSearch(n, r, free, p.neighbours)
		s.policy, s.limit, s.budget = &policy, limit, most
		if s.arrangeFrom(0) {
			return s
		}
		most -= s.steps
	}
	if last.find() {
		last.cut, last.policy = true, &policy
		return last
	}
	return nil
}

// fewest returns how many devices all containers need at least by their sums, 2 or more.
func (s *search) fewest() int {
	var needs vgpu.Use
	for p := range s.phases {
		needs.Slots, needs.Memory = max(needs.Slots, s.needs[p].Slots), max(needs.Memory, s.needs[p].Memory)
	}
	slots, memory := make([]int64, len(s.free)), make([]int64, len(s.free))
	for i, u := range s.free {
		slots[i], memory[i] = int64(u.Slots), int64(u.Memory)
	}
	return max(2, countFor(slots, int64(needs.Slots)), countFor(memory, int64(needs.Memory)))
}

// countFor returns how many of the amounts, the largest first, are as much together as is needed.
func countFor(amounts []int64, needed int64) (count int) {
	slices.Sort(amounts)
	for _, n := range slices.Backward(amounts) {
		if needed <= 0 {
			break
		}
		needed, count = needed-n, count+1
	}
	return count
}

// value is the score of an arrangement: the rate of the node with it, and the mean of the links over the containers'
// sets.
func (s *search) value() int64 {
	most, links := 0, int64(0)
	for c := range s.devices {
		most = max(most, len(s.devices[c]))
		links += average(s.linkSum(s.devices[c]), len(s.devices[c]))
	}
	v := s.view()
	return score(s.count-most, s.policy.weigh(s.policy.rate(v), s.cost(v)), links/int64(len(s.devices)), s.policy.nodeRate(s.n))
}

// cost adds up the costs of the devices of the arrangement.
func (s *search) cost(v *view) cost {
	all := cost{alone: true}
	for i := range v.left {
		if v.touched(i) {
			use := s.peak(i)
			all = all.plus(s.policy.costOf(v, i, 1, use, s.limitOn(i)))
		}
	}
	return all
}

// view is the node with the containers that the search has placed so far.
func (s *search) view() *view {
	var v view
	v.load(s.n, s.r, s.policy)
	for i := range v.left {
		v.left[i] = v.free[i].Minus(s.peak(i))
	}
	return &v
}

func (s *search) linkSum(devices []int) int64 {
	sum := int64(0)
	for a := range devices {
		for b := range a {
			sum += Quality(s.n.Link(devices[b], devices[a]))
		}
	}
	return sum
}

// ids returns the devices at the positions, sorted by ID.
func ids(n *vgpu.Node, positions []int) []vgpu.DeviceID {
	list := make([]vgpu.DeviceID, 0, len(positions))
	for _, i := range positions {
		list = append(list, n.Devices()[i].ID)
	}
	slices.Sort(list)
	return list
}
