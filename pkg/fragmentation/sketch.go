package fragmentation

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The levels of a Sketch: so many amounts of CPU and of memory tell hosts apart. More levels take more memory, 20 numbers
// for each pair of levels and model of device.
const (
	cpuLevels    = 32
	memoryLevels = 16
)

// Sketch says roughly what Fills says, from a few sums for each state of a node. It is for comparisons of many nodes: the
// caller computes the exact loss where the sketch promises most. There is a sketch for nodes whose devices have one shape
// of up to 128 slots.
//
// Roughly, a kind runs on a host that has the CPU and memory of its level; memory of devices does not count; and what
// stays unfilled is what would stay of each device by itself, or what CPU or memory of the host do not suffice for, as the
// mean of the usual requests uses them. A Sketch is not safe for concurrent use.
type Sketch struct {
	fills  *Fills
	cpu    []int64
	memory []vgpu.Bytes
	tables map[deviceKind]*SketchTable
}

// deviceKind is what a SketchTable depends on.
type deviceKind struct {
	model string
	slots vgpu.Slots
}

// NewSketch returns the sketch of fills.
func NewSketch(f *Fills) *Sketch {
	s := &Sketch{fills: f, tables: map[deviceKind]*SketchTable{}}
	cpu, memory := make([]int64, len(f.mix.kinds)), make([]int64, len(f.mix.kinds))
	for i := range f.mix.kinds {
		cpu[i], memory[i] = f.mix.kinds[i].MilliCPU, int64(f.mix.kinds[i].Memory)
	}
	s.cpu = levels(cpu, cpuLevels)
	for _, m := range levels(memory, memoryLevels) {
		s.memory = append(s.memory, vgpu.Bytes(m))
	}
	return s
}

// levels returns a level below all amounts, for hosts whose pods request more than they have, and up to count of the
// amounts, evenly drawn from the different ones, in order.
func levels(amounts []int64, count int) []int64 {
	slices.Sort(amounts)
	amounts = slices.Compact(amounts)
	few := []int64{math.MinInt64}
	if len(amounts) <= count {
		return append(few, amounts...)
	}
	for i := range count {
		few = append(few, amounts[i*(len(amounts)-1)/(count-1)])
	}
	return few
}

// SketchTable is the part of a Sketch for devices of one model and number of slots.
type SketchTable struct {
	sketch *Sketch
	weight int64 // of the mix
	slots  vgpu.Slots
	// runs is the weight of the kinds that run, by level of the host and free slots of a device; whole is what kinds of
	// several devices use, in milli-GPU × weight, by level and number of wholly free devices.
	runs, whole []int64
	// devices is the largest number of devices in whole.
	devices int
	// milli and left are the milli-GPU of a device by free slots, and what stays of them.
	milli, left []int64
	// cpu and memory are what the usual requests use of a host for a thousand milli-GPU.
	cpu    int64
	memory vgpu.Bytes
}

// sketchedDevices bounds the devices of a node in a sketch.
const sketchedDevices = 16

// On returns the table for devices of a model, nil where there is none. In a mix of more than maxModels models some share
// a bit, and are taken for one.
func (s *Sketch) On(model string, slots vgpu.Slots) *SketchTable {
	if slots > maxSlotsAlike {
		return nil
	}
	t, known := s.tables[deviceKind{model, slots}]
	if !known {
		t = s.newTable(model, slots)
		s.tables[deviceKind{model, slots}] = t
	}
	return t
}

func (s *Sketch) newTable(model string, slots vgpu.Slots) *SketchTable {
	m := s.fills.mix
	t := &SketchTable{sketch: s, weight: m.weight, slots: slots, devices: sketchedDevices}
	hosts := len(s.cpu) * len(s.memory)
	t.runs, t.whole = make([]int64, hosts*int(slots+1)), make([]int64, hosts*(t.devices+1))
	a := alike{slots: int32(slots), devices: 1}
	if bit, named := m.bits[model]; named {
		a.model = 1 << (bit % maxModels)
	}
	var asked, cpu, memory float64
	for k := range m.kinds {
		kind := &m.kinds[k]
		if kind.Slots == 0 || !a.serves(m, k) || kind.Slots > slots && kind.Slots%slots != 0 || kind.Slots/slots > sketchedDevices {
			continue // a request that no node could run would hide what the others use of hosts
		}
		t.add(kind)
		asked += float64(kind.Weight * milli(kind.Slots, slots))
		cpu += float64(kind.Weight) * float64(kind.MilliCPU)
		memory += float64(kind.Weight) * float64(kind.Memory)
	}
	t.addUp()
	if asked > 0 {
		t.cpu, t.memory = int64(cpu/asked*1000), vgpu.Bytes(memory/asked*1000)
	}
	t.milli, t.left = make([]int64, slots+1), make([]int64, slots+1)
	for free := range t.left {
		t.milli[free] = milli(vgpu.Slots(free), slots)
		a.free[0], a.idle, a.room = int32(free), int32(free), vgpu.Room{MilliCPU: maxCPU, Memory: maxMemory}
		t.left[free] = a.unfilled(s.fills)
	}
	return t
}

// add adds a kind at the levels from which on it runs, and at its number of slots or of devices.
func (t *SketchTable) add(k *Kind) {
	cpu, _ := slices.BinarySearch(t.sketch.cpu, k.MilliCPU)
	memory, _ := slices.BinarySearch(t.sketch.memory, k.Memory)
	host := cpu*len(t.sketch.memory) + memory
	switch devices := int(k.Slots / t.slots); {
	case k.Slots <= t.slots:
		t.runs[host*int(t.slots+1)+int(k.Slots)] += k.Weight
	case devices <= t.devices:
		t.whole[host*(t.devices+1)+devices] += k.Weight
	}
}

// addUp adds up the weights: over levels of memory and of CPU, then over slots and devices.
func (t *SketchTable) addUp() {
	for _, part := range []struct {
		sums []int64
		row  int
	}{{t.runs, int(t.slots + 1)}, {t.whole, t.devices + 1}} {
		column := part.row * len(t.sketch.memory)
		for i := range part.sums {
			if i%column >= part.row {
				part.sums[i] += part.sums[i-part.row]
			}
		}
		for i := column; i < len(part.sums); i++ {
			part.sums[i] += part.sums[i-column]
		}
		for i := range part.sums {
			if i%part.row > 0 {
				part.sums[i] += part.sums[i-1]
			}
		}
	}
	for i := range t.whole {
		t.whole[i] *= int64(i%(t.devices+1)) * int64(vgpu.WholeGPU)
	}
}

// Sketched is a node in a sketch.
type Sketched struct {
	table *SketchTable
	free  []vgpu.Slots
	whole int
	// idle and left are of all devices; byCPU and byMemory are the milli-GPU that the host suffices for.
	idle, left, byCPU, byMemory int64
	level                       int
	// floor is the room from which on the level is the same.
	floor vgpu.Room
	room  vgpu.Room
}

// Node returns a node with so many slots free of each device.
func (t *SketchTable) Node(free []vgpu.Slots, room vgpu.Room) Sketched {
	n := Sketched{table: t, free: free, room: room}
	for _, k := range free {
		n.idle += t.milli[k]
		n.left += t.left[k]
		if k == t.slots {
			n.whole++
		}
	}
	n.level, n.floor = t.levelOf(room)
	n.byCPU, n.byMemory = t.supply(room)
	return n
}

// supply returns for how many milli-GPU CPU and memory suffice.
func (t *SketchTable) supply(room vgpu.Room) (byCPU, byMemory int64) {
	byCPU, byMemory = maxRoom, maxRoom
	if t.cpu > 0 {
		byCPU = boundedRoom(room.MilliCPU) * 1000 / t.cpu
	}
	if t.memory > 0 {
		byMemory = int64(float64(max(0, room.Memory)) * 1000 / float64(t.memory))
	}
	return byCPU, byMemory
}

// levelOf returns the level of a host, and the least room of that level.
func (t *SketchTable) levelOf(room vgpu.Room) (int, vgpu.Room) {
	cpu, exact := slices.BinarySearch(t.sketch.cpu, room.MilliCPU)
	if !exact {
		cpu--
	}
	memory, exact := slices.BinarySearch(t.sketch.memory, room.Memory)
	if !exact {
		memory--
	}
	return cpu*len(t.sketch.memory) + memory, vgpu.Room{MilliCPU: t.sketch.cpu[cpu], Memory: t.sketch.memory[memory]}
}

// Taking is what a pod takes of a node, by a table.
type Taking struct {
	host            vgpu.Room
	byCPU, byMemory int64
	slots           int64
	devices         int
}

// Take returns what a pod takes that gets slots of each of so many devices.
func (t *SketchTable) Take(slots vgpu.Slots, devices int, host vgpu.Room) Taking {
	byCPU, byMemory := t.supply(host)
	if t.cpu == 0 {
		byCPU = 0
	}
	if t.memory == 0 {
		byMemory = 0
	}
	return Taking{host: host, byCPU: byCPU, byMemory: byMemory, slots: int64(slots), devices: devices}
}

// Gain returns by how much less GPU the usual requests lose after a pod takes its slots of devices with so many free, in
// milli-GPU × weight: the differences of Lost and of Unfilled.
func (n *Sketched) Gain(p *Taking, free vgpu.Slots) (lost, unfilled int64) {
	t, m := n.table, int64(p.devices)
	rest := free - vgpu.Slots(p.slots)
	before, after := t.milli[free], t.milli[rest]
	idle, left := n.idle-m*(before-after), n.left-m*(t.left[free]-t.left[rest])
	unfilled = max(n.left, n.idle-min(n.byCPU, n.byMemory)) - max(left, idle-min(n.byCPU-p.byCPU, n.byMemory-p.byMemory))
	whole := n.whole
	if free == t.slots && p.slots > 0 {
		whole -= p.devices
	}
	lost = t.unseen(n.idle, n.whole, n.whole == len(n.free)) - t.unseen(idle, whole, n.whole == len(n.free) && p.slots == 0)
	level, room := n.level, n.room.Less(p.host)
	if room.MilliCPU < n.floor.MilliCPU || room.Memory < n.floor.Memory {
		level, _ = t.levelOf(room)
		lost += t.lost(n.free, n.level) - t.lost(n.free, level)
	}
	row := t.runs[level*int(t.slots+1):]
	lost += m * (before*(t.weight-row[free]) - after*(t.weight-row[rest]))
	return lost - t.several(n.level, n.whole) + t.several(level, whole), unfilled * t.weight
}

// unseen returns what the unseen requests lose of a node by its idle milli-GPU and its wholly free devices.
func (t *SketchTable) unseen(idle int64, whole int, untouched bool) int64 {
	lost := idle - int64(whole)*int64(vgpu.WholeGPU)
	if !untouched {
		lost += idle
	}
	return t.sketch.fills.mix.unseen * lost / 2
}

// several returns what kinds of several devices use.
func (t *SketchTable) several(level, whole int) int64 {
	return t.whole[level*(t.devices+1)+min(whole, t.devices)]
}

// lost returns what the kinds of one device lose.
func (t *SketchTable) lost(free []vgpu.Slots, level int) (lost int64) {
	row := t.runs[level*int(t.slots+1):]
	for _, k := range free {
		lost += t.milli[k] * (t.weight - row[k])
	}
	return lost
}
