package placement_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// rate is the policy's part of a score, in parts per million.
func rate(score int64) int64 { return score % 1e17 / 1e10 }

const (
	percent = 10_000
	// tied is tandem's rate of a place that loses and gains nothing.
	tied = 500_000
)

// rates are worked out by hand: one node, one request, the policy's rate of the best place.
var rates = []struct {
	name, policy string
	node, mix    string
	before       [][]vgpu.Slots // pods that run, by their containers
	request      *vgpu.Request
	want         int64
}{
	{
		name: "the example: 32 cores and 2 GPUs are left", policy: "bestfit",
		node: "n1 cpu=36: g0 A100 | g1 A100 | g2 A100", request: hosted(testkit.Request("new", 10), 4000, 0), want: 75 * percent,
	},
	{
		name: "more than the largest node has", policy: "bestfit", // 190 cores and 9 GPUs left count as 128 and 8
		node: "n1 cpu=200: " + eight + " | g8 A100 | g9 A100", request: hosted(testkit.Request("new", 10), 10000, 0), want: 0,
	},
	{
		name: "a pod without GPUs", policy: "bestfit", // 32 cores and none are left: 100·(1 − (0.25 + 0)/2) = 87.5
		node: "n1 cpu=64: g0 A100 [a:10]", request: hosted(&vgpu.Request{UID: "new"}, 32000, 0), want: 87 * percent,
	},
	{
		name: "nothing is left", policy: "bestfit", node: "n1 cpu=1: g0 A100", request: hosted(testkit.Request("new", 10), 1000, 0), want: 100 * percent,
	},
	{
		name: "the example: 16 of 64 cores, one of 4 GPUs", policy: "dotprod",
		node: "n1 cpu=64: g0 A100 | g1 A100 | g2 A100 | g3 A100", request: hosted(testkit.Request("new", 10), 16000, 0), want: 93 * percent,
	},
	{
		name: "more than the largest node has", policy: "dotprod", // 1·1 of both: 100·(1 − (1 + 1)/2)
		node: "n1 cpu=200: " + eight + " | g8 A100 | g9 A100", request: hosted(testkit.Request("new", 100), 130000, 0), want: 0,
	},
	{
		name: "a pod without GPUs", policy: "dotprod", // 0.5·0.5 of CPU, 0 of GPU: 100·(1 − 0.25/2) = 87.5
		node: "n1 cpu=64: g0 A100", request: hosted(&vgpu.Request{UID: "new"}, 64000, 0), want: 87 * percent,
	},
	{
		name: "the example: shares and whole devices run, 2 are idle", policy: "clustering", // 50 + 25·6/8 = 68.75
		node:    "n1: g0 A100 [a:10] | g1 A100 [b:10] | g2 A100 [c:10] | g3 A100 [d:10] | g4 A100 [e:10] | g5 A100 [f:5 g:5] | g6 A100 | g7 A100",
		request: testkit.Request("new", 3), want: 68 * percent,
	},
	{
		name: "shares run only", policy: "clustering", // 75 + 25·(8 − 1.5)/8 = 95.3
		node: "n1: g0 A100 [a:5] | g1 A100", request: testkit.Request("new", 3), want: 95 * percent,
	},
	{
		name: "a share that fills a used device", policy: "clustering", // still a share beside a share: 75 + 25·(8 − 0.3)/8 = 99.1
		node: "n1: g0 A100 [a:7]", request: testkit.Request("new", 3), want: 99 * percent,
	},
	{
		name: "a pod counts by its largest container, whichever is the last", policy: "clustering", // 75 + 25·(8 − 5)/8 = 84.4
		node: "n1: " + eight, before: [][]vgpu.Slots{{20, 10}}, request: testkit.Request("new", 20), want: 84 * percent,
	},
	{
		name: "nothing runs", policy: "clustering", // 25 + 25·(8 − 2)/8 = 43.75
		node: "n1: g0 A100 | g1 A100", request: testkit.Request("new", 3), want: 43 * percent,
	},
	{
		name: "whole devices run only", policy: "clustering", // 0 + 25·7/8 = 21.9
		node: "n1: g0 A100 [a:10] | g1 A100", request: testkit.Request("new", 3), want: 21 * percent,
	},
	{
		name: "a whole device beside one", policy: "clustering", // 75 + 25·7/8
		node: "n1: g0 A100 [a:10] | g1 A100", request: testkit.Request("new", 10), want: 96 * percent,
	},
	{
		name: "a whole device beside two of one pod", policy: "clustering", // another size: 0 + 25·6/8 = 18.75
		node: "n1: g0 A100 | g1 A100 | g2 A100 | g3 A100", before: [][]vgpu.Slots{{20}}, request: testkit.Request("new", 10), want: 18 * percent,
	},
	{
		name: "two whole devices beside two of one pod", policy: "clustering", // 75 + 25·6/8
		node: "n1: g0 A100 | g1 A100 | g2 A100 | g3 A100", before: [][]vgpu.Slots{{20}}, request: testkit.Request("new", 20), want: 93 * percent,
	},
	{
		name: "two whole devices beside two and one", policy: "clustering", // 50 + 25·5/8 = 65.6
		node: "n1: " + eight, before: [][]vgpu.Slots{{20}, {10}}, request: testkit.Request("new", 20), want: (50 + 9) * percent,
	},
	{
		name: "a pod counts by its largest container", policy: "clustering", // two devices and a share of a third: 75 + 25·(8 − 2.9)/8 = 90.9
		node: "n1: g0 A100 | g1 A100 | g2 A100 | g3 A100 | g4 A100", before: [][]vgpu.Slots{{1, 20}}, request: testkit.Request("new", 20), want: 90 * percent,
	},
	{
		name: "more idle than the largest node has", policy: "clustering", // 25 + 0
		node: "n1: " + eight + " | g8 A100", request: testkit.Request("new", 3), want: 25 * percent,
	},
	{
		name: "a pod without GPUs", policy: "clustering", node: "n1: g0 A100 [a:5]", request: &vgpu.Request{UID: "new"}, want: 0,
	},
	{
		name: "the example: a share of a used device with 600 of 1000 free", policy: "packing",
		node: fine + "n1: g0 FINE [a:400]", request: testkit.Request("new", 100), want: 94 * percent,
	},
	{
		name: "the example: an idle device of a used node", policy: "packing",
		node: fine + "n1: g0 FINE [a:400] | g1 FINE", request: testkit.Request("new", 700), want: 49 * percent,
	},
	{
		name: "the example: an idle node of 8 devices", policy: "packing", node: "n1: " + eight, request: testkit.Request("new", 3), want: 25 * percent,
	},
	{
		name: "two idle devices of a used node", policy: "packing",
		node: "n1: g0 A100 [a:4] | g1 A100 | g2 A100", request: testkit.Request("new", 20), want: 48 * percent,
	},
	{
		// A used device and an idle one: it opens one.
		name: "a share of a used device and one of an idle device", policy: "packing",
		node: "n1: g0 A100 [a:4] | g1 A100", request: testkit.Request("new", 6, 6), want: 49 * percent,
	},
	{
		name: "18 idle devices of a used node, still above an idle node", policy: "packing",
		node: "n1: " + devices(19, "[a:1]"), request: testkit.Request("new", 180), want: 33 * percent,
	},
	{
		name: "an idle node of 40 devices", policy: "packing", node: "n1: " + devices(40, ""), request: testkit.Request("new", 3), want: 0,
	},
	{
		// 90 percent free on each of six, 540 together: still above all that opens a device.
		name: "many used devices", policy: "packing",
		node:    "n1: g0 A100 [a:1] | g1 A100 [b:1] | g2 A100 [c:1] | g3 A100 [d:1] | g4 A100 [e:1] | g5 A100 [f:1]",
		request: testkit.Request("new", 9, 9, 9, 9, 9, 9), want: 50 * percent,
	},
	{
		name: "a pod without GPUs", policy: "packing", node: "n1: g0 A100 [a:5]", request: &vgpu.Request{UID: "new"}, want: 0,
	},
}

// devices draws k devices, owners on the first of them.
func devices(k int, owners string) string {
	text := "g0 A100 " + owners
	for i := 1; i < k; i++ {
		text += fmt.Sprintf(" | g%d A100", i)
	}
	return text
}

func TestRates(t *testing.T) {
	for _, tc := range rates {
		t.Run(tc.policy+"/"+tc.name, func(t *testing.T) {
			n := drawn(t, tc.node)
			for i, slots := range tc.before {
				place(t, n, testkit.Request(fmt.Sprint("before-", i), slots...))
			}
			if got := rate(placement.Score(n, tc.request, policyBy(t, tc.policy, tc.mix, 1))); got != tc.want {
				t.Errorf("rate %d, want %d", got, tc.want)
			}
		})
	}
}

// drawn returns the node of a drawing, in no cluster.
func drawn(t *testing.T, drawing string) *vgpu.Node {
	t.Helper()
	c, err := testkit.Parse(drawing)
	must.OK(t, err)
	return c.Nodes()[0].Clone()
}

// TestGradient: how fgd rates what the usual requests lose by a pod, or gain. Slots are thousandths, so a slot
// is a milli-GPU.
func TestGradient(t *testing.T) {
	// gains has no use for the device, so that a pod takes what is lost: d is its slots.
	const gains = "slots=10 models=OTHER weight=3"
	tests := []struct {
		name, node, mix string
		slots           vgpu.Slots
		cpu             int64
		fgd             int64
	}{
		// 100/(1 + e^−0.04) = 50.9999, 100/(1 + e^−0.041) = 51.02.
		{"39 less lost", "g0 FINE", gains, 39, 0, 50},
		{"40 less lost", "g0 FINE", gains, 40, 0, 50},
		{"41 less lost", "g0 FINE", gains, 41, 0, 51},
		{"79 less lost", "g0 FINE", gains, 79, 0, 51},
		{"80 less lost", "g0 FINE", gains, 80, 0, 51},
		{"1000 less lost", "g0 FINE", gains, 1000, 0, 73}, // 100/(1 + 1/e) = 73.1
		// All of 1000 is of use to 600; where 401 or more are taken, the rest is lost.
		{"nothing lost", "g0 FINE", "slots=600 weight=3", 400, 0, 50},
		{"599 more lost", "g0 FINE", "slots=600 weight=3", 401, 0, 35}, // 100/(1 + e^0.599) = 35.5
		{"300 more lost, the example of fgd", "g0 FINE", "slots=600 weight=3", 700, 0, 42},
		{"41 more lost", "g0 FINE", "slots=600 weight=3", 959, 0, 48},
		{"40 more lost", "g0 FINE", "slots=600 weight=3", 960, 0, 49}, // 100/(1 + e^0.04) = 49.0001
		{"1 more lost", "g0 FINE", "slots=600 weight=3", 999, 0, 49},
		{"all taken", "g0 FINE", "slots=600 weight=3", 1000, 0, 50},
		// 100 are left, which the first cannot use and the second can: (3·−100 + 1·0)/4 = −75.
		{"the mean of two kinds", "g0 FINE", "slots=600 weight=3\nslots=100 weight=1", 900, 0, 48},
		// With 1 core left by a thousandth less the kind does not run: d = −1000, 100/(1 + e) = 26.9.
		{"CPU is short by a thousandth", "g0 FINE", "slots=500 cpu=1 weight=3", 0, 1, 26},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n := drawn(t, fine+"n1: "+tc.node)
			n.SetRoom(vgpu.Room{MilliCPU: 1000})
			r := &vgpu.Request{UID: "new", Host: vgpu.Room{MilliCPU: tc.cpu}}
			if tc.slots > 0 {
				r = hosted(testkit.Request("new", tc.slots), tc.cpu, 0)
			}
			if got := rate(placement.Score(n, r, policyBy(t, "fgd", tc.mix, 0))); got != tc.fgd*percent {
				t.Errorf("fgd: rate %d, want %d", got, tc.fgd*percent)
			}
		})
	}
}

// TestTandem: tandem rates in steps of 80 milli-GPU what a pod changes: five twelfths of what is lost, a twelfth of what is
// starved, seven twelfths of what is unfilled, rounded down. A slot of an A100 is 100 milli-GPU.
func TestTandem(t *testing.T) {
	const threes, cored = "slots=3 weight=3", "slots=5 cpu=1 weight=3"
	tests := []struct {
		name, node, mix string
		slots           vgpu.Slots
		cpu             int64
		steps           int64
	}{
		// One slot of 10, 7 or 4 free ones stays unfilled in the end.
		{"a new device for threes", "n1: g0 A100", threes, 3, 0, 0},
		{"1 slot is left", "n1: g0 A100 [a:6]", threes, 3, 0, -1}, // 100 lost: −500/960
		{"nothing is left", "n1: g0 A100 [a:7]", threes, 3, 0, 0},
		{"a gap is filled", "n1: g0 A100 [a:8]", threes, 2, 0, 2},       // 200 neither lost nor unfilled any more: 2400/960
		{"6 are left for threes", "n1: g0 A100 [a:3]", threes, 1, 0, 0}, // 100 less unfilled: 700/960
		{"5 are left for threes", "n1: g0 A100 [a:3]", threes, 2, 0, -1},
		// A pod without GPUs takes a core of two: 500 are starved and unfilled, (−500 − 7·500)/960.
		{"CPU for one request instead of two", "n1 cpu=2: g0 A100", cored, 0, 1000, -5},
		// It takes a thousandth more: 1000 are lost and unfilled, −12000/960.
		{"CPU for none", "n1 cpu=2: g0 A100", cored, 0, 1001, -13},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := &vgpu.Request{UID: "new", Host: vgpu.Room{MilliCPU: tc.cpu}}
			if tc.slots > 0 {
				r = hosted(testkit.Request("new", tc.slots), tc.cpu, 0)
			}
			if got := rate(placement.Score(drawn(t, tc.node), r, policyBy(t, "tandem", tc.mix, 0))); got != tied+tc.steps {
				t.Errorf("rate %d, want %d", got, tied+tc.steps)
			}
		})
	}
}

// TestLeastLeft: the order of devices for which a rate is the same, by slots and memory.
func TestLeastLeft(t *testing.T) {
	d := testkit.A100.Device("n1", 0)
	tests := []struct {
		left vgpu.Use
		want int64
	}{
		{vgpu.Use{Slots: 5, Memory: 4 * vgpu.GiB}, 700_000},
		{vgpu.Use{Slots: 10, Memory: 40 * vgpu.GiB}, 0},
		{vgpu.Use{}, 1_000_000},
		{vgpu.Use{Slots: 1}, 950_000},
		{vgpu.Use{Memory: 4 * vgpu.GiB}, 950_000},
	}
	for _, tc := range tests {
		if got := placement.LeastLeft(&d, tc.left); got != tc.want {
			t.Errorf("%v left: %d, want %d", tc.left, got, tc.want)
		}
	}
	large := vgpu.Device{ID: "d", Slots: 1, Memory: 1 << 50}
	if got := placement.LeastLeft(&large, vgpu.Use{Memory: 1 << 49}); got != 750_000 {
		t.Errorf("half of a PiB left: %d, want 750000", got)
	}
}

// TestWithoutMix: fgd and tandem that know no usual requests score like packed.
func TestWithoutMix(t *testing.T) {
	none, err := fragmentation.NewMix(nil)
	must.OK(t, err)
	n, r := drawn(t, "n1 cpu=8: g0 A100 [a:4] | g1 A100"), hosted(testkit.Request("new", 3), 2000, 0)
	want := placement.Score(n, r, placement.Policy{})
	for _, name := range []string{"fgd", "tandem"} {
		bare, err := placement.ByName(name)
		must.OK(t, err)
		given := policyBy(t, name, fives, 0)
		for what, p := range map[string]placement.Policy{
			"as ByName gives it": bare, "with no mix": bare.With(nil, 7), "with an empty mix": bare.With(none, 7),
			"with one that is taken away": given.With(nil, 7),
		} {
			if got := placement.Score(n, r, p); got != want {
				t.Errorf("%s %s: score %d, want %d", name, what, got, want)
			}
		}
		if got := placement.Score(n, r, given); got == want {
			t.Errorf("%s with a mix scores like packed", name)
		}
	}
}
