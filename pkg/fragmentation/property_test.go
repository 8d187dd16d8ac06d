package fragmentation_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// randomNode draws a node with pods, holds and a host.
func randomNode(t *rapid.T, devices int) *vgpu.Node {
	c := testkit.RandomCluster(t, 1, devices)
	testkit.Fill(t, c, 5)
	testkit.Furnish(t, c)
	return c.Nodes()[0]
}

// lossTwin computes the loss as the comment of Mix.Of says: each kind by itself, each device by the rules of vgpu for
// requests.
func lossTwin(m *fragmentation.Mix, n *vgpu.Node, free []vgpu.Use, room vgpu.Room) (loss fragmentation.Loss) {
	for _, k := range m.Kinds() {
		idle, usable, largest := int64(0), int64(0), int64(0)
		for i := range n.Devices() {
			d := &n.Devices()[i]
			part := 1000 * int64(free[i].Slots) / int64(d.Slots)
			idle += part
			r := vgpu.Request{Containers: []vgpu.ContainerRequest{{Slots: k.Slots, Memory: k.DeviceMemory}}}
			if k.Models != "" {
				for _, model := range strings.Split(k.Models, "|") {
					r.Variants = append(r.Variants, vgpu.Variant{Model: model})
				}
			}
			share, legal := r.ShareOn(0, d)
			if !legal || k.MilliCPU > room.MilliCPU || k.Memory > room.Memory {
				continue
			}
			alike := 0
			for j := range free {
				if n.Devices()[j].Shape() == d.Shape() && free[j].Slots >= share.Slots && (share.Devices > 1 || free[j].Memory >= share.Memory) {
					alike++
				}
			}
			if free[i].Slots >= share.Slots && (share.Devices > 1 || free[i].Memory >= share.Memory) && alike >= share.Devices {
				usable += part
				largest = max(largest, 1000*int64(k.Slots)/int64(d.Slots))
			}
		}
		fed := usable
		if k.MilliCPU > 0 {
			fed = min(fed, room.MilliCPU*largest/k.MilliCPU)
		}
		if k.Memory > 0 {
			fed = min(fed, int64(room.Memory)*largest/int64(k.Memory))
		}
		loss.Lost += k.Weight * (idle - usable)
		loss.Starved += k.Weight * (usable - fed)
	}
	return loss
}

// TestTwinProperty: Of agrees with its comment.
func TestTwinProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := randomNode(t, 5), testkit.RandomMix(t)
		free := freeOf(n)
		if got, want := m.Of(n, free, n.Room()), lossTwin(m, n, free, n.Room()); got != want {
			t.Fatalf("%v %v %+v: loss %+v, the twin says %+v", n.Room(), free, m.Kinds(), got, want)
		}
	})
}

// TestByDeviceProperty: the parts of the devices add up to the loss, and each is from 0 to what is idle there.
func TestByDeviceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := randomNode(t, 5), testkit.RandomMix(t)
		free, sum := freeOf(n), int64(0)
		for i, lost := range m.ByDevice(n, free, n.Room()) {
			if idle := 1000 * int64(free[i].Slots) / int64(n.Devices()[i].Slots); lost < 0 || lost > idle*m.Weight() {
				t.Fatalf("device %d loses %d of %d times %d", i, lost, idle, m.Weight())
			}
			sum += lost
		}
		if want := m.Of(n, free, n.Room()).Lost; sum != want {
			t.Fatalf("the devices lose %d, the node %d", sum, want)
		}
	})
}

// TestBoundsProperty: the lost and the starved GPU are together at most the idle GPU, in any mix; all of it is lost to a
// mix of pods without GPUs.
func TestBoundsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := randomNode(t, 5), testkit.RandomMix(t)
		free := freeOf(n)
		idle := fragmentation.Idle(n, free)
		loss := m.Of(n, free, n.Room())
		if loss.Lost < 0 || loss.Starved < 0 || loss.Lost+loss.Starved > idle*m.Weight() {
			t.Fatalf("loss %+v of %d times %d", loss, idle, m.Weight())
		}
		if m.Lost(n) != loss.Lost {
			t.Fatalf("lost %d, by Of %d", m.Lost(n), loss.Lost)
		}
		var plain []fragmentation.Kind
		for _, k := range m.Kinds() {
			plain = append(plain, fragmentation.Kind{MilliCPU: k.MilliCPU, Weight: k.Weight})
		}
		if none := newMix(t, plain); none.Lost(n) != idle*m.Weight() {
			t.Fatalf("pods without GPUs lose %d of %d times %d", none.Lost(n), idle, m.Weight())
		}
	})
}

// TestOrderProperty: the order of kinds and of devices does not matter, nor whether a kind is listed in two parts.
func TestOrderProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := randomNode(t, 5), testkit.RandomMix(t)
		free := freeOf(n)
		want := m.Of(n, free, n.Room())
		var kinds []fragmentation.Kind
		for _, k := range m.Kinds() {
			if k.Weight > 1 && rapid.Bool().Draw(t, "in two parts") {
				k.Weight--
				kinds = append(kinds, fragmentation.Kind{MilliCPU: k.MilliCPU, Memory: k.Memory, Slots: k.Slots, DeviceMemory: k.DeviceMemory, Models: k.Models, Weight: 1})
			}
			kinds = append(kinds, k)
		}
		other := newMix(t, kinds)
		if len(kinds) > 1 {
			other = newMix(t, rapid.Permutation(kinds).Draw(t, "kinds"))
		}
		if diff := cmp.Diff(m.Kinds(), other.Kinds()); diff != "" {
			t.Fatalf("another mix of the same kinds (-first +other):\n%s", diff)
		}
		turned, turnedFree := reordered(t, n, free)
		if got := other.Of(turned, turnedFree, n.Room()); got != want {
			t.Fatalf("loss %+v, in another order %+v", want, got)
		}
	})
}

// reordered returns a node with the devices in a drawn order, and what is free of them.
func reordered(t *rapid.T, n *vgpu.Node, free []vgpu.Use) (*vgpu.Node, []vgpu.Use) {
	if len(free) == 0 {
		return n, free
	}
	order := make([]int, len(free))
	for i := range order {
		order[i] = i
	}
	order = rapid.Permutation(order).Draw(t, "devices")
	devices, turned := make([]vgpu.Device, len(free)), make([]vgpu.Use, len(free))
	for to, from := range order {
		devices[to], turned[to] = n.Devices()[from], free[from]
		devices[to].Index = to
	}
	other, err := vgpu.NewNode(n.Name(), devices)
	must.OK(t, err)
	return other, turned
}

// TestScaleProperty: weights times a factor scale the losses, and Typical stays the same kinds. Slots of devices, pods and
// kinds times a factor change nothing.
func TestScaleProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := randomNode(t, 4), testkit.RandomMix(t)
		factor := rapid.Int64Range(2, 9).Draw(t, "factor")
		free := freeOf(n)
		want := m.Of(n, free, n.Room())

		kinds := slices.Clone(m.Kinds())
		for i := range kinds {
			kinds[i].Weight *= factor
		}
		heavy := newMix(t, kinds)
		if got := heavy.Of(n, free, n.Room()); got.Lost != factor*want.Lost || got.Starved != factor*want.Starved {
			t.Fatalf("loss %+v, of %d times the weight %+v", want, factor, got)
		}
		if a, b := len(m.Typical(95).Kinds()), len(heavy.Typical(95).Kinds()); a != b {
			t.Fatalf("%d typical kinds, of %d times the weight %d", a, factor, b)
		}

		kinds = slices.Clone(m.Kinds())
		devices := slices.Clone(n.Devices())
		for i := range kinds {
			kinds[i].Slots *= vgpu.Slots(factor)
		}
		for i := range devices {
			devices[i].Slots *= vgpu.Slots(factor)
			free[i].Slots *= vgpu.Slots(factor)
		}
		fine, err := vgpu.NewNode(n.Name(), devices)
		must.OK(t, err)
		if got := newMix(t, kinds).Of(fine, free, n.Room()); got != want {
			t.Fatalf("loss %+v, in slots of a %d-th %+v", want, factor, got)
		}
	})
}

// TestMemoProperty: a memo says what the mix says, for nodes in turn, also when it is full all the time.
func TestMemoProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := testkit.RandomMix(t)
		memo := fragmentation.NewMemo(m)
		bound := rapid.IntRange(1, 4).Draw(t, "bound")
		memo.Bound(bound)
		var nodes []*vgpu.Node
		for range rapid.IntRange(1, 4).Draw(t, "nodes") {
			nodes = append(nodes, randomNode(t, 10))
		}
		for range rapid.IntRange(1, 12).Draw(t, "questions") {
			n := rapid.SampledFrom(nodes).Draw(t, "node")
			free, room := freeOf(n), n.Room()
			for i := range free {
				if free[i].Slots > 0 && rapid.Bool().Draw(t, "less free") {
					free[i].Slots -= vgpu.Slots(rapid.IntRange(0, int(free[i].Slots)).Draw(t, "less"))
				}
			}
			if rapid.Bool().Draw(t, "another room") {
				room = testkit.RandomRoom(t)
			}
			if got, want := memo.Of(n, free, room), m.Of(n, free, room); got != want {
				t.Fatalf("%v %v: loss %+v, by the mix %+v", free, room, got, want)
			}
			if memo.Known() > bound {
				t.Fatalf("%d states are remembered, at most %d are to be", memo.Known(), bound)
			}
		}
	})
}

// TestTypicalProperty: the typical kinds are the first of all, make up the part, and without the last they do not.
func TestTypicalProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := testkit.RandomMix(t)
		percent := rapid.Int64Range(1, 100).Draw(t, "percent")
		typical := m.Typical(percent)
		kinds := typical.Kinds()
		if diff := cmp.Diff(m.Kinds()[:len(kinds)], kinds); len(kinds) > 0 && diff != "" {
			t.Fatalf("not the most frequent (-want +got):\n%s", diff)
		}
		weight := int64(0)
		for i, k := range kinds {
			if 100*weight >= percent*m.Weight() {
				t.Fatalf("%d of %d kinds suffice for %d percent", i, len(kinds), percent)
			}
			weight += k.Weight
		}
		if weight != typical.Weight() || 100*weight < percent*m.Weight() {
			t.Fatalf("weight %d, of the kinds %d, of %d: want %d percent", typical.Weight(), weight, m.Weight(), percent)
		}
	})
}

// TestWithoutMemoryProperty: the weight stays, and nodes with much memory lose what they lost.
func TestWithoutMemoryProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := randomNode(t, 4), testkit.RandomMix(t)
		plain := m.WithoutMemory()
		if plain.Weight() != m.Weight() {
			t.Fatalf("weight %d without memory, %d with it", plain.Weight(), m.Weight())
		}
		room, free := vgpu.Room{MilliCPU: n.Room().MilliCPU, Memory: 1 << 40}, freeOf(n)
		kinds := slices.Clone(m.Kinds())
		for i := range kinds {
			kinds[i].DeviceMemory = 0
		}
		for i := range free {
			free[i].Memory = 1 << 40
		}
		if got, want := plain.Of(n, freeOf(n), n.Room()), newMix(t, kinds).Of(n, free, room); got != want {
			t.Fatalf("loss %+v without memory, %+v with much of it", got, want)
		}
	})
}

// fataler is a test or a property.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func newMix(t fataler, kinds []fragmentation.Kind) *fragmentation.Mix {
	t.Helper()
	m, err := fragmentation.NewMix(kinds)
	must.OK(t, err)
	return m
}
