package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// Assign chooses devices on the node for all containers of the request, or says why there are none. Assign books
// nothing.
//
// The containers of a pod share as few devices as possible. Among those devices the policy chooses. For whole devices
// the set with the best links wins, of equal ones the first by index. A request without containers gets no devices.
func Assign(n *vgpu.Node, r *vgpu.Request, p Policy) (vgpu.Assignment, *vgpu.Refusal) {
	p = p.orDefault()
	a, _, refusal := assign(n, r, &p)
	return a, refusal
}

// AssignScored is Assign by the policy, with the score that Score returns for the node.
func (p Policy) AssignScored(n *vgpu.Node, r *vgpu.Request) (vgpu.Assignment, int64, *vgpu.Refusal) {
	p = p.orDefault()
	a, how, refusal := assign(n, r, &p)
	if refusal != nil {
		return a, -1, refusal
	}
	return a, p.randomTieBreak(how.score, n, r), nil
}

// details says how the search found the devices, and how good they are.
type details struct {
	cut, greedy bool
	score       int64
}

func assign(n *vgpu.Node, r *vgpu.Request, p *Policy) (vgpu.Assignment, details, *vgpu.Refusal) {
	a := vgpu.Assignment{UID: r.UID, Pod: r.Pod, Node: n.Name(), Tenancy: r.Tenancy}
	if len(r.Containers) == 0 {
		return a, details{score: scoreOn(n, r, p)}, nil
	}
	if len(r.Containers) == 1 {
		best, found := chooseOne(n, r, p)
		if !found {
			return vgpu.Assignment{}, details{}, refuseOne(n, r, 0, p.neighbours)
		}
		at, all := best.chosen(n, r)
		a.Containers = []vgpu.ContainerAssignment{assigned(n, &r.Containers[0], at, best.share)}
		return a, details{greedy: !all, score: score(best.dearer, best.rate, best.links, p.nodeRate(n))}, nil
	}
	if device, rate := chooseTogether(n, r, p); device >= 0 {
		for c := range r.Containers {
			share, _ := r.ShareOn(c, &n.Devices()[device])
			a.Containers = append(a.Containers, assigned(n, &r.Containers[c], []int{device}, share))
		}
		return a, details{score: score(0, rate, bestQuality, p.nodeRate(n))}, nil
	}
	s := arrange(n, r, p)
	if s == nil {
		return vgpu.Assignment{}, details{}, p.Fit(n, r)
	}
	for c := range r.Containers {
		a.Containers = append(a.Containers, assigned(n, &r.Containers[c], s.devices[c], s.shares[c]))
	}
	return a, details{cut: s.cut, greedy: s.greedy, score: s.value()}, nil
}

func assigned(n *vgpu.Node, c *vgpu.ContainerRequest, at []int, s vgpu.Share) vgpu.ContainerAssignment {
	a := vgpu.ContainerAssignment{Name: c.Name, Kind: c.Kind, Devices: ids(n, at), Share: s}
	if s.Slots*vgpu.Slots(s.Devices) != c.Slots {
		a.Asked = c.Slots
	}
	return a
}
