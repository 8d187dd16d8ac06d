package placement

// packing prefers used devices, the fuller the better, then idle devices of used nodes, the fewer the better, then idle
// nodes with few devices. (Packing of FGD, §6.1, after MLaaS in the wild, NSDI 2022.)
//
// Example: a share on a device with 600 of 1000 free rates 100 − 60/10 = 94 percent. A share on an idle device of a
// used node rates 50 − 1 = 49 percent, one on an idle node of 8 devices 33 − 8 = 25 percent.
var packing = Policy{
	Name:     "packing",
	perMilli: perDevice,
	device:   leastLeft,
	rate: func(v *view) int64 {
		idle, opened, free := int64(0), int64(0), int64(0)
		for i := range v.free {
			if v.whole(i) {
				idle++
			}
			if v.touched(i) {
				free += part(v.free[i].Slots, v.n.Devices()[i].Slots) / percent
				if v.whole(i) {
					opened++
				}
			}
		}
		switch {
		case len(v.r.Containers) == 0:
			return 0
		case idle == int64(len(v.free)):
			return max(33-idle, 0) * percent
		case opened > 0:
			return max(50-opened, 33) * percent
		}
		return max(100-free/10, 50) * percent
	},
}
