package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Nearest returns the refusal that is the nearest miss, false for none: the one that the least could help, then the one
// that has the largest part of what is wanted, then the first by node and device name.
func Nearest(refusals []vgpu.Refusal) (vgpu.Refusal, bool) {
	if len(refusals) == 0 {
		return vgpu.Refusal{}, false
	}
	best := &refusals[0]
	for i := range refusals[1:] {
		if nearer(&refusals[i+1], best) {
			best = &refusals[i+1]
		}
	}
	return *best, true
}

// far orders reasons of refusals with the same help, the nearest miss first; reasons that are not listed are last.
var far = []vgpu.Reason{
	vgpu.PromiseBroken, vgpu.NoTogether, vgpu.NoShareFits, vgpu.NoWholeDevices, vgpu.TooFewDevices,
	vgpu.LimitAboveDevice, vgpu.MemoryLimitBelowRequest, vgpu.ComputeLimitBelowRequest,
	vgpu.MemoryAboveDevice, vgpu.IllegalSlots, vgpu.NoAllowedModel, vgpu.NoDevices,
}

// helpful orders what helps, the least effort first.
var helpful = []vgpu.Help{vgpu.EvictionHelps, vgpu.RecoveryHelps, vgpu.NothingHelps}

// comparePart orders refusals for one reason by how near they come to what is wanted.
func comparePart(a, b *vgpu.Refusal) int {
	if a.Reason == vgpu.PromiseBroken && b.Reason == vgpu.PromiseBroken {
		return cmp.Compare(overrun(a), overrun(b))
	}
	return cmp.Or(cmp.Compare(covers(b.Best, b.Want), covers(a.Best, a.Want)), cmp.Compare(b.Best, a.Best))
}

// nearer reports whether a is a nearer miss than b.
func nearer(a, b *vgpu.Refusal) bool {
	return cmp.Or(
		cmp.Compare(slices.Index(helpful, a.Helps), slices.Index(helpful, b.Helps)),
		cmp.Compare(slices.Index(far, a.Reason), slices.Index(far, b.Reason)),
		comparePart(a, b),
		cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Container, b.Container),
	) < 0
}
