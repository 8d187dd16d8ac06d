package placement_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestScore works out the example of Score: packed, 3 slots to a device with 6 free, on a node with 4 of 20 taken.
func TestScore(t *testing.T) {
	tests := []struct {
		name, cluster, policy string
		request               *vgpu.Request
		want                  int64
	}{
		// 63·10¹⁷ + (1 − 3/10)·10⁶·10¹⁰ + 999·10⁷ + 4/20·10⁶
		{"a share, packed", "n1: g0 A100 [a:4] | g1 A100", "packed", testkit.Request("new", 3), 6307000009990200000},
		// g1: 7 of 10 left; the node has 16 of 20 free.
		{"a share, spread", "n1: g0 A100 [a:4] | g1 A100", "spread", testkit.Request("new", 3), 6307000009990800000},
		// 1.3 GPUs are left of 8, and no CPU: 100·(1 − 0.1625/2) = 91.9. Neither the device nor the node count.
		{"a share, bestfit", "n1: g0 A100 [a:4] | g1 A100", "bestfit", testkit.Request("new", 3), 6309100009990000000},
		// 100·(1 − (1.6/8)(0.3/8)/2) = 99.6.
		{"a share, dotprod", "n1: g0 A100 [a:4] | g1 A100", "dotprod", testkit.Request("new", 3), 6309900009990000000},
		// 75 for a share beside shares, 25·(8 − 1.6)/8 = 20.
		{"a share, clustering", "n1: g0 A100 [a:4] | g1 A100", "clustering", testkit.Request("new", 3), 6309500009990000000},
		// 100 − 60/10 of a used device; g1 would be 49.
		{"a share, packing", "n1: g0 A100 [a:4] | g1 A100", "packing", testkit.Request("new", 3), 6309400009990000000},
		// Fives and tens lose 0 and 600 before, 300 and 300 with 3 and 10 left: nothing less. With 6 and 7 left it were 1300.
		{"a share, fgd", "n1: g0 A100 [a:4] | g1 A100", "fgd", testkit.Request("new", 3), 6305000009990000000},
		// Fives leave 100 of 6 idle, and 300 of 3; tens leave all of either. Fills of both in turn leave some 240 more.
		{"a share, tandem", "n1: g0 A100 [a:4] | g1 A100", "tandem", testkit.Request("new", 3), 6304999989990000000},
		// Only the CPU that is left counts: 4 of 128 cores and no GPU, 100·(1 − 0.03125/2) = 98.4.
		{"a pod without GPUs, bestfit", "n1 cpu=6: g0 A100 [a:10]", "bestfit", hosted(testkit.Request("new"), 2000, 0), 6309800009990000000},
		// No device is touched. The node is full.
		{"a pod without GPUs, packed", "n1 cpu=6: g0 A100 [a:10]", "packed", hosted(testkit.Request("new"), 2000, 0), 6300000009991000000},
		// Nothing is left of the devices; three pairs of 260, 260 and 40 have a mean of 186.
		{"whole devices", "n1: g0 A100 | g1 A100 | g2 A100\nlinks n1: g0-g1 NV4, g1-g2 NV4, g0-g2 PIX", "packed", testkit.Request("new", 30), 6310000001860000000},
		// 4 and 3 on one device: 3 of 10 left.
		{"two containers together", "n1: g0 A100", "packed", testkit.Request("new", 4, 3), 6307000009990000000},
		// 6 and 6 on two devices, one beyond the least: 4 of 10 left on each.
		{"two containers apart", "n1: g0 A100 | g1 A100", "packed", testkit.Request("new", 6, 6), 6206000009990000000},
		// Variants: the T4 takes ceil(0.6 × 4) = 3 of 4 slots and costs the least; on the A100, where 5 of 10 are left, two variants cost less.
		{"the cheapest variant", "n1: g0 A100 | g1 T4", "packed", onModels(2, cheapT4...), 6307500009990000000},
		{"the dearest variant", "n1: g0 A100", "packed", onModels(2, cheapT4...), 6105000009990000000},
		{"no fit", "n1: g0 A100 [a:8]", "packed", testkit.Request("new", 3), -1},
		{"no fit of two", "n1: g0 A100 [a:8]", "packed", testkit.Request("new", 2, 1), -1},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := policyBy(t, tc.policy, fives, 0)
			if got := placement.Score(drawn(t, tc.cluster), tc.request, p); got != tc.want {
				t.Errorf("score %d, want %d", got, tc.want)
			}
		})
	}
}

// TestAllocations: Fit and a cached score allocate nothing, since the scheduler asks them of every node of a large
// cluster. Score allocates once, for the view of the node that a policy's function gets. Scores of random for several
// containers are not cached.
func TestAllocations(t *testing.T) {
	for _, name := range placement.Policies() {
		p := policyBy(t, name, fives, 0)
		k := placement.NewRanking(p)
		for _, slots := range [][]vgpu.Slots{nil, {3}, {10}, {20}, {40}, {3, 2}} {
			n, held, r := busyNode(t, 0), busyNode(t, 3), requestOf(slots...)
			at, scores := k.State(n), k.For(r)
			scores.Of(n, at, r)
			again := 0.0
			if name == "random" && len(slots) > 1 {
				again = 1
			}
			for what, test := range map[string]struct {
				most float64
				ask  func()
			}{
				"Fit":            {0, func() { placement.Fit(n, r) }},
				"Score":          {1, func() { placement.Score(n, r, p) }},
				"Scores.Of":      {again, func() { scores.Of(n, at, r) }},
				"Fit with holds": {0, func() { placement.Fit(held, r) }},
			} {
				if got := testing.AllocsPerRun(20, test.ask); got > test.most {
					t.Errorf("%s, %v slots: %v allocations by %s, at most %v are to be", name, slots, got, what, test.most)
				}
			}
		}
	}
}

// TestCut: a search that reaches its limit stops and says so, and Assign still finds what Fit finds.
func TestCut(t *testing.T) {
	devices := testkit.A100.Devices("n1", 16)
	for i := range devices {
		devices[i].Memory += vgpu.Bytes(i) // no two devices are alike, so none stands for another
	}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	// 17 containers of 6 slots need 17 devices. Their memory differs, so none stands for another.
	r := &vgpu.Request{UID: "new", Pod: "new"}
	for i := range 17 {
		r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: fmt.Sprintf("c%d", i), Slots: 6, Memory: vgpu.Bytes(1 + i)})
	}
	refusal := placement.Fit(n, r)
	if refusal == nil || !refusal.Cut || refusal.Reason != vgpu.NoTogether {
		t.Fatalf("refusal %+v, want one that says that the search was cut", refusal)
	}
	want := "the containers fit one by one, not at once: 160 of 160 slots are free on n1, in parts; they ask for 102; " +
		"the search was cut short, there may be a fit that it did not see"
	if diff := cmp.Diff(want, refusal.String()); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	plan, err := placement.Choose(testkit.Cluster(t, n), r, placement.Config{})
	if err != nil || plan.Place != nil || plan.Stats.Cut != 1 {
		t.Fatalf("plan %+v, error %v, want one cut search", plan, err)
	}
	r.Containers = r.Containers[:16]
	if refusal := placement.Fit(n, r); refusal != nil {
		t.Fatal(refusal)
	}
	if _, refusal := placement.Assign(n, r, placement.Policy{}); refusal != nil {
		t.Fatalf("Assign: %v, while Fit finds devices", refusal)
	}
}

// TestGreedy: where there are too many sets to compare, the choice is greedy and the statistics say so.
func TestGreedy(t *testing.T) {
	devices := testkit.A100.Devices("n1", 20) // 10 of 20 are 184756 sets
	for i := range devices {
		for j := range i {
			if i%2 == 1 && j%2 == 1 {
				devices[i].Links = append(devices[i].Links, vgpu.Link{Peer: devices[j].ID, Class: vgpu.LinkNVLink, Lanes: 4})
			}
		}
	}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	plan, err := placement.Choose(testkit.Cluster(t, n), testkit.Request("new", 100), placement.Config{})
	if err != nil || plan.Place == nil {
		t.Fatalf("plan %+v, error %v", plan, err)
	}
	if !plan.Stats.Greedy {
		t.Error("the statistics do not say that the choice was greedy")
	}
	for _, id := range plan.Place.Containers[0].Devices {
		if n.Index(id)%2 != 1 {
			t.Errorf("device %s has no NVLink to the others", id)
		}
	}
}

// TestNearest: the refusal that needs the least help is the nearest miss, then the one that has the largest part of what is wanted.
func TestNearest(t *testing.T) {
	share := func(node string, best, want int64, helps vgpu.Help) vgpu.Refusal {
		return vgpu.Refusal{Reason: vgpu.NoShareFits, Helps: helps, Node: node, Device: "g0", Unit: vgpu.UnitSlots, Best: best, Want: want}
	}
	tests := []struct {
		name     string
		refusals []vgpu.Refusal
		want     string // node
	}{
		{"none", nil, ""},
		{"the larger part", []vgpu.Refusal{share("n1", 2, 5, vgpu.EvictionHelps), share("n2", 4, 5, vgpu.EvictionHelps), share("n3", 3, 5, vgpu.EvictionHelps)}, "n2"},
		{"eviction before recovery", []vgpu.Refusal{share("n1", 4, 5, vgpu.RecoveryHelps), share("n2", 0, 5, vgpu.EvictionHelps)}, "n2"},
		{"recovery before nothing", []vgpu.Refusal{{Reason: vgpu.IllegalSlots, Node: "n1"}, share("n2", 0, 5, vgpu.RecoveryHelps)}, "n2"},
		{"together before alone", []vgpu.Refusal{share("n1", 4, 5, vgpu.EvictionHelps), {Reason: vgpu.NoTogether, Helps: vgpu.EvictionHelps, Node: "n2", Want: 9}}, "n2"},
		{"a part of another want", []vgpu.Refusal{share("n1", 4, 8, vgpu.EvictionHelps), share("n2", 3, 5, vgpu.EvictionHelps)}, "n2"},
		{"first by name", []vgpu.Refusal{share("n2", 4, 5, vgpu.EvictionHelps), share("n1", 4, 5, vgpu.EvictionHelps)}, "n1"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := placement.Nearest(tc.refusals)
			if got.Node != tc.want || ok != (tc.want != "") {
				t.Errorf("nearest %+v (%v), want that of node %q", got, ok, tc.want)
			}
		})
	}
}

// TestChooseBrokenRequest: a request that no device could be asked for is an error, not a refusal.
func TestChooseBrokenRequest(t *testing.T) {
	c := testkit.Cluster(t, testkit.Node(t, "n1", testkit.A100, 1))
	_, err := placement.Choose(c, testkit.Request("new", 0), placement.Config{})
	if want := `choose devices: validate request of pod new: container "c0" asks for 0 slots`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
