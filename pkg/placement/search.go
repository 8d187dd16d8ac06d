package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// search arranges the containers of one pod on the devices of one node. The search tries the arrangements depth first,
// containers with the most slots first. A swap of devices in equal state, or (for Fit) of equal containers, gives no
// new arrangement.
type search struct {
	n          *vgpu.Node
	r          *vgpu.Request
	policy     *Policy // nil for the question whether there is an arrangement
	neighbours *Neighbours
	free       []vgpu.Use
	spans      []vgpu.Span
	phases     int
	load       []vgpu.Use // by the pod: device × phases + phase
	order      []int      // containers
	twin       []bool     // per place in order: equal to the container before, always on one device

	// on has the share of each container on each device, without devices where it has none there. ranks has room for a list of devices at each
	// place of the order.
	on    []vgpu.Share
	ranks []int
	// needs are the least that the containers from each place of the order on use together, place × phases + phase; left is what is free of
	// all devices in each phase.
	needs, left []vgpu.Use

	shares  []vgpu.Share // per container
	devices [][]int      // per container
	touched []int        // per device, how many containers are on it
	count   int          // devices touched
	limit   int          // most devices to touch

	steps, budget int
	cut, greedy   bool
}

// newSearch prepares a search on the devices, with what is free of them.
func newSearch(n *vgpu.Node, r *vgpu.Request, free []vgpu.Use, among *Neighbours) *search {
	kinds := make([]vgpu.ContainerKind, 0, len(r.Containers))
	for i := range r.Containers {
		kinds = append(kinds, r.Containers[i].Kind)
	}
	s := &search{n: n, r: r, free: free, limit: len(free), budget: stepsOf(r), neighbours: among}
	s.spans, s.phases = vgpu.Spans(kinds)
	s.load = make([]vgpu.Use, len(free)*s.phases)
	s.touched = make([]int, len(free))
	s.shares = make([]vgpu.Share, len(kinds))
	s.devices = make([][]int, len(kinds))
	for i := range r.Containers {
		s.order = append(s.order, i)
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(r.Containers[b].Slots, r.Containers[a].Slots) })
	s.twin = make([]bool, len(s.order))
	for k := 1; k < len(s.order); k++ {
		s.twin[k] = s.equal(s.order[k-1], s.order[k])
	}
	s.ranks = make([]int, len(kinds)*len(free))
	s.addUp()
	return s
}

// addUp computes the shares, and what the containers need together at least.
func (s *search) addUp() {
	m := len(s.free)
	s.on = make([]vgpu.Share, len(s.order)*m)
	s.left, s.needs = make([]vgpu.Use, s.phases), make([]vgpu.Use, (len(s.order)+1)*s.phases)
	for _, u := range s.free {
		for p := range s.left {
			s.left[p] = s.left[p].Plus(vgpu.Use{Slots: max(0, u.Slots), Memory: max(0, u.Memory), Contexts: min(max(0, u.Contexts), manyContexts)})
		}
	}
	for k := len(s.order) - 1; k >= 0; k-- {
		c, least := s.order[k], vgpu.Use{}
		for i := range m {
			share, legal := s.on[c*m+max(0, i-1)], i > 0 && s.on[c*m+i-1].Devices > 0
			if i == 0 || s.n.Shape(i) != s.n.Shape(i-1) {
				share, legal = s.r.ShareOn(c, &s.n.Devices()[i])
			}
			if !legal {
				continue
			}
			s.on[c*m+i] = share
			use, n := share.Use(), share.Devices
			all := vgpu.Use{Slots: use.Slots * vgpu.Slots(n), Memory: use.Memory * vgpu.Bytes(n), Contexts: use.Contexts * n}
			if least == (vgpu.Use{}) {
				least = all
			}
			least = vgpu.Use{Slots: min(least.Slots, all.Slots), Memory: min(least.Memory, all.Memory), Contexts: min(least.Contexts, all.Contexts)}
		}
		for p := range s.phases {
			needs := s.needs[(k+1)*s.phases+p]
			if p >= s.spans[c].First && p <= s.spans[c].Last {
				needs = needs.Plus(least)
			}
			s.needs[k*s.phases+p] = needs
		}
	}
}

// manyContexts stands for a device without a bound, so that sums do not overflow.
const manyContexts = 1 << 20

// enough reports whether what is free of all devices is as much as the containers from place k of the order on need together.
func (s *search) enough(k int) bool {
	for p := range s.left {
		if !s.needs[k*s.phases+p].Within(s.left[p]) {
			return false
		}
	}
	return true
}

// find looks for any arrangement, first without a search.
func (s *search) find() bool { return s.enough(0) && (s.tight() || s.arrangeFrom(0)) }

// tight puts each container, the largest first, on the devices of which it leaves the least, and goes back on none. Most pods that fit do so.
func (s *search) tight() bool {
	order := slices.Clone(s.order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.part(b), s.part(a)) })
	for _, c := range order {
		list := s.ranked(0, c)
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(s.freeOf(c, a), s.freeOf(c, b)) })
		for at, i := range list {
			if s.putSet(c, list[at:], s.on[c*len(s.free)+i]) {
				break
			}
		}
		if len(s.devices[c]) == 0 {
			s.clear()
			return false
		}
	}
	if !s.keepsPromises() {
		s.clear()
		return false
	}
	return true
}

// putSet puts a container on the first of the listed devices and the next ones of its shape, and reports whether there are enough.
func (s *search) putSet(c int, list []int, share vgpu.Share) bool {
	set := make([]int, 0, share.Devices)
	for _, i := range list {
		if s.n.Shape(i) == s.n.Shape(list[0]) && len(set) < share.Devices {
			set = append(set, i)
		}
	}
	if len(set) < share.Devices {
		return false
	}
	s.shares[c] = share
	for _, i := range set {
		s.put(c, i)
	}
	return true
}

// part is which part of all that is free a container needs of the amount that is scarcest for it, in millionths.
func (s *search) part(c int) (most int64) {
	for i := range s.free {
		if share := s.on[c*len(s.free)+i]; share.Devices > 0 {
			use, free := share.Use(), s.left[s.spans[c].Last]
			n := int64(share.Devices)
			return max(millionths(int64(use.Slots)*n, int64(free.Slots)), millionths(int64(use.Memory)*n, int64(free.Memory)), millionths(int64(use.Contexts)*n, int64(free.Contexts)))
		}
	}
	return 0
}

// freeOf is how much of a device is free in the last phase of a container, in millionths of what the container takes of its scarcest amount.
func (s *search) freeOf(c, i int) int64 {
	free, use := s.free[i].Minus(s.load[i*s.phases+s.spans[c].Last]), s.on[c*len(s.free)+i].Use()
	return min(millionths(int64(free.Slots), int64(use.Slots)), millionths(int64(free.Memory), int64(use.Memory)), millionths(int64(free.Contexts), int64(use.Contexts)))
}

func millionths(part, of int64) int64 {
	if of <= 0 {
		return 1 << 40
	}
	return int64(float64(part) / float64(of) * 1e6)
}

// clear removes all devices of all containers.
func (s *search) clear() {
	for c := range s.devices {
		for len(s.devices[c]) > 0 {
			s.removeLast(c)
		}
	}
}

// equal reports whether the search may swap two containers, and each takes one device wherever it is legal.
func (s *search) equal(a, b int) bool {
	x, y := &s.r.Containers[a], &s.r.Containers[b]
	if x.Slots != y.Slots || x.Memory != y.Memory || s.spans[a] != s.spans[b] {
		return false
	}
	devices := s.n.Devices()
	return !slices.ContainsFunc(devices, func(d vgpu.Device) bool { return x.Slots > d.Slots })
}

// freeNow returns what a request may take of each device.
func freeNow(n *vgpu.Node, r *vgpu.Request) []vgpu.Use {
	free := make([]vgpu.Use, len(n.Devices()))
	for i := range free {
		free[i] = n.FreeFor(i, r)
	}
	return free
}

// arrangeFrom arranges the containers from place k of the order on.
func (s *search) arrangeFrom(k int) bool {
	if k == len(s.order) {
		return s.keepsPromises()
	}
	if !s.enough(k) {
		return false
	}
	c := s.order[k]
	ranked := s.ranked(k, c)
	if s.policy != nil && s.placeLinked(k, c, ranked) {
		return true
	}
	return s.tryDevices(k, ranked, 0)
}

// ranked lists the devices that can take container c by itself. Devices that the pod uses already come first, then the
// policy and the index decide.
func (s *search) ranked(k, c int) []int {
	first := 0
	if s.policy == nil && s.twin[k] {
		first = s.devices[s.order[k-1]][0]
	}
	list := s.ranks[k*len(s.free) : k*len(s.free) : (k+1)*len(s.free)]
	for i := first; i < len(s.free); i++ {
		if share, legal := s.share(c, i); legal && s.fits(c, i, share.Use()) {
			list = append(list, i)
		}
	}
	if s.policy != nil {
		s.sort(list, c)
	}
	return list
}

// sort puts the preferred devices for container c first.
func (s *search) sort(list []int, c int) {
	v := s.view()
	rates, spots := make([]int64, len(s.free)), make([]int64, len(s.free))
	for _, i := range list {
		share, _ := s.share(c, i)
		rates[i], spots[i] = v.rateWith(s.policy, i, share.Use(), share.ComputeLimit), s.policy.deviceRate(v, i, share.Use())
	}
	slices.SortFunc(list, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(min(1, s.touched[b]), min(1, s.touched[a])),
			cmp.Compare(rates[b], rates[a]),
			cmp.Compare(spots[b], spots[a]),
			cmp.Compare(a, b),
		)
	})
}

func (s *search) share(c, i int) (vgpu.Share, bool) {
	share := s.on[c*len(s.free)+i]
	return share, share.Devices > 0
}

// fits reports whether device i has room for container c beside the pod's other containers, in each of its phases.
func (s *search) fits(c, i int, use vgpu.Use) bool {
	for p := s.spans[c].First; p <= s.spans[c].Last; p++ {
		if !s.load[i*s.phases+p].Plus(use).Within(s.free[i]) {
			return false
		}
	}
	return true
}

// keepsPromises reports whether the arrangement breaks no promise on any device.
func (s *search) keepsPromises() bool {
	for i := range s.touched {
		if s.neighbours != nil && s.touched[i] > 0 && !s.neighbours.keepsPromises(s.n, i, s.r, s.limitOn(i)) {
			return false
		}
	}
	return true
}

// limitOn returns the compute limit of the containers on device i.
func (s *search) limitOn(i int) vgpu.MilliGPU {
	var sum limits
	for c := range s.devices {
		if slices.Contains(s.devices[c], i) {
			sum.add(s.r.Containers[c].Kind, s.shares[c].ComputeLimit)
		}
	}
	return sum.most()
}

// peak returns the most that the pod uses of device i in any phase, each amount by itself.
func (s *search) peak(i int) vgpu.Use {
	var peak vgpu.Use
	for _, u := range s.load[i*s.phases : (i+1)*s.phases] {
		peak = vgpu.Use{
			Slots: max(peak.Slots, u.Slots), Memory: max(peak.Memory, u.Memory), Contexts: max(peak.Contexts, u.Contexts),
		}
	}
	return peak
}

// tryDevices tries the ranked devices in turn for the container at place k, and arranges the rest.
func (s *search) tryDevices(k int, ranked []int, from int) bool {
	c := s.order[k]
	for at := from; at < len(ranked); at++ {
		i := ranked[at]
		if s.sameState(ranked[from:at], i) {
			continue
		}
		if s.steps++; s.steps > s.budget {
			s.cut = true
			return false
		}
		if len(s.devices[c]) == 0 {
			s.shares[c], _ = s.share(c, i)
		} else if s.n.Shape(i) != s.n.Shape(s.devices[c][0]) {
			continue
		}
		if !s.put(c, i) {
			continue
		}
		if len(s.devices[c]) < s.shares[c].Devices {
			if s.tryDevices(k, ranked, at+1) {
				return true
			}
		} else if s.arrangeFrom(k + 1) {
			return true
		}
		s.removeLast(c)
	}
	return false
}

// sameState reports whether one of the earlier devices is in the same state as device i and stands for it.
func (s *search) sameState(before []int, i int) bool {
	for _, j := range before {
		if s.n.Shape(i) == s.n.Shape(j) && s.free[i] == s.free[j] && (s.neighbours == nil || s.n.Used(i).Slots+s.n.Used(j).Slots == 0) &&
			slices.Equal(s.load[i*s.phases:(i+1)*s.phases], s.load[j*s.phases:(j+1)*s.phases]) {
			return true
		}
	}
	return false
}

// put adds device i to container c, unless the arrangement then uses too many devices.
func (s *search) put(c, i int) bool {
	if s.touched[i] == 0 {
		if s.count == s.limit {
			return false
		}
		s.count++
	}
	s.touched[i]++
	s.devices[c] = append(s.devices[c], i)
	for p := s.spans[c].First; p <= s.spans[c].Last; p++ {
		s.load[i*s.phases+p] = s.load[i*s.phases+p].Plus(s.shares[c].Use())
		s.left[p] = s.left[p].Minus(s.shares[c].Use())
	}
	return true
}

// removeLast removes the last device of container c.
func (s *search) removeLast(c int) {
	i := s.devices[c][len(s.devices[c])-1]
	s.devices[c] = s.devices[c][:len(s.devices[c])-1]
	for p := s.spans[c].First; p <= s.spans[c].Last; p++ {
		s.load[i*s.phases+p] = s.load[i*s.phases+p].Minus(s.shares[c].Use())
		s.left[p] = s.left[p].Plus(s.shares[c].Use())
	}
	if s.touched[i]--; s.touched[i] == 0 {
		s.count--
	}
}
