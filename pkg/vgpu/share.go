package vgpu

import "fmt"

// Share is what a container gets on each of its devices.
type Share struct {
	// Devices is the number of devices: 1 for a share of a device, k/N for whole devices.
	Devices int
	// Slots on each device.
	Slots Slots
	// Memory guaranteed on each device.
	Memory Bytes
	// ComputeLimit and MemoryLimit are the ceilings on each device.
	ComputeLimit MilliGPU
	MemoryLimit  Bytes
}

// Whole reports whether the share takes whole devices of n slots.
func (s Share) Whole(n Slots) bool { return s.Slots == n }

// Legal returns nil when every container of the request is legal on a device like d, whatever is free there.
func (r *Request) Legal(d *Device) *Refusal {
	for i := range r.Containers {
		if _, refusal := r.On(i, d); refusal != nil {
			return refusal
		}
	}
	return nil
}

// On returns the share that the container gets on devices like d, or why its request is illegal there:
//
//   - k ≤ N slots are k/N of one device, a multiple of N is k/N whole devices, any other k is illegal;
//   - memory is the device's in proportion, rounded down, or the container's request, divided over its devices and
//     rounded up. It may be below or above the proportion and not above the device;
//   - the limits default to the request (ComputeOf for compute) and lie between the request and the device.
//
// Example: 3 of 10 slots of a device with 40 GiB are {1 device, 3 slots, 12 GiB, compute limit 300, memory limit 12
// GiB}.
func (c *ContainerRequest) On(d *Device, computeLimit MilliGPU, memoryLimit Bytes) (Share, *Refusal) {
	s, reason := c.share(d, computeLimit, memoryLimit)
	if reason == "" {
		return s, nil
	}
	return Share{}, c.illegal(d, &s, reason, computeLimit, memoryLimit)
}

// ShareOn is On without the reason, for callers with many devices: it allocates nothing.
func (c *ContainerRequest) ShareOn(d *Device, computeLimit MilliGPU, memoryLimit Bytes) (Share, bool) {
	s, reason := c.share(d, computeLimit, memoryLimit)
	return s, reason == ""
}

// share returns the share and the first reason against it, "" for none. An illegal share is incomplete.
func (c *ContainerRequest) share(d *Device, computeLimit MilliGPU, memoryLimit Bytes) (Share, Reason) {
	s := Share{Devices: 1, Slots: c.Slots}
	if c.Slots < 1 || d.Slots < 1 {
		return s, IllegalSlots
	}
	if c.Slots > d.Slots {
		if c.Slots%d.Slots != 0 {
			return s, IllegalSlots
		}
		s.Devices, s.Slots = int(c.Slots/d.Slots), d.Slots
	}
	if c.Memory > 0 {
		s.Memory = (c.Memory-1)/Bytes(s.Devices) + 1
	} else {
		s.Memory = MemoryOf(d.Memory, s.Slots, d.Slots)
	}
	if s.Memory > d.Memory {
		return s, MemoryAboveDevice
	}
	s.ComputeLimit, s.MemoryLimit = computeLimit, memoryLimit
	if computeLimit == 0 {
		s.ComputeLimit = ComputeOf(s.Slots, d.Slots)
	}
	if memoryLimit == 0 {
		s.MemoryLimit = s.Memory
	}
	return s, s.limits(d)
}

// limits returns the reason against the share's limits, "" for none.
func (s *Share) limits(d *Device) Reason {
	switch {
	case int64(s.ComputeLimit)*int64(d.Slots) < int64(WholeGPU)*int64(s.Slots):
		return ComputeLimitBelowRequest
	case s.MemoryLimit < s.Memory:
		return MemoryLimitBelowRequest
	case s.ComputeLimit > WholeGPU || s.MemoryLimit > d.Memory:
		return LimitAboveDevice
	}
	return ""
}

// illegal builds the refusal for a reason that share returned with an incomplete share.
func (c *ContainerRequest) illegal(d *Device, s *Share, reason Reason, cl MilliGPU, ml Bytes) *Refusal {
	r := &Refusal{Reason: reason, Container: c.Name, Model: d.Model}
	switch reason {
	case IllegalSlots:
		r.Unit, r.Want, r.Of, r.Legal = UnitSlots, int64(c.Slots), int64(d.Slots), nearestSlots(c.Slots, d.Slots)
	case MemoryAboveDevice:
		all := int64(d.Memory) * int64(s.Devices)
		r.Unit, r.Want, r.Best, r.Of = UnitBytes, int64(c.Memory), all, all
	case ComputeLimitBelowRequest:
		r.Unit, r.Want, r.Best, r.Of = UnitMilliGPU, int64(cl), int64(ComputeOf(s.Slots, d.Slots)), int64(WholeGPU)
	case MemoryLimitBelowRequest:
		r.Unit, r.Want, r.Best, r.Of = UnitBytes, int64(ml), int64(s.Memory), int64(d.Memory)
	case LimitAboveDevice:
		r.Unit, r.Want, r.Best, r.Of = UnitMilliGPU, int64(cl), int64(WholeGPU), int64(WholeGPU)
		if cl <= WholeGPU {
			r.Unit, r.Want, r.Best, r.Of = UnitBytes, int64(ml), int64(d.Memory), int64(d.Memory)
		}
	}
	return r
}

// nearestSlots returns the legal values around the illegal k on a device of n slots. Example: 13 of 10 → 10, 20.
func nearestSlots(k, n Slots) []Slots {
	if k < 1 || n < 1 {
		return []Slots{1}
	}
	low := k / n * n
	return []Slots{low, low + n}
}

// Admits returns an error unless one device like d can hold the share, whatever is free there.
func (d *Device) Admits(s Share) error {
	switch {
	case s.Devices < 1:
		return fmt.Errorf("admit share on device %s: it has %d devices", d.ID, s.Devices)
	case s.Slots < 1 || s.Slots > d.Slots:
		return fmt.Errorf("admit share on device %s: %d slots of %d", d.ID, s.Slots, d.Slots)
	case s.Devices > 1 && !s.Whole(d.Slots):
		return fmt.Errorf("admit share on device %s: a share of %d devices takes %d of %d slots, not whole devices",
			d.ID, s.Devices, s.Slots, d.Slots)
	case s.Memory < 0 || s.Memory > d.Memory:
		return fmt.Errorf("admit share on device %s: %v of %v memory", d.ID, s.Memory, d.Memory)
	}
	if reason := s.limits(d); reason != "" {
		return fmt.Errorf("admit share on device %s: limits %v and %v for %d of %d slots and %v: %s",
			d.ID, s.ComputeLimit, s.MemoryLimit, s.Slots, d.Slots, s.Memory, reason)
	}
	return nil
}
