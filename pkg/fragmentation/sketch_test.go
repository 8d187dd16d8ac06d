package fragmentation

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// sketchCase is a node of like devices, a mix, and a pod that takes a share of one device or some whole devices.
type sketchCase struct {
	node    *vgpu.Node
	mix     *Mix
	free    []vgpu.Use
	room    vgpu.Room
	slots   vgpu.Slots // of each device
	on      []int
	host    vgpu.Room
	devices []vgpu.Slots // free slots
}

func drawSketchCase(t *rapid.T) sketchCase {
	all := rapid.SampledFrom([]vgpu.Slots{1, 4, 7, 10, 100}).Draw(t, "slots of a device")
	model := rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model")
	var devices []vgpu.Device
	for i := range rapid.IntRange(1, 8).Draw(t, "devices") {
		devices = append(devices, vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprint("g", i)), Index: i, Model: model, Slots: all, Memory: vgpu.Bytes(all) * vgpu.GiB, Healthy: true,
		})
	}
	node, err := vgpu.NewNode("n", devices)
	must.OK(t, err)
	c := sketchCase{node: node, mix: drawSketchMix(t, all)}
	for range devices {
		free := vgpu.Slots(rapid.SampledFrom([]int64{0, int64(all), rapid.Int64Range(0, int64(all)).Draw(t, "some")}).Draw(t, "free"))
		c.free = append(c.free, vgpu.Use{Slots: free, Memory: vgpu.Bytes(free) * vgpu.GiB})
		c.devices = append(c.devices, free)
	}
	c.room = vgpu.Room{MilliCPU: rapid.Int64Range(-1, 12).Draw(t, "CPU"), Memory: vgpu.Bytes(rapid.Int64Range(-1, 12).Draw(t, "memory"))}
	c.host = vgpu.Room{MilliCPU: rapid.Int64Range(0, 4).Draw(t, "CPU taken"), Memory: vgpu.Bytes(rapid.Int64Range(0, 4).Draw(t, "memory taken"))}
	c.take(t, all)
	return c
}

// take draws the devices of the pod: one that has the share free, or whole ones.
func (c *sketchCase) take(t *rapid.T, all vgpu.Slots) {
	at := rapid.IntRange(0, len(c.free)-1).Draw(t, "device")
	c.slots, c.on = vgpu.Slots(rapid.Int64Range(0, int64(c.devices[at])).Draw(t, "taken")), []int{at}
	if c.slots < all {
		return
	}
	for i := range c.devices {
		if i != at && c.devices[i] == all && rapid.Bool().Draw(t, "another") {
			c.on = append(c.on, i)
		}
	}
}

// drawSketchMix draws kinds that levels tell apart: few amounts of CPU and of memory.
func drawSketchMix(t *rapid.T, all vgpu.Slots) *Mix {
	var kinds []Kind
	for range rapid.IntRange(1, 12).Draw(t, "kinds") {
		kinds = append(kinds, Kind{
			MilliCPU: rapid.Int64Range(0, 10).Draw(t, "CPU"), Memory: vgpu.Bytes(rapid.Int64Range(0, 10).Draw(t, "memory")),
			Slots:  vgpu.Slots(rapid.SampledFrom([]int64{0, 1, 2, 3, int64(all), 2 * int64(all), 8 * int64(all), 9*int64(all) + 1}).Draw(t, "slots")),
			Models: rapid.SampledFrom([]string{"", "", "A", "A|B", "C"}).Draw(t, "models"), Weight: rapid.Int64Range(1, 100).Draw(t, "weight"),
		})
	}
	m, err := NewMix(kinds)
	must.OK(t, err)
	return m.Expecting(rapid.Int64Range(0, 20).Draw(t, "unseen") * 2)
}

// TestSketchKnowsLostProperty: where the levels tell all kinds apart and memory of devices does not count, a sketch knows
// exactly how much more GPU is lost when a pod takes devices.
func TestSketchKnowsLostProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSketchCase(t)
		d := c.node.Devices()[0]
		table := NewSketch(NewFills(c.mix)).On(d.Model, d.Slots)
		n := table.Node(c.devices, c.room)
		p := table.Take(c.slots, len(c.on), c.host)
		got, _ := n.Gain(&p, c.devices[c.on[0]])

		after := slices.Clone(c.free)
		for _, i := range c.on {
			after[i].Slots -= c.slots
			after[i].Memory -= vgpu.Bytes(c.slots) * vgpu.GiB
		}
		want := c.mix.Of(c.node, c.free, c.room).Lost - c.mix.Of(c.node, after, c.room.Less(c.host)).Lost
		if got != want {
			t.Fatalf("the sketch says that %d less is lost, Mix.Of says %d: %+v, kinds %+v", got, want, c, c.mix.Kinds())
		}
	})
}

// TestSketchKnowsOneDeviceProperty: a sketch knows exactly what stays unfilled of a node of one device whose host has all
// the CPU and memory that the usual requests may want.
func TestSketchKnowsOneDeviceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawSketchCase(t)
		d := c.node.Devices()[0]
		one, err := vgpu.NewNode("one", []vgpu.Device{d})
		must.OK(t, err)
		fills, ample := NewFills(c.mix), vgpu.Room{MilliCPU: 1 << 30, Memory: 1 << 30}
		table := NewSketch(fills).On(d.Model, d.Slots)
		slots := min(c.slots, c.devices[0])
		n, p := table.Node(c.devices[:1], ample), table.Take(slots, 1, vgpu.Room{})
		_, got := n.Gain(&p, c.devices[0])
		after := []vgpu.Use{{Slots: c.devices[0] - slots, Memory: vgpu.Bytes(c.devices[0]-slots) * vgpu.GiB}}
		if want := fills.Of(one, c.free[:1], ample).Unfilled - fills.Of(one, after, ample).Unfilled; got != want {
			t.Fatalf("the sketch says that %d less is unfilled, Fills says %d", got, want)
		}
	})
}

// A host whose CPU suffices for a part of its free GPU leaves the rest: 2 devices of 10 slots are free, and requests of 5
// slots want 2 cores each. 4 cores suffice for 1000 of 2000 milli-GPU. A pod of 5 slots that takes 2 cores leaves CPU for 500
// of 1500; one that takes no CPU leaves it for 1000 of 1500, and so 500 less stay unfilled.
func TestSketchCountsHosts(t *testing.T) {
	m, err := NewMix([]Kind{{MilliCPU: 2000, Slots: 5, Weight: 3}})
	must.OK(t, err)
	table := NewSketch(NewFills(m)).On("A", 10)
	n := table.Node([]vgpu.Slots{10, 10}, vgpu.Room{MilliCPU: 4000})
	for cpu, want := range map[int64]int64{2000: 0, 0: 500 * 3} {
		p := table.Take(5, 1, vgpu.Room{MilliCPU: cpu})
		if _, got := n.Gain(&p, 10); got != want {
			t.Errorf("with %d of CPU, %d less is unfilled, want %d", cpu, got, want)
		}
	}
}

// Levels are a few of the amounts, the least and the most among them, and one for hosts that lack something.
func TestLevels(t *testing.T) {
	var many []int64
	for i := range int64(1000) {
		many = append(many, 1000-i, 1000-i)
	}
	got := levels(many, 4)
	if want := []int64{math.MinInt64, 1, 334, 667, 1000}; !slices.Equal(got, want) {
		t.Errorf("levels of 1 to 1000 = %v, want %v", got, want)
	}
	if got, want := levels([]int64{7, 3, 7}, 4), []int64{math.MinInt64, 3, 7}; !slices.Equal(got, want) {
		t.Errorf("levels of 7, 3 and 7 = %v, want %v", got, want)
	}
}

// Devices of very many slots have no sketch. A user who invents models takes it from nobody.
func TestSketchHasBounds(t *testing.T) {
	var kinds []Kind
	for i := range maxModels + 1 {
		kinds = append(kinds, Kind{Slots: 1, Models: fmt.Sprintf("M%03d", i), Weight: 1})
	}
	for name, tc := range map[string]struct {
		kinds []Kind
		slots vgpu.Slots
		want  bool
	}{
		"usual":       {kinds[:1], 10, true},
		"many slots":  {kinds[:1], maxSlotsAlike + 1, false},
		"many models": {kinds, 10, true},
	} {
		m, err := NewMix(tc.kinds)
		must.OK(t, err)
		if got := NewSketch(NewFills(m)).On("A", tc.slots) != nil; got != tc.want {
			t.Errorf("%s: has a sketch: %t, want %t", name, got, tc.want)
		}
	}
}
