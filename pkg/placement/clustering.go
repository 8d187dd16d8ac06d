package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// clustering prefers nodes that run pods of the same size only, then nodes that run some, then idle nodes, then nodes
// of other pods. Among those it takes the fuller node, and of its devices the one with the least left. Sizes are a
// share of a device, one whole device, two, and so on. (Clustering of FGD, §6.1, after Gandiva, OSDI 2018.)
//
// Example: a share on a node with 2 of 8 GPUs idle that runs shares and whole devices: 50 + 25·(8 − 2)/8, 68 percent.
var clustering = Policy{
	Name:     "clustering",
	perMilli: perDevice,
	device:   leastLeft,
	byRun:    true,
	rate: func(v *view) int64 {
		if len(v.r.Containers) == 0 {
			return 0
		}
		idle := min(largestGPU, fragmentation.Idle(v.n, v.free))
		quarter := int64(25)
		return (quarter*v.likeness() + quarter*(largestGPU-idle)/largestGPU) * percent
	},
}

// likeness rates how like the pods of the node are to the new one. All alike are 3, some alike are 2, a node without
// pods is 1, none alike are 0.
func (v *view) likeness() int64 {
	own, same, others := v.devicesTaken(), false, false
	v.n.Each(func(a *vgpu.Assignment) {
		if v.devicesOf(a) == own {
			same = true
		} else {
			others = true
		}
	})
	switch {
	case same && !others:
		return 3
	case same:
		return 2
	case !others:
		return 1
	}
	return 0
}

// devicesTaken returns the number of whole devices that the pod takes, 0 for a share of one.
func (v *view) devicesTaken() int {
	whole := 0
	for i := range v.left {
		if v.touched(i) && v.whole(i) && v.left[i].Slots == 0 {
			whole++
		}
	}
	return whole
}

// devicesOf returns the number of whole devices of the largest container of a pod on the node, 0 for a share of one.
func (v *view) devicesOf(a *vgpu.Assignment) int {
	most := 0
	for i := range a.Containers {
		s := &a.Containers[i].Share
		if k := v.n.Index(a.Containers[i].Devices[0]); s.Whole(v.n.Devices()[k].Slots) {
			most = max(most, s.Devices)
		}
	}
	return most
}
