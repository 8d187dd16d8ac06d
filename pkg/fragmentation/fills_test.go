package fragmentation_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestFills works out what the usual requests leave where their order makes no difference.
func TestFills(t *testing.T) {
	tests := []struct {
		name, node, mix string
		unfilled        int64
	}{
		{"10 slots take three requests of 3", "n1: g0 A100", "slots=3 weight=1", 100},
		{"7 take two", "n1: g0 A100 [a:3]", "slots=3 weight=1", 100},
		{"4 take one", "n1: g0 A100 [a:6]", "slots=3 weight=1", 100},
		{"2 take none", "n1: g0 A100 [a:8]", "slots=3 weight=1", 200},
		{"the sum counts by the weight", "n1: g0 A100 [a:8]", "slots=3 weight=7", 7 * 200},
		{"nothing is idle", "n1: g0 A100 [a:10]", "slots=3 weight=1", 0},
		{"CPU for one", "n1 cpu=3: g0 A100", "slots=5 cpu=2 weight=1", 500},
		{"host memory for one", "n1 memory=7Gi: g0 A100", "slots=5 memory=4Gi weight=1", 500},
		{"device memory for one", "n1: g0 A100", "slots=2 device-memory=25Gi weight=1", 800},
		{"no memory beside a tenant that has much", "n1: g0 A100 [a:2/39Gi]", "slots=2 weight=1", 800},
		{"of whole devices two of three", "n1: g0 A100 | g1 A100 [a:1] | g2 A100", "slots=20 weight=1", 900},
		{"whole devices of one model", "n1: g0 A100 | g1 T4", "slots=20 weight=1", 2000},
		{"a model that may not", "n1: g0 A100 | g1 T4", "slots=2 models=T4 weight=1", 1000},
		{"a slot of a T4 is a quarter", "n1: g0 T4 [a:1]", "slots=2 weight=1", 250},
		{"twice the idle slots are asked for, and no more", "n1 cpu=3: g0 A100", "slots=4 cpu=2 models=T4 weight=1", 1000},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n, m := drawn(t, tc.node), mixOf(t, tc.mix)
			want := m.Of(n, freeOf(n), n.Room())
			want.Unfilled = tc.unfilled
			if got := fragmentation.NewFills(m).Of(n, freeOf(n), n.Room()); got != want {
				t.Errorf("loss %+v, want %+v", got, want)
			}
		})
	}
}

// TestOrders: each request comes in the orders as often as it is usual, the rare and the unseen ones too.
func TestOrders(t *testing.T) {
	f := fragmentation.NewFills(mixOf(t, "slots=1 weight=800\nslots=2 weight=150\nslots=80 weight=10").Expecting(40))
	count, all := map[int32]int{}, 0
	for _, order := range f.Orders() {
		for _, k := range order {
			count[k]++
			all++
		}
	}
	for k, permille := range map[int32]int{0: 800, 1: 150, 2: 10, fragmentation.UntouchedDevice: 20, fragmentation.UntouchedNode: 20} {
		if got := count[k] * 1000 / all; got < permille*8/10-1 || got > permille*12/10+1 {
			t.Errorf("request %d is %d in a thousand, want some %d", k, got, permille)
		}
	}
	if slices.Equal(f.Orders()[0], f.Orders()[1]) {
		t.Error("two orders are the same")
	}
}

// TestFillsTwinProperty: the unfilled GPU is what stays idle in a ledger in which the requests of each order are booked
// one after the other, each on the device with the fewest free slots that takes it, then with the least memory.
func TestFillsTwinProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := randomNode(t, 10), testkit.RandomMix(t)
		if m.Weight() == 0 {
			m = newMix(t, []fragmentation.Kind{testkit.RandomKind(t)})
		}
		m = m.Expecting(rapid.Int64Range(0, 9).Draw(t, "unseen"))
		f, free := fragmentation.NewFills(m), freeOf(n)
		sum := int64(0)
		for _, order := range f.Orders() {
			left := slices.Clone(free)
			fillTwin(m, n, left, order)
			sum += fragmentation.Idle(n, left)
		}
		want := m.Of(n, free, n.Room())
		want.Unfilled = sum / int64(len(f.Orders())) * m.Weight()
		if got := f.Of(n, free, n.Room()); got != want {
			t.Fatalf("%v %v %+v: loss %+v, the twin says %+v", n.Room(), free, m.Kinds(), got, want)
		}
		turned, turnedFree := reordered(t, n, free)
		if got := f.Of(turned, turnedFree, n.Room()); sameShape(n) && got != want {
			t.Fatalf("loss %+v, with the devices in another order %+v", want, got)
		}
	})
}

// TestFillsAlike: nodes of like devices are filled as the twin fills them, whatever is left of their devices.
func TestFillsAlike(t *testing.T) {
	tests := []struct{ name, node, mix string }{
		{"whole devices leave nothing of themselves", "n1: g0 A100 [a:6] | g1 A100 [b:6] | g2 A100 | g3 A100 | g4 A100", "slots=30 weight=1\nslots=5 weight=1"},
		{"the device with the fewest free slots, again and again", "n1: g0 A100 [a:6] | g1 A100", "slots=7 weight=1\nslots=3 weight=1\nslots=4 weight=1"},
		{"rests of many sizes", "n1: g0 A100 [a:5] | g1 A100 [b:3] | g2 A100 | g3 A100 [c:1]", "slots=4 weight=2\nslots=3 weight=2\nslots=1 weight=1"},
	}
	for _, tc := range tests {
		n, f, sum := drawn(t, tc.node), fragmentation.NewFills(mixOf(t, tc.mix)), int64(0)
		for _, order := range f.Orders() {
			left := freeOf(n)
			fillTwin(f.Mix(), n, left, order)
			sum += fragmentation.Idle(n, left)
		}
		want := sum / int64(len(f.Orders())) * f.Mix().Weight()
		if got := f.Of(n, freeOf(n), n.Room()).Unfilled; got != want {
			t.Errorf("%s: unfilled %d, the twin says %d", tc.name, got, want)
		}
	}
}

func sameShape(n *vgpu.Node) bool {
	return !slices.ContainsFunc(n.Devices(), func(d vgpu.Device) bool { return d.Shape() != n.Devices()[0].Shape() })
}

// fillTwin takes an order of requests from what is free.
func fillTwin(m *fragmentation.Mix, n *vgpu.Node, free []vgpu.Use, order []int32) {
	room := n.Room()
	for asked := 2 * fragmentation.Idle(n, free); len(order) > 0 && asked > 0; order = order[1:] {
		kind := fragmentation.Kind{}
		switch order[0] {
		case fragmentation.UntouchedNode:
			for i := range free {
				kind.Slots += n.Devices()[i].Slots
			}
			if !slices.ContainsFunc(indices(free), func(i int) bool { return free[i].Slots < n.Devices()[i].Slots }) {
				clear(free)
			}
		case fragmentation.UntouchedDevice:
			i := slices.IndexFunc(indices(free), func(i int) bool { return free[i].Slots == n.Devices()[i].Slots })
			kind.Slots = n.Devices()[max(0, i)].Slots
			if i >= 0 {
				free[i] = vgpu.Use{}
			}
		default:
			kind = m.Kinds()[order[0]]
			if kind.MilliCPU <= room.MilliCPU && kind.Memory <= room.Memory && (kind.Slots == 0 || bookTwin(kind, n, free)) {
				room = room.Minus(vgpu.Room{MilliCPU: kind.MilliCPU, Memory: kind.Memory})
			}
		}
		if kind.Slots == 0 {
			asked -= 100
		} else {
			asked -= 1000 * int64(kind.Slots) / int64(n.Devices()[0].Slots)
		}
	}
}

func indices(free []vgpu.Use) []int {
	all := make([]int, len(free))
	for i := range all {
		all[i] = i
	}
	return all
}

// bookTwin takes the share of a kind from the devices, by the rules of vgpu for requests.
func bookTwin(k fragmentation.Kind, n *vgpu.Node, free []vgpu.Use) bool {
	r := vgpu.Request{Containers: []vgpu.ContainerRequest{{Slots: k.Slots, Memory: k.DeviceMemory}}}
	if k.Models != "" {
		for _, model := range strings.Split(k.Models, "|") {
			r.Variants = append(r.Variants, vgpu.Variant{Model: model})
		}
	}
	best, bestShare := []int(nil), vgpu.Share{}
	for i := range free {
		share, legal := r.ShareOn(0, &n.Devices()[i])
		if !legal {
			continue
		}
		var on []int
		for _, j := range append([]int{i}, indices(free)...) {
			fits := free[j].Slots >= share.Slots && (share.Devices > 1 || free[j].Memory >= share.Memory)
			if fits && n.Shape(j) == n.Shape(i) && len(on) < share.Devices && !slices.Contains(on, j) {
				on = append(on, j)
			}
		}
		if len(on) == share.Devices && on[0] == i && (best == nil || cmp.Or(cmp.Compare(free[i].Slots, free[best[0]].Slots), cmp.Compare(free[i].Memory, free[best[0]].Memory)) < 0) {
			best, bestShare = on, share
		}
	}
	for _, i := range best {
		free[i].Slots -= bestShare.Slots
		free[i].Memory -= bestShare.Memory
	}
	return best != nil
}

// TestUnseen: half of the unseen requests want an untouched device, half an untouched node. They do not show in kinds,
// weights and what a cluster loses, and a mix without memory has none.
func TestUnseen(t *testing.T) {
	m := mixOf(t, "slots=1 weight=1").Expecting(10)
	tests := []struct {
		node string
		want int64
	}{
		{"n1: g0 A100 | g1 A100", 0},
		{"n1: g0 A100 [a:3] | g1 A100", 5*700 + 5*1700},
		{"n1: g0 A100 [a:10] | g1 A100", 5 * 1000},
		{"n1: g0 A100 [a:10]", 0},
	}
	for _, tc := range tests {
		n := drawn(t, tc.node)
		if got := m.Of(n, freeOf(n), n.Room()); got.Lost != tc.want {
			t.Errorf("%s: lost %d, want %d", tc.node, got.Lost, tc.want)
		}
		if got := m.Typical(99).Of(n, freeOf(n), n.Room()); got.Lost != tc.want {
			t.Errorf("%s: lost %d by the typical requests, want %d", tc.node, got.Lost, tc.want)
		}
		if got := m.WithoutMemory().Of(n, freeOf(n), n.Room()); got.Lost != 0 || m.Lost(n) != 0 {
			t.Errorf("%s: lost %d without memory and %d by Lost, want 0", tc.node, got.Lost, m.Lost(n))
		}
	}
	if m.Weight() != 1 || len(m.Kinds()) != 1 || len(m.Typical(99).Kinds()) != 1 {
		t.Errorf("weight %d, kinds %v", m.Weight(), m.Kinds())
	}
}
