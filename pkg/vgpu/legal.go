package vgpu

import (
	"cmp"
	"slices"
)

// Distinct returns one device of each shape, by model, slots and memory: the input of LegalAnywhere.
func Distinct(devices []Device) []Device {
	order := func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Slots, b.Slots), cmp.Compare(a.Memory, b.Memory),
			cmp.Compare(a.ID, b.ID))
	}
	same := func(a, b Device) bool { return a.Shape() == b.Shape() }
	return slices.CompactFunc(slices.SortedFunc(slices.Values(devices), order), same)
}

// LegalAnywhere returns nil when each container is legal on at least one of the devices, so that some node may take the
// pod; devices where a container is illegal are skipped later, node by node. Without any device nothing is refused:
// the cluster's devices are not known yet.
//
// Else it returns one refusal, of the first container that is illegal on all of them: of the reasons on the devices, the
// one that comes closest to legal, with the legal values that are nearest over all devices. Example: 13 slots on devices
// of 10 and of 4 slots: the legal values 10 and 20, 12 and 16 leave 12 and 16.
func LegalAnywhere(devices []Device, r *Request) *Refusal {
	for i := range r.Containers {
		var nearest *Refusal
		legal := len(devices) == 0
		for k := range devices {
			_, refusal := r.Containers[i].On(&devices[k], r.ComputeLimit, r.MemoryLimit)
			if refusal == nil {
				legal = true
				break
			}
			nearest = nearerLegal(nearest, refusal)
		}
		if !legal {
			return nearest
		}
	}
	return nil
}

// checked orders the reasons as a share is checked: a later one is closer to legal.
var checked = []Reason{
	IllegalSlots, MemoryAboveDevice, ComputeLimitBelowRequest, MemoryLimitBelowRequest, LimitAboveDevice,
}

// nearerLegal returns the refusal that is closer to legal; of two with illegal slots, one with the legal values of both.
func nearerLegal(a, b *Refusal) *Refusal {
	if a == nil {
		return b
	}
	if a.Reason == IllegalSlots && b.Reason == IllegalSlots {
		both := *a
		both.Legal = around(slices.Concat(a.Legal, b.Legal), Slots(a.Want))
		if both.Model != b.Model {
			both.Model = ""
		}
		return &both
	}
	order := cmp.Or(
		cmp.Compare(slices.Index(checked, a.Reason), slices.Index(checked, b.Reason)),
		cmp.Compare(b.shortfall(), a.shortfall()),
		cmp.Compare(b.Model, a.Model),
	)
	if order < 0 {
		return b
	}
	return a
}

// around returns the largest legal value below k and the smallest one above.
func around(legal []Slots, k Slots) []Slots {
	var near []Slots
	slices.Sort(legal)
	if i := slices.IndexFunc(legal, func(v Slots) bool { return v > k }); i >= 0 {
		near = append(near, legal[i])
		legal = legal[:i]
	}
	if len(legal) > 0 {
		near = slices.Insert(near, 0, legal[len(legal)-1])
	}
	return near
}

// shortfall is the distance between what is asked for and what could be given.
func (r *Refusal) shortfall() int64 { return max(r.Want-r.Best, r.Best-r.Want) }
