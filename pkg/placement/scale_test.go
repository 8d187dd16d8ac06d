package placement_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestScaleProperty: with all amounts of devices, pods, request and usual requests multiplied by one factor, and with a node without
// devices beside the others, the same devices are chosen.
func TestScaleProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 2, 4)
		testkit.Fill(t, c, 5)
		testkit.Furnish(t, c)
		r, mix, seed := testkit.RandomRequest(t, "new", 3), testkit.RandomMix(t), drawSeed(t)
		r.Host = testkit.RandomRoom(t)
		p, err := placement.ByName(rapid.SampledFrom(placement.Policies()).Draw(t, "policy"))
		must.OK(t, err)
		for i := range r.Variants {
			r.Variants[i].Compute = 0 // rounding up to slots makes a difference of size
		}
		factor := rapid.IntRange(2, 9).Draw(t, "factor")
		want, err := placement.Choose(c, r, placement.Config{Policy: p.With(mix, seed)})
		must.OK(t, err)
		larger := *r
		larger.Containers = slices.Clone(r.Containers)
		for i := range larger.Containers {
			larger.Containers[i].Slots *= vgpu.Slots(factor)
			larger.Containers[i].Memory *= vgpu.Bytes(factor)
		}
		got, err := placement.Choose(scaled(t, c, factor), &larger, placement.Config{Policy: p.With(scaledMix(t, mix, factor), seed)})
		must.OK(t, err)
		if diff := cmp.Diff(where(want.Place), where(got.Place)); diff != "" {
			t.Fatalf("%sfactor %d changed the choice (-before +after):\n%s", testkit.Draw(c), factor, diff)
		}
	})
}

// where lists the devices of each container.
func where(a *vgpu.Assignment) [][]vgpu.DeviceID {
	if a == nil {
		return nil
	}
	var list [][]vgpu.DeviceID
	for _, c := range a.Containers {
		list = append(list, c.Devices)
	}
	return list
}

// scaledMix returns the mix with the slots and the memory of devices multiplied.
func scaledMix(t *rapid.T, m *fragmentation.Mix, factor int) *fragmentation.Mix {
	kinds := slices.Clone(m.Kinds())
	for i := range kinds {
		kinds[i].Slots *= vgpu.Slots(factor)
		kinds[i].DeviceMemory *= vgpu.Bytes(factor)
	}
	return mixFrom(t, kinds)
}

func mixFrom(t *rapid.T, kinds []fragmentation.Kind) *fragmentation.Mix {
	m, err := fragmentation.NewMix(kinds)
	must.OK(t, err)
	return m
}

// scaled returns the cluster with all amounts multiplied, and an empty node.
func scaled(t *rapid.T, c *vgpu.Cluster, factor int) *vgpu.Cluster {
	empty, err := vgpu.NewNode("a-first", nil)
	must.OK(t, err)
	nodes := []*vgpu.Node{empty}
	scale := func(a vgpu.Assignment) vgpu.Assignment {
		a.Containers = slices.Clone(a.Containers)
		for i := range a.Containers {
			s := &a.Containers[i].Share
			s.Slots, s.Memory, s.MemoryLimit = s.Slots*vgpu.Slots(factor), s.Memory*vgpu.Bytes(factor), s.MemoryLimit*vgpu.Bytes(factor)
		}
		return a
	}
	for _, old := range c.Nodes() {
		devices := slices.Clone(old.Devices())
		for i := range devices {
			devices[i].Slots, devices[i].Memory = devices[i].Slots*vgpu.Slots(factor), devices[i].Memory*vgpu.Bytes(factor)
		}
		n, err := vgpu.NewNode(old.Name(), devices)
		must.OK(t, err)
		for _, a := range old.Assignments() {
			must.OK(t, n.Add(scale(a)))
		}
		for _, h := range old.Holds() {
			must.OK(t, n.Hold(vgpu.Hold{Assignment: scale(h.Assignment), Priority: h.Priority}))
		}
		n.SetRoom(old.Room())
		nodes = append(nodes, n)
	}
	larger, err := vgpu.NewCluster(nodes...)
	must.OK(t, err)
	return larger
}
