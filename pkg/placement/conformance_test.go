package placement_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// preferences is the table that every policy is run against: a drawn cluster, a request, and the devices that the policy
// by its name has to choose. A new policy adds its column.
var preferences = []struct {
	name    string
	cluster string
	request *vgpu.Request
	want    map[string][]vgpu.DeviceID
}{
	{
		name:    "fuller or emptier device",
		cluster: "n1: g0 A100 [a:2] | g1 A100 [b:6] | g2 A100",
		request: testkit.Request("new", 3),
		want:    map[string][]vgpu.DeviceID{"packed": {"n1/g1"}, "bestfit": {"n1/g1"}, "spread": {"n1/g2"}},
	},
	{
		// Left on g0: 0.4 slots and 0.0 memory; on g1: 0.1 slots and 0.7 memory.
		name:    "scarce memory or scarce slots",
		cluster: "n1: g0 A100 [a:5/36Gi] | g1 A100 [b:8/8Gi]",
		request: &vgpu.Request{UID: "new", Pod: "new", Containers: []vgpu.ContainerRequest{{Name: "c0", Slots: 1, Memory: 4 * vgpu.GiB}}},
		want:    map[string][]vgpu.DeviceID{"packed": {"n1/g1"}, "bestfit": {"n1/g0"}, "spread": {"n1/g0"}},
	},
	{
		name:    "the device decides before the node",
		cluster: "n1: g0 A100 [a:10] | g1 A100 [b:4]\nn2: g0 A100 [c:5] | g1 A100",
		request: testkit.Request("new", 3),
		want:    map[string][]vgpu.DeviceID{"packed": {"n2/g0"}, "bestfit": {"n2/g0"}, "spread": {"n2/g1"}},
	},
	{
		name:    "the node breaks ties of the device",
		cluster: "n1: g0 A100 [a:1] | g1 A100\nn2: g0 A100 [b:2] | g1 A100\nn3: g0 A100 | g1 A100",
		request: testkit.Request("new", 10),
		want:    map[string][]vgpu.DeviceID{"packed": {"n2/g1"}, "bestfit": {"n1/g1"}, "spread": {"n3/g0"}},
	},
	{
		name:    "parts of unlike devices",
		cluster: "n1: g0 A100 [a:5] | g1 T4 [b:1]", // 2 more slots leave 0.3 of the A100, 0.25 of the T4
		request: testkit.Request("new", 2),
		want:    map[string][]vgpu.DeviceID{"packed": {"n1/g1"}, "bestfit": {"n1/g1"}, "spread": {"n1/g0"}},
	},
	{
		name:    "a held share counts as taken",
		cluster: "n1: g0 A100 [a:3] | g1 A100 (b:5@9)",
		request: testkit.Request("new", 2),
		want:    map[string][]vgpu.DeviceID{"packed": {"n1/g1"}, "bestfit": {"n1/g1"}, "spread": {"n1/g0"}},
	},
	{
		name:    "links before the fuller node",
		cluster: "n1: g0 A100 | g1 A100 | g2 A100 [a:9]\nn2: g0 A100 | g1 A100 | g2 A100\nlinks n1: g0-g1 PIX\nlinks n2: g0-g2 NV2",
		request: testkit.Request("new", 20),
		want: map[string][]vgpu.DeviceID{
			"packed": {"n2/g0", "n2/g2"}, "bestfit": {"n2/g0", "n2/g2"}, "spread": {"n2/g0", "n2/g2"},
		},
	},
	{
		name:    "containers together before the policy",
		cluster: "n1: g0 A100 [a:6] | g1 A100\nn2: g0 A100 [b:4] | g1 A100 [c:4]",
		request: testkit.Request("new", 4, 3),
		want: map[string][]vgpu.DeviceID{
			"packed": {"n1/g1"}, "bestfit": {"n1/g1"}, "spread": {"n1/g1"},
		},
	},
	{
		name:    "equal in all: node by name, device by index",
		cluster: "n2: g0 A100\nn1: g1 A100 | g0 A100",
		request: testkit.Request("new", 3),
		want:    map[string][]vgpu.DeviceID{"packed": {"n1/g0"}, "bestfit": {"n1/g0"}, "spread": {"n1/g0"}},
	},
}

// TestConformance runs every policy against the same table.
func TestConformance(t *testing.T) {
	for _, name := range placement.Policies() {
		p, err := placement.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			for _, tc := range preferences {
				t.Run(tc.name, func(t *testing.T) { prefers(t, p, tc.cluster, tc.request, tc.want[name]) })
			}
		})
	}
}

// TestConformanceProperty runs every policy against the same laws.
func TestConformanceProperty(t *testing.T) {
	for _, name := range placement.Policies() {
		p, err := placement.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { obeysLaws(t, p) }) })
	}
}

func prefers(t *testing.T, p placement.Policy, drawing string, r *vgpu.Request, want []vgpu.DeviceID) {
	c, err := testkit.Parse(drawing)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := placement.Choose(c, r, placement.Config{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Place == nil {
		t.Fatalf("refused: %v", plan.Refused)
	}
	var got []vgpu.DeviceID
	for _, k := range plan.Place.Containers {
		got = append(got, k.Devices...)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// obeysLaws: what is chosen is feasible, fits the ledger, is the same again and after shuffling; no node that fits scores
// higher than the chosen one, and of equal scores it is the first by name.
func obeysLaws(t *rapid.T, p placement.Policy) {
	c := testkit.RandomCluster(t, 3, 4)
	testkit.Fill(t, c, 6)
	r, cfg := testkit.RandomRequest(t, "new", 2), placement.Config{Policy: p}
	plan, err := placement.Choose(c, r, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []*vgpu.Cluster{c, testkit.Shuffled(t, c)} {
		again, err := placement.Choose(same, r, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plan, again); diff != "" {
			t.Fatalf("another answer for the same cluster (-first +again):\n%s", diff)
		}
	}
	if plan.Place == nil {
		return
	}
	chosen := c.Node(plan.Place.Node)
	if !feasible(chosen, r, plan.Place) {
		t.Fatalf("%splaced %+v, more than is free", testkit.Draw(c), plan.Place)
	}
	top := placement.Score(chosen, r, p)
	for _, n := range c.Nodes() {
		if placement.Fit(n, r) != nil {
			continue
		}
		if s := placement.Score(n, r, p); s > top || (s == top && n.Name() < chosen.Name()) {
			t.Fatalf("%snode %s scores %d, the chosen %s %d", testkit.Draw(c), n.Name(), s, chosen.Name(), top)
		}
	}
	if err := c.Add(*plan.Place); err != nil {
		t.Fatal(err)
	}
	withinCapacity(t, c)
}

func TestByName(t *testing.T) {
	if diff := cmp.Diff([]string{"bestfit", "packed", "spread"}, placement.Policies()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	_, err := placement.ByName("tetris")
	if want := `choose policy: unknown name "tetris", known are bestfit, packed, spread`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
