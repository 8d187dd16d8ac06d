package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// limitTogether returns the compute limit of all containers of the request on one device like d.
func limitTogether(r *vgpu.Request, d *vgpu.Device) vgpu.MilliGPU {
	var sum limits
	for c := range r.Containers {
		s, _ := r.ShareOn(c, d)
		sum.add(r.Containers[c].Kind, s.ComputeLimit)
	}
	return sum.most()
}

// limits adds up the compute limits of containers on one device, as vgpu.Node.Residents does.
type limits struct{ together, alone vgpu.MilliGPU }

func (l *limits) add(kind vgpu.ContainerKind, limit vgpu.MilliGPU) {
	if kind == vgpu.Init {
		l.alone = max(l.alone, limit)
	} else {
		l.together += limit
	}
}

func (l *limits) most() vgpu.MilliGPU { return min(vgpu.WholeGPU, max(l.together, l.alone)) }

// together returns what all containers of the request use of device i in their busiest phase. The result says whether
// all of them may be there at once, which containers with several devices never may.
func together(n *vgpu.Node, r *vgpu.Request, i int) (vgpu.Use, bool) {
	var peak vgpu.Peak
	d := &n.Devices()[i]
	for c := range r.Containers {
		s, legal := r.ShareOn(c, d)
		if !legal || s.Devices > 1 {
			return vgpu.Use{}, false
		}
		peak.Add(r.Containers[c].Kind, s.Use())
	}
	return peak.Use(), true
}

// fitsTogether reports whether one device of the node has room for all containers of the request.
func fitsTogether(n *vgpu.Node, r *vgpu.Request, among *Neighbours) bool {
	use, legal := vgpu.Use{}, false
	for i := range n.Devices() {
		if i == 0 || n.Shape(i) != n.Shape(i-1) {
			use, legal = together(n, r, i)
		}
		if legal && use.Within(n.FreeFor(i, r)) && among.keepsPromises(n, i, r, limitTogether(r, &n.Devices()[i])) {
			return true
		}
	}
	return false
}

// chooseTogether returns the device that the policy prefers for all containers of the request together, the first by
// index among equals, with the rate; −1 when there is none.
func chooseTogether(n *vgpu.Node, r *vgpu.Request, p *Policy) (device int, rate int64) {
	var v view
	v.load(n, r, p)
	device = -1
	var spot int64
	use, legal := vgpu.Use{}, false
	for i := range n.Devices() {
		if i == 0 || n.Shape(i) != n.Shape(i-1) {
			use, legal = together(n, r, i)
		}
		if !legal || !use.Within(v.free[i]) {
			continue
		}
		limit := limitTogether(r, &n.Devices()[i])
		if !p.neighbours.keepsPromises(n, i, r, limit) {
			continue
		}
		next, at := v.rateWith(p, i, use, limit), p.deviceRate(&v, i, use)
		if device < 0 || next > rate || next == rate && at > spot {
			device, rate, spot = i, next, at
		}
	}
	return device, rate
}
