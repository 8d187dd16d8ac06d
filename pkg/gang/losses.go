package gang

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// loss returns the part of its work that the gang loses by a spread over the domains of a level, and whether the user
// declared it.
func (g *Group) loss(key string) (part vgpu.MilliGPU, known bool) {
	for _, l := range g.Losses {
		if l.Level == key {
			return l.Part, true
		}
	}
	return 0, false
}

// objectives returns the preferred levels without those at which a spread costs nothing. Then the number of nodes is no
// objective either, unless only a spread over islands costs nothing. A gang that loses nothing between racks or hosts
// loses nothing between nodes.
func (s *search) objectives() objectives {
	r := objectives{nodes: true}
	for _, key := range s.g.Wishes.Preferred {
		if part, known := s.g.loss(key); !known || part > 0 {
			r.preferred = append(r.preferred, key)
		}
	}
	for _, l := range s.g.Losses {
		if l.Part == 0 && l.Level != NVLink {
			r.nodes = false
		}
	}
	return r
}

// weighLosses returns the best places for the first n members, without the levels that are not worth what they cost. A
// level with a known loss stays an objective, from the last to the first, only if
//
//	what the policy loses with it + the gang's loss with it ≤ the same without it
//
// in milli-GPU. The policy's loss is the difference of its scores, which placement.Policy.Gain converts. The gang's
// loss is Part of its compute where it is on several domains of the level, else 0. Without a level the number of nodes
// does not count either, unless the level is NVLink.
//
// Example: four members of one GPU each lose 2 % when they are on two hosts: 80 milli-GPU. One host takes all four, but
// there the policy prefers to keep four whole GPUs together. Its scores are worth 200 less there than on two hosts with
// two odd GPUs each. 200 + 0 > 0 + 80, so the gang goes to the two hosts. With a loss of 10 %, 200 ≤ 400 keeps it on
// one host.
func (s *search) weighLosses(r objectives, n int) *answer {
	best := s.answer(r, n)
	for at := len(r.preferred) - 1; at >= 0 && best != nil; at-- {
		key := r.preferred[at]
		part, known := s.g.loss(key)
		if !known {
			continue
		}
		without := objectives{slices.Delete(slices.Clone(r.preferred), at, at+1), r.nodes && key == NVLink}
		other := s.answer(without, n)
		if other == nil {
			continue
		}
		price := func(a *answer) int64 {
			if s.domains(key, a.places) < 2 {
				return -a.gain
			}
			return s.compute(a.places)*int64(part)/int64(vgpu.WholeGPU) - a.gain
		}
		if price(other) < price(best) {
			best, r = other, without
		}
	}
	return best
}

// compute returns the milli-GPU that places take, by the slots of their devices.
func (s *search) compute(places []vgpu.Assignment) int64 {
	sum := int64(0)
	for i := range places {
		r := &s.g.Members[i].Request
		if len(places[i].Containers) == 0 {
			continue
		}
		node, _ := s.snapshot.find(places[i].Node)
		n := s.snapshot.nodes[node]
		of := n.Devices()[n.Index(places[i].Containers[0].Devices[0])].Slots
		sum += int64(r.PeakSlots()) * int64(vgpu.WholeGPU) / int64(of)
	}
	return sum
}
