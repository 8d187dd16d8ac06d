package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// view is one node before and after the placement of a pod on it. Policies rate it.
type view struct {
	n *vgpu.Node
	r *vgpu.Request
	// mix is the usual requests that the policy uses, measure computes their losses, memo caches these.
	mix     *fragmentation.Mix
	measure fragmentation.Measure
	memo    *fragmentation.Memo
	// neighbours is the knowledge of the pods that share devices.
	neighbours *Neighbours
	// free and left are what is free of each device before and after.
	free, left []vgpu.Use
	// room and roomLeft are what is free of the host before and after.
	room, roomLeft vgpu.Room

	loss     fragmentation.Loss // before
	measured bool
	buffer   [2 * maxOnStack]vgpu.Use
}

// load makes v the view of a node before the placement of the request.
func (v *view) load(n *vgpu.Node, r *vgpu.Request, p *Policy) {
	v.n, v.r, v.mix, v.measure, v.memo, v.neighbours = n, r, p.mix, p.measure, p.memo, p.neighbours
	m := len(n.Devices())
	both := v.buffer[:]
	if m > maxOnStack {
		both = make([]vgpu.Use, 2*m)
	}
	v.free, v.left = both[:m], both[m:2*m]
	for i := range v.free {
		v.free[i] = n.FreeFor(i, r)
		v.left[i] = v.free[i]
	}
	v.room, v.roomLeft = n.Room(), n.Room().Minus(r.Host)
}

// touched reports whether the pod uses device i.
func (v *view) touched(i int) bool { return v.left[i].Slots != v.free[i].Slots }

// whole reports whether device i is wholly free before the pod.
func (v *view) whole(i int) bool { return v.free[i].Slots == v.n.Devices()[i].Slots }

// taken reports whether device i has tenants and the policy considers neighbours.
func (v *view) taken(i int) bool { return v.neighbours != nil && v.n.Used(i).Slots > 0 }

// seenBefore reports whether an earlier device, from the first of the shape on, is in the same state as device i.
func (v *view) seenBefore(first, i int) bool {
	for j := first; j < i; j++ {
		if v.free[j] == v.free[i] && !v.taken(j) {
			return true
		}
	}
	return false
}

// rateWith rates the node with a use of device i, under a compute limit, beside what v has placed already.
func (v *view) rateWith(p *Policy, i int, use vgpu.Use, compute vgpu.MilliGPU) int64 {
	before := v.left[i]
	v.left[i] = before.Minus(use)
	rate := p.rate(v)
	v.left[i] = before
	return p.weigh(rate, p.costOf(v, i, 1, use, compute))
}

// before returns the loss of the usual requests on the node without the pod.
func (v *view) before() fragmentation.Loss {
	if !v.measured {
		v.loss, v.measured = v.lossOf(v.free, v.room), true
	}
	return v.loss
}

// after returns their loss on the node with the pod.
func (v *view) after() fragmentation.Loss { return v.lossOf(v.left, v.roomLeft) }

func (v *view) lossOf(free []vgpu.Use, room vgpu.Room) fragmentation.Loss {
	if v.memo != nil {
		return v.memo.Of(v.n, free, room)
	}
	return v.measure.Of(v.n, free, room)
}
