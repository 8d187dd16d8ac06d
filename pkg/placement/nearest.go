package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Nearest returns the refusal that is the nearest miss, false for none. The least effort that would help comes first,
// then the largest available part of the request, then the names of node and device.
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

// reasonOrder orders reasons of refusals with the same help, the nearest miss first. Other reasons are last.
var reasonOrder = []vgpu.Reason{
	vgpu.PromiseBroken, vgpu.NoTogether, vgpu.NoShareFits, vgpu.NoWholeDevices, vgpu.TooFewDevices,
	vgpu.LimitAboveDevice, vgpu.MemoryLimitBelowRequest, vgpu.ComputeLimitBelowRequest,
	vgpu.MemoryAboveDevice, vgpu.IllegalSlots, vgpu.NoAllowedModel, vgpu.NoDevices,
}

// helpOrder orders what helps, the least effort first.
var helpOrder = []vgpu.Help{vgpu.EvictionHelps, vgpu.RecoveryHelps, vgpu.NothingHelps}

// comparePart orders refusals for one reason by how near they are to the request.
func comparePart(a, b *vgpu.Refusal) int {
	if a.Reason == vgpu.PromiseBroken && b.Reason == vgpu.PromiseBroken {
		return cmp.Compare(overrun(a), overrun(b))
	}
	return cmp.Or(cmp.Compare(coveredPart(b.Best, b.Want), coveredPart(a.Best, a.Want)), cmp.Compare(b.Best, a.Best))
}

// nearer reports whether a is a nearer miss than b.
func nearer(a, b *vgpu.Refusal) bool {
	return cmp.Or(
		cmp.Compare(slices.Index(helpOrder, a.Helps), slices.Index(helpOrder, b.Helps)),
		cmp.Compare(slices.Index(reasonOrder, a.Reason), slices.Index(reasonOrder, b.Reason)),
		comparePart(a, b),
		cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Container, b.Container),
	) < 0
}
