package fragmentation_test

import (
	"slices"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestOf works losses out by hand. An A100 has 10 slots, so a slot of it is 100 milli-GPU; a T4 has 4, of 250 each.
func TestOf(t *testing.T) {
	tests := []struct {
		name, node, mix string
		want            fragmentation.Loss
	}{
		{
			// 5 slots: the 4 of g0 are lost. For the 1000 of g1 the 3 cores suffice to 3000·500/2000 = 750: 250 starved. Both
			// twice. 20 slots are two wholly free devices: 1400 lost.
			name: "the example of Of",
			node: "n1 cpu=3: g0 A100 [a:6] | g1 A100",
			mix:  "slots=5 cpu=2 weight=2\nslots=20 weight=1",
			want: fragmentation.Loss{Lost: 2*400 + 1400, Starved: 2 * 250},
		},
		{
			name: "no kinds", node: "n1: g0 A100", want: fragmentation.Loss{},
		},
		{
			name: "nothing is idle", node: "n1 cpu=1: g0 A100 [a:10]", mix: "slots=5 weight=1\nweight=2", want: fragmentation.Loss{},
		},
		{
			name: "no devices", node: "n1 cpu=1:", mix: "slots=5 weight=1\nweight=2", want: fragmentation.Loss{},
		},
		{
			// 2000 idle, none of it of use to a pod without GPUs.
			name: "a kind without GPUs", node: "n1 cpu=8: g0 A100 | g1 A100", mix: "cpu=1 weight=3",
			want: fragmentation.Loss{Lost: 3 * 2000},
		},
		{
			name: "CPU is short by a thousandth", node: "n1 cpu=1999m: g0 A100", mix: "slots=5 cpu=2 weight=1",
			want: fragmentation.Loss{Lost: 1000},
		},
		{
			// It suffices for one pod of 500 exactly.
			name: "CPU suffices once", node: "n1 cpu=2: g0 A100", mix: "slots=5 cpu=2 weight=1",
			want: fragmentation.Loss{Starved: 500},
		},
		{
			name: "CPU suffices for all", node: "n1 cpu=4: g0 A100", mix: "slots=5 cpu=2 weight=1", want: fragmentation.Loss{},
		},
		{
			name: "memory is short", node: "n1 memory=3Gi: g0 A100", mix: "slots=5 memory=4Gi weight=1",
			want: fragmentation.Loss{Lost: 1000},
		},
		{
			// 6 GiB suffice for 6·500/4 = 750.
			name: "memory suffices for some", node: "n1 memory=6Gi: g0 A100", mix: "slots=5 memory=4Gi weight=1",
			want: fragmentation.Loss{Starved: 250},
		},
		{
			// CPU for 2000·500/1000 = 1000, memory for 6·500/4 = 750: the scarcer counts.
			name: "the scarcer of CPU and memory", node: "n1 cpu=2 memory=6Gi: g0 A100", mix: "slots=5 cpu=1 memory=4Gi weight=1",
			want: fragmentation.Loss{Starved: 250},
		},
		{
			// Only the 400 of g0 are lost: 600 − 400 on g1 is room for no second pod, and not lost while the first fits.
			name: "too little on one device", node: "n1: g0 A100 [a:6] | g1 A100 [b:4]", mix: "slots=5 weight=1",
			want: fragmentation.Loss{Lost: 400},
		},
		{
			name: "just enough", node: "n1: g0 A100 [a:5] | g1 A100 [b:6]", mix: "slots=5 weight=1",
			want: fragmentation.Loss{Lost: 400},
		},
		{
			// The 500 of the T4 are of no use to pods that may use A100 or V100 only.
			name: "models", node: "n1: g0 A100 [a:5] | g1 T4 [b:2]", mix: "slots=2 models=A100|V100 weight=1",
			want: fragmentation.Loss{Lost: 500},
		},
		{
			name: "no device of the models", node: "n1: g0 A100", mix: "slots=2 models=T4|V100 weight=1",
			want: fragmentation.Loss{Lost: 1000},
		},
		{
			// 10 slots are one A100; free are 9, 10 and 10.
			name: "one whole device", node: "n1: g0 A100 [a:1] | g1 A100 | g2 A100", mix: "slots=10 weight=1",
			want: fragmentation.Loss{Lost: 900},
		},
		{
			name: "two whole devices", node: "n1: g0 A100 [a:1] | g1 A100 | g2 A100", mix: "slots=20 weight=1",
			want: fragmentation.Loss{Lost: 900},
		},
		{
			name: "three whole devices, two are free", node: "n1: g0 A100 [a:1] | g1 A100 | g2 A100", mix: "slots=30 weight=1",
			want: fragmentation.Loss{Lost: 2900},
		},
		{
			// A pod of two devices has 2000 milli-GPU. 6 cores suffice for 6000·2000/4000 = 3000 of 4000.
			name: "whole devices and CPU", node: "n1 cpu=6: g0 A100 | g1 A100 | g2 A100 | g3 A100", mix: "slots=20 cpu=4 weight=1",
			want: fragmentation.Loss{Starved: 1000},
		},
		{
			// 15 is no part of 10 and no multiple; 5 is neither of 4.
			name: "illegal slots", node: "n1: g0 A100 | g1 A100", mix: "slots=15 weight=1",
			want: fragmentation.Loss{Lost: 2000},
		},
		{
			name: "legal on one of two shapes", node: "n1: g0 A100 | g1 T4 | g2 T4", mix: "slots=5 weight=1",
			want: fragmentation.Loss{Lost: 2000},
		},
		{
			// 8 slots are 800 of an A100 or two T4, of which one is free only.
			name: "a share here, whole devices there", node: "n1: g0 A100 | g1 T4 | g2 T4 [a:1]", mix: "slots=8 weight=1",
			want: fragmentation.Loss{Lost: 1000 + 750},
		},
		{
			name: "both shapes serve", node: "n1: g0 A100 | g1 T4 | g2 T4", mix: "slots=8 weight=1", want: fragmentation.Loss{},
		},
		{
			// 20 slots are two A100 or five T4: one A100 and three T4 have 22 slots, and serve no request.
			name: "whole devices are of one shape", node: "n1: g0 A100 | g1 T4 | g2 T4 | g3 T4", mix: "slots=20 weight=1",
			want: fragmentation.Loss{Lost: 4000},
		},
		{
			name: "whole devices are of one model", node: "n1: g0 A100 | g1 H100", mix: "slots=20 weight=1",
			want: fragmentation.Loss{Lost: 2000},
		},
		{
			// On a T4 2 slots are 500, on an A100 200. 3 cores suffice for 3000·500/2000 = 750 of 2000, whichever is first.
			name: "a small device first", node: "n1 cpu=3: g0 T4 | g1 A100", mix: "slots=2 cpu=2 weight=1",
			want: fragmentation.Loss{Starved: 1250},
		},
		{
			name: "a large device first", node: "n1 cpu=3: g0 A100 | g1 T4", mix: "slots=2 cpu=2 weight=1",
			want: fragmentation.Loss{Starved: 1250},
		},
		{
			// On A100 only, 2 slots are 200: 3000·200/2000 = 300 of 1000.
			name: "the size on the devices that serve", node: "n1 cpu=3: g0 T4 | g1 A100", mix: "slots=2 cpu=2 models=A100 weight=1",
			want: fragmentation.Loss{Lost: 1000, Starved: 700},
		},
		{
			// Nothing of a sick device is free, so nothing of it is idle.
			name: "a sick device", node: "n1: g0 A100 sick | g1 A100 [a:7]", mix: "slots=5 weight=1\nslots=2 weight=1",
			want: fragmentation.Loss{Lost: 300},
		},
		{
			// Two whole devices are asked for, one of the two is sick.
			name: "a sick device beside a free one", node: "n1: g0 A100 sick | g1 A100", mix: "slots=20 weight=1",
			want: fragmentation.Loss{Lost: 1000},
		},
		{
			name: "slots of half a milli-GPU", node: "model HALF slots=2000 memory=2Gi\nn1: g0 HALF [a:999]", mix: "slots=2000 weight=1",
			want: fragmentation.Loss{Lost: 500},
		},
		{
			// A third of a device is 333 milli-GPU, rounded down for each of them.
			name: "rounding", node: "model THIRD slots=3 memory=3Gi\nn1: g0 THIRD [a:2] | g1 THIRD [b:2]", mix: "slots=2 weight=1",
			want: fragmentation.Loss{Lost: 666},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n, m := drawn(t, tc.node), mixOf(t, tc.mix)
			if got := m.Of(n, freeOf(n), n.Room()); got != tc.want {
				t.Errorf("loss %+v, want %+v", got, tc.want)
			}
			if got := m.Lost(n); got != tc.want.Lost {
				t.Errorf("lost %d, want %d", got, tc.want.Lost)
			}
		})
	}
}

func TestByDevice(t *testing.T) {
	n := drawn(t, "n1 cpu=3: g0 A100 [a:6] | g1 A100")
	got := mixOf(t, "slots=5 cpu=2 weight=2\nslots=20 weight=1").ByDevice(n, freeOf(n), n.Room())
	if want := []int64{2*400 + 400, 1000}; !slices.Equal(got, want) {
		t.Errorf("the devices lose %v, want %v", got, want)
	}
}

// TestOfUsesItsArguments: Of uses its arguments and not the ledger of the node, so that policies rate a placement
// before it is booked.
func TestOfUsesItsArguments(t *testing.T) {
	n, m := drawn(t, "n1 cpu=8: g0 A100 | g1 A100 [a:5]"), mixOf(t, "slots=5 cpu=2 weight=1")
	got := m.Of(n, []vgpu.Use{{Slots: 4, Memory: 16 * vgpu.GiB}, {Slots: 10, Memory: 40 * vgpu.GiB}}, vgpu.Room{MilliCPU: 2000}) // 400 lost; CPU for 500 of 1000
	if want := (fragmentation.Loss{Lost: 400, Starved: 500}); got != want {
		t.Errorf("loss %+v, want %+v", got, want)
	}
}

// TestNoAllocation: placement calls Of for each device of each node of a cluster.
func TestNoAllocation(t *testing.T) {
	n, m := drawn(t, "n1 cpu=8 memory=9Gi: g0 A100 | g1 A100 [a:5] | g2 T4"), mixOf(t, "slots=5 cpu=2 weight=2\nslots=20 models=A100|V100 weight=1\nweight=2")
	free := freeOf(n)
	if got := testing.AllocsPerRun(100, func() { m.Of(n, free, n.Room()) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func drawn(t *testing.T, drawing string) *vgpu.Node {
	t.Helper()
	c, err := testkit.Parse(drawing)
	must.OK(t, err)
	return c.Nodes()[0]
}

// mixOf reads a mix; an empty text is the mix without kinds.
func mixOf(t *testing.T, text string) *fragmentation.Mix {
	t.Helper()
	if text == "" {
		m, err := fragmentation.NewMix(nil)
		must.OK(t, err)
		return m
	}
	m, err := testkit.ParseMix(text)
	must.OK(t, err)
	return m
}

// freeOf returns what is free of the devices for a pod of priority 0.
func freeOf(n *vgpu.Node) []vgpu.Use {
	free := make([]vgpu.Use, len(n.Devices()))
	for i := range free {
		free[i] = n.FreeFor(i, &vgpu.Request{})
	}
	return free
}
