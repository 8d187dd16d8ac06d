package preemption

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// nodeView is one node as one pod sees it before any eviction.
type nodeView struct {
	node int
	n    *vgpu.Node
	// pods are the possible victims on it.
	pods []int32
	// podUses is what these pods use of devices.
	podUses []deviceUse
	// free is the rest of each device. The rest is negative where holds are larger than what other pods leave. shapes
	// numbers the shapes of the devices, and sick says which devices take no pod.
	free   []vgpu.Use
	shapes []int
	sick   []bool
	// hostLacks is what the host lacks, hostShort whether it lacks anything.
	hostLacks amount
	hostShort bool
	uses      []vgpu.PodUse
}

// deviceUse is what a pod uses of a device. only says that it uses no other device.
type deviceUse struct {
	device int
	pod    int32
	use    vgpu.Use
	only   bool
}

// load computes the view of a node.
func (s *nodeView) load(h *nodeSearch, node int) {
	s.node, s.n = node, h.q.nodes[node]
	s.pods, s.podUses = s.pods[:0], s.podUses[:0]
	s.uses = s.n.Uses(s.uses[:0])
	next := 0
	for _, p := range h.q.podsOn(node) {
		uid := h.q.candidates.Pods[p].UID
		for next < len(s.uses) && s.uses[next].UID < uid {
			next++
		}
		first := next
		for next < len(s.uses) && s.uses[next].UID == uid {
			next++
		}
		if !h.q.evictable[p] {
			continue
		}
		s.pods = append(s.pods, p)
		for _, u := range s.uses[first:next] {
			s.podUses = append(s.podUses, deviceUse{u.Device, p, u.Use, next == first+1})
		}
	}
	s.computeFree(h.r)
}

// computeFree computes the rest of the devices and of the host.
func (s *nodeView) computeFree(r *vgpu.Request) {
	devices := s.n.Devices()
	s.free, s.shapes, s.sick = s.free[:0], s.shapes[:0], s.sick[:0]
	for i := range devices {
		left := devices[i].Capacity()
		taken := s.n.Used(i).Plus(s.n.KeptFrom(i, r))
		left.Slots -= taken.Slots
		left.Memory -= taken.Memory
		left.Contexts -= taken.Contexts // an unlimited number of contexts exceeds any request
		s.free, s.shapes = append(s.free, left), append(s.shapes, s.n.Shape(i))
		s.sick = append(s.sick, !devices[i].Healthy)
	}
	s.hostLacks = lacksOf(s.n.Room(), r.Host)
	s.hostShort = !s.hostLacks.met()
}

// lacksOn returns what device i and the host lack for a use.
func (s *nodeView) lacksOn(i int, use vgpu.Use) amount {
	left := &s.free[i]
	lacks := s.hostLacks
	lacks[0], lacks[1], lacks[2] = int64(use.Slots-left.Slots), int64(use.Memory-left.Memory), int64(use.Contexts-left.Contexts)
	return lacks
}

// takesOf reports whether a pod uses device i.
func (s *nodeView) takesOf(p int32, i int) bool {
	return slices.ContainsFunc(s.podUses, func(t deviceUse) bool { return t.pod == p && t.device == i })
}
