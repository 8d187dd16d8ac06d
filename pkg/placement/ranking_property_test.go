package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// ranked is nodes that change, with a ranking of them.
type ranked struct {
	nodes  []*vgpu.Node
	states []placement.State
	policy placement.Policy
	k      *placement.Ranking
	pods   int
}

// TestRankingProperty: whatever happens to the nodes, and however often the memory is full, a ranking gives the scores of
// Score, by every policy.
func TestRankingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &ranked{nodes: alike(t), policy: drawPolicy(t).Among(drawAmong(t))}
		w.k = placement.NewRanking(w.policy)
		states, kinds := 1<<20, 1<<20
		if rapid.Bool().Draw(t, "small memory") {
			states, kinds = rapid.IntRange(1, 8).Draw(t, "states"), rapid.IntRange(1, 3).Draw(t, "kinds")
			w.k.Bound(states, kinds)
		}
		w.states = make([]placement.State, len(w.nodes))
		requests := []*vgpu.Request{drawRequest(t), drawRequest(t), drawRequest(t)}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.step(t)
			r := *rapid.SampledFrom(requests).Draw(t, "request")
			r.UID = vgpu.UID(fmt.Sprint("new-", w.pods)) // another pod that asks for the same
			r.Pod, r.Priority = string(r.UID), int32(rapid.IntRange(0, 2).Draw(t, "priority"))
			w.compare(t, &r)
			if s, k := w.k.Known(); s > states || k > kinds {
				t.Fatalf("%d states and %d kinds are remembered, at most %d and %d are to be", s, k, states, kinds)
			}
		}
	})
}

// alike draws nodes, with others that differ from them in nothing but names, or in one detail that scores depend on.
func alike(t *rapid.T) []*vgpu.Node {
	c := testkit.RandomCluster(t, 2, 3)
	testkit.Furnish(t, c)
	var nodes []*vgpu.Node
	for _, n := range c.Nodes() {
		devices := slices.Clone(n.Devices())
		for i := range devices {
			devices[i].ID = vgpu.DeviceID("like-" + string(devices[i].ID))
			devices[i].Links = nil
			for j := range devices {
				link := n.Link(i, j)
				link.Peer = vgpu.DeviceID("like-" + string(n.Devices()[j].ID))
				devices[i].Links = append(devices[i].Links, link)
			}
		}
		if len(devices) > 0 {
			d := &devices[rapid.IntRange(0, len(devices)-1).Draw(t, "which device differs")]
			switch rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4, 5}).Draw(t, "detail") {
			case 1:
				d.Model = "other"
			case 2:
				d.Memory *= 2
			case 3:
				d.Contexts++
			case 4:
				d.Healthy = !d.Healthy
			case 5:
				d.Links = nil
			}
		}
		like, err := vgpu.NewNode("like-"+n.Name(), devices)
		must.OK(t, err)
		like.SetRoom(n.Room())
		nodes = append(nodes, n.Clone(), like)
	}
	return nodes
}

// drawRequest draws what a pod asks for, now and then of its host only.
func drawRequest(t *rapid.T) *vgpu.Request {
	r := testkit.RandomRequest(t, "new", 3)
	r.Host = testkit.RandomRoom(t)
	if rapid.IntRange(0, 5).Draw(t, "without GPUs") == 0 {
		r.Containers, r.Variants = nil, nil
	}
	if rapid.IntRange(0, 5).Draw(t, "limits") == 0 {
		r.ComputeLimit, r.MemoryLimit = 900, 10*840
	}
	return r
}

// step changes one node, or the policy.
func (w *ranked) step(t *rapid.T) {
	i := rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")
	n := w.nodes[i]
	w.pods++
	r := drawRequest(t)
	r.UID = vgpu.UID(fmt.Sprint("pod-", w.pods))
	old := vgpu.UID(fmt.Sprint("pod-", rapid.IntRange(1, w.pods).Draw(t, "old")))
	switch rapid.SampledFrom([]string{"add", "add", "add", "hold", "remove", "release", "room", "policy"}).Draw(t, "what") {
	case "add":
		if a, refusal := placement.Assign(n, r, w.policy); refusal == nil && len(a.Containers) > 0 {
			must.OK(t, n.Add(a))
		}
	case "hold":
		if a, refusal := placement.Assign(n, r, w.policy); refusal == nil && len(a.Containers) > 0 {
			must.OK(t, n.Hold(vgpu.Hold{Assignment: a, Priority: r.Priority}))
		}
	case "remove":
		n.Remove(old)
	case "release":
		n.Release(old)
	case "room":
		n.SetRoom(testkit.RandomRoom(t))
	case "policy":
		w.policy = drawPolicy(t).Among(drawAmong(t))
		w.k.Use(w.policy)
		return
	}
	w.states[i] = w.k.State(n)
}

// compare asks for the scores as its users do: they note the states that they have none of, before or between.
func (w *ranked) compare(t *rapid.T, r *vgpu.Request) {
	before := rapid.Bool().Draw(t, "states first")
	if before {
		for i, n := range w.nodes {
			if !w.k.Has(w.states[i]) {
				w.states[i] = w.k.State(n)
			}
		}
	}
	scores := w.k.For(r)
	for i, n := range w.nodes {
		if !before && !w.k.Has(w.states[i]) {
			w.states[i] = w.k.State(n)
		}
		if got, want := scores.Of(n, w.states[i], r), placement.Score(n, r, w.policy); got != want {
			t.Fatalf("%s: the ranking scores node %s %d, Score %d", w.policy.Name, n.Name(), got, want)
		}
	}
}
