package shapes_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/shapes"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func setup(t *testing.T, number int, seed int64) sim.Setup {
	t.Helper()
	s := shapes.Of(number)
	out, err := s.Setup(seed)
	if err != nil {
		t.Fatalf("shape %d: %v", number, err)
	}
	return out
}

// requests returns what the pods ask for, without the names.
func requests(s sim.Setup) (all []vgpu.Request) {
	for i := range s.Jobs {
		r := s.Jobs[i].Request
		r.UID, r.Pod = "", ""
		all = append(all, r)
	}
	return all
}

// TestEveryKindFits: each pod of each shape fits on an empty node of its cluster, so that no policy is blamed for it.
func TestEveryKindFits(t *testing.T) {
	for number := range shapes.Count {
		s := setup(t, number, 0)
		seen := map[string]bool{}
		for i := range s.Jobs {
			r := &s.Jobs[i].Request
			key := cmp.Diff(vgpu.Request{}, vgpu.Request{Containers: r.Containers, Variants: r.Variants, Host: r.Host})
			if seen[key] {
				continue
			}
			seen[key] = true
			fits := func(n *vgpu.Node) bool { return r.Host.Within(n.Room()) && placement.Fit(n, r) == nil }
			if !slices.ContainsFunc(s.Nodes, fits) {
				t.Errorf("shape %d: pod %s fits on no empty node: %+v", number, r.Pod, r)
			}
		}
	}
}

// TestSeeds: a seed gives the same pods each time, other seeds others; the cluster of a shape stays.
func TestSeeds(t *testing.T) {
	for _, number := range []int{0, 1, 12, 13} {
		first, again, other := setup(t, number, 7), setup(t, number, 7), setup(t, number, 8)
		if diff := cmp.Diff(first.Jobs, again.Jobs); diff != "" {
			t.Errorf("shape %d: the same seed gives other pods:\n%s", number, diff)
		}
		if cmp.Equal(requests(first), requests(other)) {
			t.Errorf("shape %d: another seed gives the same pods", number)
		}
		if models(first) != models(other) {
			t.Errorf("shape %d: another seed gives GPUs %v instead of %v", number, models(other), models(first))
		}
	}
}

// models counts the GPUs of each model.
func models(s sim.Setup) string {
	var all []string
	for _, n := range s.Nodes {
		for i := range n.Devices() {
			all = append(all, n.Devices()[i].Model)
		}
	}
	slices.Sort(all)
	return cmp.Diff([]string(nil), all)
}

// TestDemand: fills ask for 130 % of the GPUs and stay; the work of flows is three quarters to 105 % of what the GPUs can do
// while the jobs arrive.
func TestDemand(t *testing.T) {
	for number := range shapes.Count {
		s, run := shapes.Of(number), setup(t, number, 3)
		devices, asked, work := 0., 0., 0.
		for _, n := range run.Nodes {
			devices += float64(len(n.Devices()))
		}
		for i := range run.Jobs {
			j := &run.Jobs[i]
			gpus := float64(j.Request.PeakSlots()) / 10
			asked += gpus
			work += gpus * j.Duration.Seconds()
			if (j.Duration == 0) != s.Fills {
				t.Fatalf("shape %d: job %d runs for %v", number, i, j.Duration)
			}
		}
		last := run.Jobs[len(run.Jobs)-1].Arrive.Seconds()
		if load := work / devices / last; !s.Fills && (load < .74 || load > 1.06) {
			t.Errorf("shape %d: load %.2f", number, load)
		}
		if part := asked / devices; s.Fills && (part < 1.3 || part > 1.3+8/devices) {
			t.Errorf("shape %d: the pods ask for %.2f of the GPUs", number, part)
		}
	}
}
