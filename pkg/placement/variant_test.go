package placement_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// cheapT4 has three costs in the order T4, H100, A100.
var cheapT4 = []vgpu.Variant{
	{Model: "A100", Compute: 500, Cost: 9}, {Model: "T4", Compute: 600, Cost: 2}, {Model: "H100", Compute: 300, Cost: 4},
}

// onModels returns the request of a pod with one container and variants.
func onModels(slots vgpu.Slots, variants ...vgpu.Variant) *vgpu.Request {
	r := testkit.Request("new", slots)
	r.Variants = variants
	return r
}

// cheapest goes through all devices of the cluster and returns the least cost at which the container fits, −1 for none.
func cheapest(c *vgpu.Cluster, r *vgpu.Request) int64 {
	least := int64(-1)
	for _, n := range c.Nodes() {
		for _, way := range everywhere(n, r, 0) {
			a := vgpu.Assignment{UID: r.UID, Node: n.Name(), Containers: []vgpu.ContainerAssignment{way}}
			cost := costOf(r, n.Devices()[n.Index(way.Devices[0])].Model)
			if feasible(n, r, &a) && (least < 0 || cost < least) {
				least = cost
			}
		}
	}
	return least
}

func costOf(r *vgpu.Request, model string) int64 {
	for _, v := range r.Variants {
		if v.Model == model {
			return v.Cost
		}
	}
	return 0
}

// TestCheapestProperty: whatever the policy, a pod with variants goes to a device of a model that it may use, with the
// slots that the variant needs there, at the least cost that any device of the cluster offers; the assignment tells the
// slots that the container asks for where it has more.
func TestCheapestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 3, 4)
		testkit.Fill(t, c, 4)
		r := testkit.RandomRequest(t, "new", 1)
		plan, err := placement.Choose(c, r, placement.Config{Policy: drawPolicy(t)})
		must.OK(t, err)
		least := cheapest(c, r)
		if plan.Place == nil {
			if least >= 0 {
				t.Fatalf("%s%+v: no place, but there is one at cost %d", testkit.Draw(c), r, least)
			}
			return
		}
		n, got := c.Node(plan.Place.Node), plan.Place.Containers[0]
		d := &n.Devices()[n.Index(got.Devices[0])]
		want, allowed := asks(r, 0, d)
		if given := got.Share.Slots * vgpu.Slots(len(got.Devices)); !allowed || given != want.Slots {
			t.Fatalf("%d slots of %s for %+v", given, d.Model, r)
		}
		if cost := costOf(r, d.Model); cost != least {
			t.Fatalf("%s%+v: cost %d on %s, there is a place at %d", testkit.Draw(c), r, cost, d.ID, least)
		}
		asked := vgpu.Slots(0)
		if want.Slots != r.Containers[0].Slots {
			asked = r.Containers[0].Slots
		}
		if got.Asked != asked {
			t.Fatalf("the assignment says that %d slots are asked for, want %d: %+v", got.Asked, asked, r)
		}
	})
}

// TestVariantsCostNoMemory: Fit asks every node of a large cluster, also for a pod with many variants.
func TestVariantsCostNoMemory(t *testing.T) {
	variants := []vgpu.Variant{{Model: "A100", Compute: 300, Cost: vgpu.MaxVariants}}
	for i := range vgpu.MaxVariants - 1 {
		variants = append(variants, vgpu.Variant{Model: fmt.Sprint("M", i), Cost: int64(i)})
	}
	n, r := busyNode(t, 3), onModels(1, variants...)
	must.OK(t, r.Validate())
	if refusal := placement.Fit(n, r); refusal != nil {
		t.Fatal(refusal)
	}
	if got := testing.AllocsPerRun(100, func() { placement.Fit(n, r) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
	if score := placement.Score(n, r, placement.Policy{}); score < 0 || score >= 1e17 {
		t.Errorf("score %d, want the first part to be 0: all other variants cost less", score)
	}
	r.Variants = append(r.Variants, vgpu.Variant{Model: "one more"})
	if err := r.Validate(); err == nil {
		t.Errorf("%d variants are legal", len(r.Variants))
	}
}
