package fragmentation

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// orders is in how many orders the usual requests fill a node. With 24 the figure differs by chance by more than rare
	// requests weigh: openb's pods of 8 GPUs are refused at 80 % of demand (docs/decisions/0037). More take more time.
	orders = 96
	// orderLength bounds the requests of an order: more never arrive. A node of 8 devices with 10 slots is full before.
	orderLength = 256
	// demandOfFill is how much GPU the requests of an order ask for, in multiples of what is idle. With 1.3 the mean
	// regret on made-up fills was 0.04 points higher, since few small requests came to fill gaps; 3 and 4 gave the same as 2.
	demandOfFill = 2
	// askedWithoutGPU is the milli-GPU as which a request without GPUs counts there, so that the order ends.
	askedWithoutGPU = 100
)

// The two kinds of unseen requests in an order, beside the numbers of the mix's kinds.
const (
	untouchedDevice = -1 - iota
	untouchedNode
)

// Fills says what the usual requests would leave idle of a node if they arrived there, until twice what is
// idle has been asked for: the mean over some orders, in which each request comes as often as it is usual. A request that does
// not fit goes elsewhere. One that fits takes the device with the fewest free slots, of equal ones that with the least
// free memory. So a node whose CPU, memory and slots go together leaves little; one whose CPU will be used up first
// leaves its GPUs.
//
// The orders are the same for each node, and depend on the mix alone. A Fills is immutable.
type Fills struct {
	mix *Mix
	of  [orders][]int32
	// needs are the parts of the kinds that a fill reads, close together.
	needs []need
}

// need is what a kind takes of a node.
type need struct {
	cpu     int64
	memory  vgpu.Bytes
	slots   int64
	allowed uint64
}

// NewFills returns the fills by a mix of at least one kind.
func NewFills(m *Mix) *Fills {
	f := &Fills{mix: m}
	sums := make([]int64, len(m.kinds))
	sum := int64(0)
	for k := range m.kinds {
		kind := &m.kinds[k]
		sum += kind.Weight
		sums[k] = sum
		f.needs = append(f.needs, need{kind.MilliCPU, kind.Memory, int64(kind.Slots), m.allowed[k]})
	}
	for o := range f.of {
		f.of[o] = make([]int32, orderLength)
		for i := range f.of[o] {
			f.of[o][i] = m.drawn(sums, drawAt(o, i)*m.all()>>drawBits)
		}
	}
	return f
}

// drawn returns the kind at a point of the weights, which sums adds up.
func (m *Mix) drawn(sums []int64, at int64) int32 {
	if at >= m.weight {
		if at-m.weight < m.unseen/2 {
			return untouchedNode
		}
		return untouchedDevice
	}
	k, found := slices.BinarySearch(sums, at)
	if found {
		k++ // the point at which a kind ends belongs to the next
	}
	return int32(k)
}

// drawBits keeps the product of a draw and the weights of a mix within 63 bits.
const drawBits = 25

// drawAt returns an even draw from 0 to 2^drawBits − 1 for a place of an order. (SplitMix64.)
func drawAt(order, place int) int64 {
	h := uint64(order*orderLength+place+1) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return int64((h ^ h>>31) >> (64 - drawBits))
}

// Mix returns the mix.
func (f *Fills) Mix() *Mix { return f.mix }

// Of is Mix.Of with Unfilled.
//
// Example: a device of 10 slots with 7 free, on a host with CPU to spare, and a mix of 3 slots. Two requests fill it to
// 1 slot: 100 milli-GPU are unfilled, as they are with 4 slots free, or with 10.
func (f *Fills) Of(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) Loss {
	loss := f.mix.Of(n, free, room)
	if Idle(n, free) == 0 {
		return loss
	}
	if a, ok := f.mix.alike(n, free, room); ok {
		loss.Unfilled = a.unfilled(f) * f.mix.weight
		return loss
	}
	var buffer [maxDevices]vgpu.Use
	sum := int64(0)
	for _, order := range f.of {
		fill := filling{mix: f.mix, n: n, free: append(buffer[:0], free...), room: room}
		fill.take(order)
		sum += Idle(n, fill.free)
	}
	loss.Unfilled = sum / orders * f.mix.weight
	return loss
}

// filling is a node that fills.
type filling struct {
	mix  *Mix
	n    *vgpu.Node
	free []vgpu.Use
	room vgpu.Room
}

// take fills the node with an order of requests.
func (f *filling) take(order []int32) {
	asked := demandOfFill * Idle(f.n, f.free)
	for _, k := range order {
		if asked <= 0 {
			return
		}
		asked -= askedBy(f.request(k), f.n.Devices()[0].Slots)
	}
}

// askedBy returns the milli-GPU as which a request counts on devices of a number of slots.
func askedBy(wanted, of vgpu.Slots) int64 {
	if wanted == 0 {
		return askedWithoutGPU
	}
	return milli(wanted, of)
}

// request tries one request, and returns the slots that it wants.
func (f *filling) request(k int32) vgpu.Slots {
	switch k {
	case untouchedDevice:
		return f.untouched(false)
	case untouchedNode:
		return f.untouched(true)
	}
	kind := &f.mix.kinds[k]
	if kind.MilliCPU > f.room.MilliCPU || kind.Memory > f.room.Memory || kind.Slots > 0 && !f.book(int(k)) {
		return kind.Slots
	}
	f.room.MilliCPU -= kind.MilliCPU
	f.room.Memory -= kind.Memory
	return kind.Slots
}

// untouched takes all of a node, or its first device, if nothing has touched it. It returns the slots of these.
func (f *filling) untouched(all bool) (wanted vgpu.Slots) {
	devices := f.n.Devices()
	first := 0
	for i := len(devices) - 1; i >= 0; i-- {
		wanted += devices[i].Slots
		if f.free[i].Slots == devices[i].Slots {
			first = i
		}
	}
	switch {
	case !all:
		if f.free[first].Slots == devices[first].Slots {
			f.free[first] = vgpu.Use{}
		}
		return devices[first].Slots
	case !touched(f.n, f.free):
		clear(f.free)
	}
	return wanted
}

// fuller reports whether less is free by u than by v: of slots, then of memory.
func fuller(u, v vgpu.Use) bool {
	return u.Slots < v.Slots || u.Slots == v.Slots && u.Memory < v.Memory
}

// book takes devices for kind k, which wants some, and reports whether they are there.
func (f *filling) book(k int) bool {
	best := -1
	for i := range f.free {
		if (best < 0 || fuller(f.free[i], f.free[best])) && f.mix.uses(k, f.n, f.free, i, true) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	slots, d := f.mix.kinds[k].Slots, &f.n.Devices()[best]
	if slots <= d.Slots {
		f.free[best].Slots -= slots
		f.free[best].Memory -= f.mix.memoryOn(k, d)
		return true
	}
	left := slots / d.Slots
	for i := range f.free {
		if left > 0 && f.n.Shape(i) == f.n.Shape(best) && f.free[i].Slots == d.Slots {
			f.free[i] = vgpu.Use{}
			left--
		}
	}
	return true
}
