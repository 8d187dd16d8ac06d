package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// view is one node before and after a pod comes to it: what policies rate.
type view struct {
	n *vgpu.Node
	r *vgpu.Request
	// mix is the usual requests that the policy goes by, memo its losses as far as they are remembered.
	mix  *fragmentation.Mix
	memo *fragmentation.Memo
	// among is what is known of the pods that share devices.
	among *Neighbours
	// free and left are what is free of each device before and after.
	free, left []vgpu.Use
	// room and roomLeft are what is free of the host before and after.
	room, roomLeft vgpu.Room

	loss     fragmentation.Loss // before
	measured bool
	buffer   [2 * small]vgpu.Use
}

// look makes v the view of a node that the request has not come to yet.
func (v *view) look(n *vgpu.Node, r *vgpu.Request, p *Policy) {
	v.n, v.r, v.mix, v.memo, v.among = n, r, p.mix, p.memo, p.among
	m := len(n.Devices())
	both := v.buffer[:]
	if m > small {
		both = make([]vgpu.Use, 2*m)
	}
	v.free, v.left = both[:m], both[m:2*m]
	for i := range v.free {
		v.free[i] = n.FreeFor(i, r)
		v.left[i] = v.free[i]
	}
	v.room, v.roomLeft = n.Room(), n.Room().Minus(r.Host)
}

// touched reports whether the pod takes something of device i.
func (v *view) touched(i int) bool { return v.left[i].Slots != v.free[i].Slots }

// whole reports whether device i is wholly free before the pod.
func (v *view) whole(i int) bool { return v.free[i].Slots == v.n.Devices()[i].Slots }

// taken reports whether device i has tenants that make a difference.
func (v *view) taken(i int) bool { return v.among != nil && v.n.Used(i).Slots > 0 }

// alike reports whether device i looks like an earlier one, from the first on, where all are of one shape.
func (v *view) alike(first, i int) bool {
	for j := first; j < i; j++ {
		if v.free[j] == v.free[i] && !v.taken(j) {
			return true
		}
	}
	return false
}

// with rates the node when the use, under a compute limit, is taken of device i beside what v has taken already.
func (v *view) with(p *Policy, i int, use vgpu.Use, compute vgpu.MilliGPU) int64 {
	before := v.left[i]
	v.left[i] = before.Minus(use)
	rate := p.rate(v)
	v.left[i] = before
	return p.weigh(rate, p.tollOf(v, i, 1, use, compute))
}

// before returns what the usual requests lose of the node without the pod.
func (v *view) before() fragmentation.Loss {
	if !v.measured {
		v.loss, v.measured = v.lossOf(v.free, v.room), true
	}
	return v.loss
}

// after returns what they lose of it with the pod.
func (v *view) after() fragmentation.Loss { return v.lossOf(v.left, v.roomLeft) }

func (v *view) lossOf(free []vgpu.Use, room vgpu.Room) fragmentation.Loss {
	if v.memo != nil {
		return v.memo.Of(v.n, free, room)
	}
	return v.mix.Of(v.n, free, room)
}
