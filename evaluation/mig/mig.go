package mig

import (
	"fmt"
	"slices"
)

// Slices is the size of a MIG instance in compute slices. A device with MIG, as the A100 and the H100, has seven of
// them and eight memory slices; its instances have 1, 2, 3, 4 or 7.
//
// Source: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles" and the placements that nvidia-smi mig -lgipp
// lists. The package ignores profiles with media engines or more memory (1g.10gb+me, 1g.20gb).
type Slices int

// sizes of instances. Arrays by size use these indices.
var sizes = [...]Slices{1, 2, 3, 4, 7}

// migSlots is the number of memory slices of a device; the starts of instances count in them.
const migSlots = 8

// placements lists by size the memory slices that an instance takes and where it may start. The preferred start comes
// first: it leaves the most to others.
var placements = [len(sizes)]struct {
	width  int
	starts []int
}{
	{1, []int{6, 5, 4, 3, 2, 1, 0}},
	{2, []int{4, 2, 0}},
	{4, []int{4, 0}},
	{4, []int{0}},
	{8, []int{0}},
}

// Sizes returns the legal sizes, from the smallest.
func Sizes() []Slices { return slices.Clone(sizes[:]) }

// index returns where a size is in sizes, -1 if it is not legal.
func (s Slices) index() int { return slices.Index(sizes[:], s) }

// Memory returns how many memory slices an instance of the size takes, 0 if the size is not legal.
func (s Slices) Memory() int {
	if i := s.index(); i >= 0 {
		return placements[i].width
	}
	return 0
}

// Starts returns the memory slices at which an instance of the size may start, ascending; nil if the size is not legal.
func (s Slices) Starts() []int {
	i := s.index()
	if i < 0 {
		return nil
	}
	return slices.Sorted(slices.Values(placements[i].starts))
}

// illegal is the error for a size that MIG does not have.
func (s Slices) illegal() error {
	return fmt.Errorf("instance of %d compute slices: legal are %v", int(s), sizes)
}

// counts is how many instances there are of each of the sizes.
type counts [len(sizes)]int

// usage is how much instances use of each of the laws.
type usage [len(laws)]int

// laws are the limits that the instances of a device obey: the sum of their weights, by size, is at most the room. Over
// k devices the sums obey k times the rooms. The laws are also sufficient: instances whose weights are within k times
// the room of every law fit on k devices.
//
// Each law is necessary. An instance of two slices takes one of the starts 0, 2 and 4, one of three at least one, one
// of four takes 0 and 2. Only start 0 serves four slices, and no device has more than seven compute or eight memory
// slices.
//
// The laws suffice. An instance of seven takes the room of a device in every law, so it goes by itself. Instances of
// four start at 0. Instances of three start at 4, where they waste nothing, and at 0 only when there are more of them
// than devices; then the memory slices say that starts at 0 are left. With n₁…n₄ instances, that leaves l starts at 0
// with four slices behind each and r starts at 4 with three, which take n₂ ≤ 2l + r instances of two slices and single
// slices up to 4l + 3r. If n₃ ≤ k, then l = k − n₄ and r = k − n₃, and these two bounds are the laws of the even starts
// and of the compute slices. Else l = 2k − n₄ − n₃ and r = 0, and both are the law of the memory slices.
var laws = [...]struct {
	room    int
	weights [len(sizes)]int
}{
	{7, [...]int{1, 2, 3, 4, 7}}, // compute slices
	{8, [...]int{1, 2, 4, 4, 8}}, // memory slices
	{3, [...]int{0, 1, 1, 2, 3}}, // even starts
	{1, [...]int{0, 0, 0, 1, 1}}, // starts at 0 with all of the left half
}

// used returns the usage of the instances.
func (n counts) used() usage {
	var u usage
	for l := range laws {
		for s, weight := range laws[l].weights {
			u[l] += n[s] * weight
		}
	}
	return u
}

// devices returns the fewest devices on which instances with this usage fit.
func (u usage) devices() int {
	most := 0
	for l := range laws {
		most = max(most, (u[l]+laws[l].room-1)/laws[l].room)
	}
	return most
}

// roomLCM is the least common multiple of the rooms.
const roomLCM = 168

// tightness returns the used part of the room of the most used law, in units of 1/roomLCM of a device.
func (u usage) tightness() int {
	most := 0
	for l := range laws {
		most = max(most, u[l]*(roomLCM/laws[l].room))
	}
	return most
}

// plus returns the sum of two usages.
func (u usage) plus(v usage) usage {
	for l := range u {
		u[l] += v[l]
	}
	return u
}

// within reports whether the usage of every law is at most that in v.
func (u usage) within(v usage) bool {
	for l := range u {
		if u[l] > v[l] {
			return false
		}
	}
	return true
}

// Devices returns the fewest devices on which instances of these sizes fit, wherever each starts. The error names a size
// that is not legal. Example: 3, 3 and 1 need two devices, since two instances of three slices take all memory slices.
func Devices(instances []Slices) (int, error) {
	var n counts
	for _, s := range instances {
		i := s.index()
		if i < 0 {
			return 0, fmt.Errorf("count devices: %w", s.illegal())
		}
		n[i]++
	}
	return n.used().devices(), nil
}
