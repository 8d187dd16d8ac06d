package preemption

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// site is one node as one pod sees it before anybody goes.
type site struct {
	node int
	n    *vgpu.Node
	// pods are the candidates on it that may go.
	pods []int32
	// takes is what those take of devices.
	takes []take
	// lefts is what is left of each device. It is negative where holds want room that others have; shapes numbers those of
	// the devices, and sick says which take nothing.
	lefts  []vgpu.Use
	shapes []int
	sick   []bool
	// lacks is what the host lacks, poor whether it is anything.
	lacks amount
	poor  bool
	uses  []vgpu.PodUse
}

// take is what a pod takes of a device. only says that it takes nothing of others.
type take struct {
	device int
	pod    int32
	use    vgpu.Use
	only   bool
}

// look fills in the site.
func (s *site) look(h *hunt, node int) {
	s.node, s.n = node, h.q.nodes[node]
	s.pods, s.takes = s.pods[:0], s.takes[:0]
	s.uses = s.n.Uses(s.uses[:0])
	next := 0
	for _, p := range h.q.on(node) {
		uid := h.q.who.Pods[p].UID
		for next < len(s.uses) && s.uses[next].UID < uid {
			next++
		}
		first := next
		for next < len(s.uses) && s.uses[next].UID == uid {
			next++
		}
		if !h.q.may[p] {
			continue
		}
		s.pods = append(s.pods, p)
		for _, u := range s.uses[first:next] {
			s.takes = append(s.takes, take{u.Device, p, u.Use, next == first+1})
		}
	}
	s.measure(h.r)
}

// measure fills in what is left of the devices and of the host.
func (s *site) measure(r *vgpu.Request) {
	devices := s.n.Devices()
	s.lefts, s.shapes, s.sick = s.lefts[:0], s.shapes[:0], s.sick[:0]
	for i := range devices {
		left := devices[i].Capacity()
		taken := s.n.Used(i).Plus(s.n.KeptFrom(i, r))
		left.Slots -= taken.Slots
		left.Memory -= taken.Memory
		left.Contexts -= taken.Contexts // of unlimited ones more are left than anybody asks for
		s.lefts, s.shapes = append(s.lefts, left), append(s.shapes, s.n.Shape(i))
		s.sick = append(s.sick, !devices[i].Healthy)
	}
	s.lacks = lacksOf(s.n.Room(), r.Host)
	s.poor = !s.lacks.met()
}

// lacksOn returns what is lacking of a use of device i, and of the host.
func (s *site) lacksOn(i int, use vgpu.Use) amount {
	left := &s.lefts[i]
	lacks := s.lacks
	lacks[0], lacks[1], lacks[2] = int64(use.Slots-left.Slots), int64(use.Memory-left.Memory), int64(use.Contexts-left.Contexts)
	return lacks
}

// takesOf reports whether a pod takes something of device i.
func (s *site) takesOf(p int32, i int) bool {
	return slices.ContainsFunc(s.takes, func(t take) bool { return t.pod == p && t.device == i })
}
