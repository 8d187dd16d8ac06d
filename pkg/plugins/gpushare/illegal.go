package gpushare

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// illegalOnAll returns why a request is legal on none of the shapes, nil when it is legal on one of them or when there
// are none. Several shapes may say no to the same field with different numbers: the answer has those nearest to what
// was asked for.
func illegalOnAll(r *vgpu.Request, shapes []vgpu.Device) *vgpu.Refusal {
	var nearest *vgpu.Refusal
	for i := range shapes {
		refusal := r.Legal(&shapes[i])
		switch {
		case refusal == nil:
			return nil
		case nearest == nil:
			nearest = refusal
		case nearest.Reason == refusal.Reason && nearest.Container == refusal.Container && nearest.Unit == refusal.Unit:
			merge(nearest, refusal)
		}
	}
	return nearest
}

// merge takes the numbers of b into a where they are nearer to what was asked for. Example: 13 slots are illegal on
// devices of 10 (10 and 20) and of 4 (12 and 16): the nearest legal values are 12 and 16.
func merge(a, b *vgpu.Refusal) {
	switch a.Reason {
	case vgpu.IllegalSlots:
		all := slices.Concat(a.Legal, b.Legal)
		slices.Sort(all)
		above, _ := slices.BinarySearchFunc(all, a.Want, func(s vgpu.Slots, want int64) int { return cmp.Compare(int64(s), want) })
		a.Legal = slices.Compact(all[max(0, above-1):min(len(all), above+1)])
	case vgpu.ComputeLimitBelowRequest, vgpu.MemoryLimitBelowRequest:
		if b.Best < a.Best {
			a.Best, a.Of, a.Model = b.Best, b.Of, b.Model
		}
	default:
		if b.Best > a.Best {
			a.Best, a.Of, a.Model = b.Best, b.Of, b.Model
		}
	}
}
