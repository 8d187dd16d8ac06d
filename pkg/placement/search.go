package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxSteps bounds the search for an arrangement of several containers on one node: how often it tries a container on a
// device. A larger bound tries more of the arrangements, which rarely exist. A step takes some fifty nanoseconds per
// node. Pods of up to four containers on eight devices stay below a thousand steps.
const maxSteps = 20_000

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
	s := &search{n: n, r: r, free: free, limit: len(free), budget: maxSteps, neighbours: among}
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
	return s
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
	var list []int
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
	return s.r.ShareOn(c, &s.n.Devices()[i])
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
	}
	return true
}

// removeLast removes the last device of container c.
func (s *search) removeLast(c int) {
	i := s.devices[c][len(s.devices[c])-1]
	s.devices[c] = s.devices[c][:len(s.devices[c])-1]
	for p := s.spans[c].First; p <= s.spans[c].Last; p++ {
		s.load[i*s.phases+p] = s.load[i*s.phases+p].Minus(s.shares[c].Use())
	}
	if s.touched[i]--; s.touched[i] == 0 {
		s.count--
	}
}
