package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// asks returns container c as it asks devices such as d, by the words of Variant: no fewer slots than its own, as many as
// give the compute, in whole devices above one device.
func asks(r *vgpu.Request, c int, d *vgpu.Device) (vgpu.ContainerRequest, bool) {
	want := r.Containers[c]
	for _, v := range r.Variants {
		if v.Model != d.Model {
			continue
		}
		enough := vgpu.Slots(0)
		for int64(enough)*1000 < int64(v.Compute)*int64(d.Slots) {
			if enough < d.Slots {
				enough++
			} else {
				enough += d.Slots
			}
		}
		want.Slots = max(want.Slots, enough)
		return want, true
	}
	return want, len(r.Variants) == 0
}

// everywhere lists all ways to give container c of the request devices of the node, whatever is free.
func everywhere(n *vgpu.Node, r *vgpu.Request, c int) (ways []vgpu.ContainerAssignment) {
	devices := n.Devices()
	for mask := 1; mask < 1<<len(devices); mask++ {
		var ids []vgpu.DeviceID
		var share vgpu.Share
		ok := true
		for i := range devices {
			if mask>>i&1 == 0 {
				continue
			}
			want, allowed := asks(r, c, &devices[i])
			s, refusal := want.On(&devices[i], r.ComputeLimit, r.MemoryLimit)
			if !allowed || refusal != nil || (ids != nil && (s != share || devices[i].Model != devices[n.Index(ids[0])].Model)) {
				ok = false
				break
			}
			ids, share = append(ids, devices[i].ID), s
		}
		if ok && len(ids) == share.Devices {
			slices.Sort(ids)
			ways = append(ways, vgpu.ContainerAssignment{
				Name: r.Containers[c].Name, Kind: r.Containers[c].Kind, Devices: ids, Share: share,
			})
		}
	}
	return ways
}

// feasible reports whether an assignment lies within what is free for its pod, by adding up each phase.
func feasible(n *vgpu.Node, r *vgpu.Request, a *vgpu.Assignment) bool {
	kinds := make([]vgpu.ContainerKind, 0, len(a.Containers))
	for _, c := range a.Containers {
		kinds = append(kinds, c.Kind)
	}
	spans, phases := vgpu.Spans(kinds)
	for i := range n.Devices() {
		free := n.FreeFor(i, r)
		for p := range phases {
			var sum vgpu.Use
			for k, c := range a.Containers {
				if spans[k].First <= p && p <= spans[k].Last && slices.Contains(c.Devices, n.Devices()[i].ID) {
					sum = sum.Plus(c.Share.Use())
				}
			}
			if !sum.Within(free) {
				return false
			}
		}
	}
	return true
}

// bruteForce goes through all arrangements and returns the fewest devices that one of them touches, −1 for none.
func bruteForce(n *vgpu.Node, r *vgpu.Request) int {
	best := -1
	a := vgpu.Assignment{UID: r.UID, Node: n.Name()}
	var next func(c int)
	next = func(c int) {
		if c == len(r.Containers) {
			if touched := touches(&a); feasible(n, r, &a) && (best < 0 || touched < best) {
				best = touched
			}
			return
		}
		for _, way := range everywhere(n, r, c) {
			a.Containers = append(a.Containers, way)
			next(c + 1)
			a.Containers = a.Containers[:c]
		}
	}
	next(0)
	return best
}

func touches(a *vgpu.Assignment) int {
	ids := map[vgpu.DeviceID]bool{}
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			ids[id] = true
		}
	}
	return len(ids)
}

func drawPolicy(t *rapid.T) placement.Policy {
	p, err := placement.ByName(rapid.SampledFrom(placement.Policies()).Draw(t, "policy"))
	must.OK(t, err)
	return p.With(testkit.RandomMix(t), drawSeed(t))
}

func drawSeed(t *rapid.T) int64 { return rapid.Int64Range(0, 3).Draw(t, "seed") }

// TestTwinProperty: on up to four devices Fit agrees with a search of all arrangements, and Assign finds one exactly
// where Fit says so. It lies within what is free, and several containers share as few devices as they can.
func TestTwinProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 1, 4)
		testkit.Fill(t, c, 5)
		testkit.Furnish(t, c)
		n, r, p := c.Nodes()[0], testkit.RandomRequest(t, "new", 4), drawPolicy(t)
		want := bruteForce(n, r)
		refusal := placement.Fit(n, r)
		if (refusal == nil) != (want >= 0) {
			t.Fatalf("%sfit %+v: %v, all arrangements say %d", testkit.Draw(c), r.Containers, refusal, want)
		}
		if fits := p.Fits(n, r); fits != (want >= 0) {
			t.Fatalf("%sfits %+v: %v, all arrangements say %d", testkit.Draw(c), r.Containers, fits, want)
		}
		a, refused := placement.Assign(n, r, p)
		if score := placement.Score(n, r, p); (score >= 0) != (want >= 0) {
			t.Fatalf("%sscore %+v: %d, all arrangements say %d", testkit.Draw(c), r.Containers, score, want)
		}
		if diff := cmp.Diff(refusal, refused); diff != "" {
			t.Fatalf("Fit and Assign disagree (-fit +assign):\n%s", diff)
		}
		if refusal != nil {
			return
		}
		if !feasible(n, r, &a) {
			t.Fatalf("%sassigned %+v, more than is free", testkit.Draw(c), a)
		}
		if len(r.Containers) > 1 && touches(&a) != want {
			t.Fatalf("%sassigned %+v on %d devices, %d suffice", testkit.Draw(c), a, touches(&a), want)
		}
		must.OK(t, c.Add(a))
		must.OK(t, c.Check())
	})
}

// TestSequenceProperty: after any sequence of pods, holds and what-ifs the ledger takes what Choose places. No device
// is over capacity in slots, memory or compute. No placement uses a hold that counts for the pod.
func TestSequenceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 2, 4)
		cfg := placement.Config{Policy: drawPolicy(t)}
		for i := range rapid.IntRange(1, 10).Draw(t, "steps") {
			act := func() { change(t, c, cfg, fmt.Sprintf("pod-%d", i)) }
			if rapid.SampledFrom([]int{0, 1, 2, 3, 4}).Draw(t, "undone") < 4 {
				act()
				continue
			}
			before := testkit.Draw(c)
			c.WhatIf(func() { act(); act() })
			if diff := cmp.Diff(before, testkit.Draw(c)); diff != "" {
				t.Fatalf("a what-if left a trace:\n%s", diff)
			}
		}
	})
}

// change places, holds or removes one pod.
func change(t *rapid.T, c *vgpu.Cluster, cfg placement.Config, pod string) {
	what := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5}).Draw(t, "what")
	if what >= 4 {
		uid := vgpu.UID(fmt.Sprintf("pod-%d", rapid.IntRange(0, 9).Draw(t, "pod")))
		c.Remove(uid)
		c.Release(uid)
		return
	}
	r := testkit.RandomRequest(t, pod, 3)
	before := testkit.Draw(c)
	plan, err := placement.Choose(c, r, cfg)
	must.OK(t, err)
	if diff := cmp.Diff(before, testkit.Draw(c)); diff != "" {
		t.Fatalf("Choose changed the cluster:\n%s", diff)
	}
	if got := len(plan.Refused) + plan.Stats.Fits; got != len(c.Nodes()) {
		t.Fatalf("%d nodes answered of %d", got, len(c.Nodes()))
	}
	if plan.Place == nil {
		return
	}
	if !feasible(c.Node(plan.Place.Node), r, plan.Place) {
		t.Fatalf("%splaced %+v on room that is not free for it", before, plan.Place)
	}
	if what == 3 {
		_ = c.Hold(vgpu.Hold{Assignment: *plan.Place, Priority: r.Priority}) // a second hold of one pod is refused
	} else if _, double := uids(c)[r.UID]; !double {
		if err := c.Add(*plan.Place); err != nil {
			t.Fatalf("%s%v", before, err)
		}
	}
	withinCapacity(t, c)
}

func uids(c *vgpu.Cluster) map[vgpu.UID]string {
	all := map[vgpu.UID]string{}
	for _, n := range c.Nodes() {
		for _, a := range n.Assignments() {
			all[a.UID] = n.Name()
		}
	}
	return all
}

func withinCapacity(t *rapid.T, c *vgpu.Cluster) {
	must.OK(t, c.Check())
	for _, n := range c.Nodes() {
		for i := range n.Devices() {
			d, u := &n.Devices()[i], n.Used(i)
			compute := vgpu.WholeGPU * vgpu.MilliGPU(u.Slots) / vgpu.MilliGPU(d.Slots)
			if u.Slots > d.Slots || u.Memory > d.Memory || compute > vgpu.WholeGPU {
				t.Fatalf("%s is over capacity: %v", d.ID, u)
			}
		}
	}
}

// TestShuffleProperty: the order in which devices, nodes, pods and refusals are given changes no decision.
func TestShuffleProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 3, 4)
		testkit.Fill(t, c, 6)
		testkit.Furnish(t, c)
		r, cfg := testkit.RandomRequest(t, "new", 3), placement.Config{Policy: drawPolicy(t)}
		r.Host = testkit.RandomRoom(t)
		want, err := placement.Choose(c, r, cfg)
		must.OK(t, err)
		got, err := placement.Choose(testkit.Shuffled(t, c), r, cfg)
		must.OK(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("shuffling changed the plan (-before +after):\n%s", diff)
		}
		if len(want.Refused) == 0 {
			return
		}
		nearest, _ := placement.Nearest(want.Refused)
		again, _ := placement.Nearest(rapid.Permutation(want.Refused).Draw(t, "refusals"))
		if diff := cmp.Diff(nearest, again); diff != "" {
			t.Fatalf("shuffling changed the nearest refusal (-before +after):\n%s", diff)
		}
	})
}

// TestHelpProperty: for one container, eviction helps exactly where the healthy devices would take it were they empty, and
// recovery where only all devices together would.
func TestHelpProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 1, 4)
		testkit.Fill(t, c, 4)
		n, r := c.Nodes()[0], testkit.RandomRequest(t, "new", 1)
		refusal := placement.Fit(n, r)
		if refusal == nil {
			return
		}
		want := vgpu.NothingHelps
		switch {
		case bruteForce(withoutPods(t, n, false), r) >= 0:
			want = vgpu.EvictionHelps
		case bruteForce(withoutPods(t, n, true), r) >= 0:
			want = vgpu.RecoveryHelps
		}
		if refusal.Helps != want {
			t.Fatalf("%s%+v: %v says %d helps, want %d", testkit.Draw(c), r.Containers, refusal, refusal.Helps, want)
		}
	})
}

// withoutPods returns the node without pods, with healed devices if asked for.
func withoutPods(t *rapid.T, n *vgpu.Node, healed bool) *vgpu.Node {
	devices := slices.Clone(n.Devices())
	for i := range devices {
		devices[i].Healthy = devices[i].Healthy || healed
	}
	empty, err := vgpu.NewNode(n.Name(), devices)
	must.OK(t, err)
	return empty
}

// TestBestSetProperty: of up to seven devices bestSet returns the first of the sets with the highest sum of qualities.
func TestBestSetProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := testkit.RandomNode(t, "n1", 7)
		var candidates []int
		for i := range n.Devices() {
			if rapid.IntRange(0, 4).Draw(t, "candidate") < 4 {
				candidates = append(candidates, i)
			}
		}
		if len(candidates) < 2 {
			return
		}
		m := rapid.IntRange(2, len(candidates)).Draw(t, "m")
		var best []int
		top := int64(-1)
		var next func(from int, set []int, sum int64)
		next = func(from int, set []int, sum int64) {
			if len(set) == m {
				if sum > top {
					top, best = sum, slices.Clone(set)
				}
				return
			}
			for at := from; at < len(candidates); at++ {
				gain := int64(0)
				for _, j := range set {
					gain += placement.Quality(n.Link(j, candidates[at]))
				}
				next(at+1, append(set, candidates[at]), sum+gain)
			}
		}
		next(0, nil, 0)
		got := make([]int, m)
		sum, all := placement.BestSet(n, candidates, m, got)
		if diff := cmp.Diff(best, got); diff != "" || sum != top || !all {
			t.Fatalf("sum %d, want %d; all %v (-want +got):\n%s", sum, top, all, diff)
		}
	})
}
