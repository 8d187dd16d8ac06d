package placement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestRenameProperty: nodes under other names in the same order get the same devices chosen, by every policy but random,
// which goes by names.
func TestRenameProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, r, p := drawChoice(t)
		if p.Name == "random" {
			return
		}
		var renamed []*vgpu.Node
		for _, n := range c.Nodes() {
			renamed = append(renamed, copyOf(t, n, "node-"+n.Name()+"-renamed"))
		}
		sameChoice(t, c, renamed, r, p)
	})
}

// TestUselessNodeProperty: an empty node of a model that the pod may not use changes nothing, wherever its name stands.
func TestUselessNodeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, r, p := drawChoice(t)
		if r.Variants == nil {
			for _, m := range testkit.RandomModels {
				r.Variants = append(r.Variants, vgpu.Variant{Model: m.Name})
			}
		}
		name := rapid.SampledFrom([]string{"a", "n00", "z"}).Draw(t, "name")
		useless, err := vgpu.NewNode(name, testkit.Model{Name: "useless", Slots: 10, Memory: 40 * vgpu.GiB}.Devices(name, 4))
		must.OK(t, err)
		useless.SetRoom(testkit.RandomRoom(t))
		nodes := []*vgpu.Node{useless}
		for _, n := range c.Nodes() {
			nodes = append(nodes, n.Clone())
		}
		sameChoice(t, c, nodes, r, p)
	})
}

// TestMixOrderProperty: a mix of the same requests in another order, or twice as many of each, makes the same choices.
func TestMixOrderProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, r, _ := drawChoice(t)
		p, err := placement.ByName(rapid.SampledFrom([]string{"fgd", "tandem"}).Draw(t, "policy"))
		must.OK(t, err)
		mix := testkit.RandomMix(t)
		twice := mix.Kinds()
		if len(twice) > 0 {
			twice = append(rapid.Permutation(twice).Draw(t, "order"), twice...)
		}
		want, err := placement.Choose(c, r, placement.Config{Policy: p.With(mix, 0)})
		must.OK(t, err)
		got, err := placement.Choose(c, r, placement.Config{Policy: p.With(mixFrom(t, twice), 1)})
		must.OK(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("another plan (-before +after):\n%s", diff)
		}
	})
}

func drawChoice(t *rapid.T) (*vgpu.Cluster, *vgpu.Request, placement.Policy) {
	c := testkit.RandomCluster(t, 3, 4)
	testkit.Fill(t, c, 6)
	testkit.Furnish(t, c)
	r := testkit.RandomRequest(t, "new", 3)
	r.Host = testkit.RandomRoom(t)
	return c, r, drawPolicy(t)
}

// copyOf returns the node under another name, with the same devices and pods.
func copyOf(t *rapid.T, n *vgpu.Node, name string) *vgpu.Node {
	other, err := vgpu.NewNode(name, n.Devices())
	must.OK(t, err)
	for _, a := range n.Assignments() {
		a.Node = name
		must.OK(t, other.Add(a))
	}
	for _, h := range n.Holds() {
		h.Node = name
		must.OK(t, other.Hold(h))
	}
	other.SetRoom(n.Room())
	return other
}

// sameChoice compares the devices that are chosen of a cluster and of other nodes.
func sameChoice(t *rapid.T, c *vgpu.Cluster, nodes []*vgpu.Node, r *vgpu.Request, p placement.Policy) {
	other, err := vgpu.NewCluster(nodes...)
	must.OK(t, err)
	want, err := placement.Choose(c, r, placement.Config{Policy: p})
	must.OK(t, err)
	got, err := placement.Choose(other, r, placement.Config{Policy: p})
	must.OK(t, err)
	if diff := cmp.Diff(where(want.Place), where(got.Place)); diff != "" {
		t.Fatalf("%s%s: another choice (-before +after):\n%s", testkit.Draw(c), p.Name, diff)
	}
}
