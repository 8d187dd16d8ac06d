package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// refuseOne returns why container c of a request does not fit on the node by itself: the nearest miss of its devices.
func refuseOne(n *vgpu.Node, r *vgpu.Request, c int, among *Neighbours) *vgpu.Refusal {
	nearest := nearestPromise(n, r, c, among)
	if nearest == nil {
		nearest = nearestShare(n, r, c)
	}
	if nearest == nil {
		nearest = nearestOther(n, r, c)
	}
	if nearest == nil {
		nearest = &vgpu.Refusal{Reason: vgpu.NoDevices}
	}
	if nearest.Reason == vgpu.NoAllowedModel {
		nearest.Model, nearest.Present = "", n.Models()
	}
	nearest.Node, nearest.Container = n.Name(), r.Containers[c].Name
	return nearest
}

// nearestPromise returns the refusal of a device that has room but where a promise would break: the promise that is
// nearest to being kept, the first by index among equals. nil means that no device has room.
func nearestPromise(n *vgpu.Node, r *vgpu.Request, c int, among *Neighbours) *vgpu.Refusal {
	var nearest *vgpu.Refusal
	if among == nil {
		return nil
	}
	for i := range n.Devices() {
		s, legal := r.ShareOn(c, &n.Devices()[i])
		if !legal || s.Devices > 1 || !s.Use().Within(n.FreeFor(i, r)) {
			continue
		}
		if f := among.refusePromise(n, i, r, s.ComputeLimit); f != nil && (nearest == nil || overrun(f) < overrun(nearest)) {
			nearest = f
		}
	}
	return nearest
}

// overrun is how far a promise would break, in thousandths of it.
func overrun(f *vgpu.Refusal) int64 { return f.Best * 1000 / f.Want }

// nearestShare returns the refusal of the healthy device that has the largest part of the share free, the first by
// index among equals. nil means that the container takes no share of a device. On a full cluster it runs for every
// node.
func nearestShare(n *vgpu.Node, r *vgpu.Request, c int) *vgpu.Refusal {
	devices := n.Devices()
	at, part, share := -1, 0.0, vgpu.Share{}
	var s vgpu.Share
	legal := false
	for i := range devices {
		if i == 0 || n.Shape(i) != n.Shape(i-1) {
			s, legal = r.ShareOn(c, &devices[i])
		}
		if !legal || s.Devices > 1 || !devices[i].Healthy {
			continue
		}
		use, free := s.Use(), n.FreeFor(i, r)
		have := min(coveredPart(int64(free.Slots), int64(use.Slots)), coveredPart(int64(free.Memory), int64(use.Memory)),
			coveredPart(int64(free.Contexts), int64(use.Contexts)))
		if at < 0 || have > part {
			at, part, share = i, have, s
		}
	}
	if at < 0 {
		return nil
	}
	f := &vgpu.Refusal{Reason: vgpu.NoShareFits, Helps: vgpu.EvictionHelps, Model: devices[at].Model, Device: devices[at].Name()}
	scarcest(f, share.Use(), n.FreeFor(at, r), &devices[at])
	return f
}

// nearestOther returns the nearest refusal of the other devices: unhealthy ones, several whole ones, and illegal ones.
// Devices of one shape refuse for the same reason, so the first of a row stands for all.
func nearestOther(n *vgpu.Node, r *vgpu.Request, c int) *vgpu.Refusal {
	var nearest *vgpu.Refusal
	devices := n.Devices()
	for i := range devices {
		if i > 0 && n.Shape(i) == n.Shape(i-1) {
			continue
		}
		d := &devices[i]
		s, next := r.On(c, d)
		switch {
		case next != nil:
		case s.Devices > 1:
			next = refuseSet(n, r, &s, i)
		default:
			next = &vgpu.Refusal{
				Reason: vgpu.NoShareFits, Helps: vgpu.RecoveryHelps, Model: d.Model,
				Unit: vgpu.UnitSlots, Want: int64(s.Slots), Of: int64(d.Slots),
			}
		}
		if nearest == nil || nearer(next, nearest) {
			nearest = next
		}
	}
	return nearest
}

// scarcest sets the first amount that is short: slots before memory before contexts. A share whose memory follows from
// its slots is often short of both, and its owner requested slots.
func scarcest(f *vgpu.Refusal, want, free vgpu.Use, d *vgpu.Device) {
	switch {
	case free.Slots < want.Slots:
		f.Unit, f.Want, f.Best, f.Of = vgpu.UnitSlots, int64(want.Slots), int64(free.Slots), int64(d.Slots)
	case free.Memory < want.Memory:
		f.Unit, f.Want, f.Best, f.Of = vgpu.UnitBytes, int64(want.Memory), int64(free.Memory), int64(d.Memory)
	default:
		f.Unit, f.Want, f.Best, f.Of = vgpu.UnitContexts, int64(want.Contexts), int64(free.Contexts), int64(d.Contexts)
	}
}

// coveredPart returns the available part of the request, 1 where it is enough.
func coveredPart(best, want int64) float64 {
	if best >= want {
		return 1
	}
	return float64(best) / float64(want)
}

// refuseSet returns why the devices of the shape of device i have too few whole ones.
func refuseSet(n *vgpu.Node, r *vgpu.Request, s *vgpu.Share, i int) *vgpu.Refusal {
	have, healthy, free := 0, 0, 0
	for j := range n.Devices() {
		if n.Shape(j) != n.Shape(i) {
			continue
		}
		have++
		if n.Devices()[j].Healthy {
			healthy++
		}
		if s.Use().Within(n.FreeFor(j, r)) {
			free++
		}
	}
	f := &vgpu.Refusal{
		Reason: vgpu.NoWholeDevices, Model: n.Devices()[i].Model,
		Unit: vgpu.UnitDevices, Want: int64(s.Devices), Best: int64(free), Of: int64(have),
	}
	switch {
	case have < s.Devices:
		f.Reason, f.Best = vgpu.TooFewDevices, f.Of
	case healthy < s.Devices:
		f.Helps = vgpu.RecoveryHelps
	default:
		f.Helps = vgpu.EvictionHelps
	}
	return f
}

// refuseMany returns why the containers of a request do not fit together: the first that does not fit alone, or that
// they do not fit at once.
func refuseMany(n *vgpu.Node, r *vgpu.Request, cut bool, among *Neighbours) *vgpu.Refusal {
	for c := range r.Containers {
		alone := *r
		alone.Containers = r.Containers[c : c+1]
		if !fitsOne(n, &alone, among) {
			return refuseOne(n, r, c, among)
		}
	}
	f := &vgpu.Refusal{Reason: vgpu.NoTogether, Node: n.Name(), Unit: vgpu.UnitSlots, Want: int64(r.PeakSlots()), Cut: cut}
	for i := range n.Devices() {
		f.Best += int64(n.FreeFor(i, r).Slots)
		f.Of += int64(n.Devices()[i].Slots)
	}
	f.Helps = helpTogether(n, r)
	return f
}

// helpTogether returns what could make room for containers that fit one by one.
func helpTogether(n *vgpu.Node, r *vgpu.Request) vgpu.Help {
	empty := make([]vgpu.Use, len(n.Devices()))
	for _, help := range []vgpu.Help{vgpu.EvictionHelps, vgpu.RecoveryHelps} {
		for i := range empty {
			if d := &n.Devices()[i]; d.Healthy || help == vgpu.RecoveryHelps {
				empty[i] = d.Capacity()
			}
		}
		if s := newSearch(n, r, empty, nil); s.find() || s.cut {
			return help
		}
	}
	return vgpu.NothingHelps
}
