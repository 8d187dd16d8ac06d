package mig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Instance is a MIG instance that serves a model.
type Instance struct {
	Model string
	Variant
	// Start is the memory slice where it starts, counted from 0.
	Start int
}

// Device is a physical device with its instances, by their starts.
type Device []Instance

// Pack puts instances on the fewest devices and sets their starts. The order of the instances does not matter. The error
// names a size that is not legal.
func Pack(instances []Instance) ([]Device, error) {
	var n counts
	for i := range instances {
		s := instances[i].Slices
		if s.index() < 0 {
			return nil, fmt.Errorf("pack model %s: %w", instances[i].Model, s.illegal())
		}
		n[s.index()]++
	}
	instances = slices.Clone(instances)
	slices.SortFunc(instances, compareInstances)
	devices := make([]layout, n.used().devices())
	for _, one := range instances {
		devices[placeOn(devices, &one)].put(one)
	}
	packed := make([]Device, len(devices))
	for i := range devices {
		packed[i] = devices[i].instances
		slices.SortFunc(packed[i], func(a, b Instance) int { return cmp.Compare(a.Start, b.Start) })
	}
	return packed, nil
}

// compareInstances puts large instances first: the proof of laws places the sizes in this order.
func compareInstances(a, b Instance) int {
	return cmp.Or(cmp.Compare(b.Slices, a.Slices), strings.Compare(a.Model, b.Model), compareVariants(&a.Variant, &b.Variant))
}

// layout is the occupied slices of a device.
type layout struct {
	taken     [migSlots]bool
	used      int // memory slices
	instances []Instance
}

// free reports whether the slices are free.
func (d *layout) free(start, width int) bool {
	return !slices.Contains(d.taken[start:start+width], true)
}

func (d *layout) put(one Instance) {
	for i := range one.Slices.Memory() {
		d.taken[one.Start+i] = true
	}
	d.used += one.Slices.Memory()
	d.instances = append(d.instances, one)
}

// placeOn sets the start of an instance and returns its device: the fullest where it fits, of equal ones the first. An
// instance of three slices starts at 0 only where none can start at 4 on any device.
func placeOn(devices []layout, one *Instance) int {
	p := placements[one.Slices.index()]
	best := -1
	better := func(i int) bool { return best < 0 || devices[i].used > devices[best].used }
	for _, start := range p.starts {
		if best >= 0 && one.Slices == 3 {
			break
		}
		for i := range devices {
			if better(i) && devices[i].free(start, p.width) {
				best, one.Start = i, start
			}
		}
	}
	if best < 0 {
		panic(fmt.Sprintf("pack: no start for %d slices on %d devices, against the laws", one.Slices, len(devices)))
	}
	return best
}
