package placement

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// More states than a Ranking keeps, some of them while the nodes of one pod are compared: the scores stay those of Score.
func TestRankingStartsAnew(t *testing.T) {
	mix, err := fragmentation.NewMix([]fragmentation.Kind{{MilliCPU: 10_000, Slots: 5, Weight: 1}})
	must.OK(t, err)
	p := fgd.With(mix, 0)
	k := NewRanking(p)
	r := &vgpu.Request{UID: "u", Pod: "ns/p", Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 5}}, Host: vgpu.Room{MilliCPU: 1}}
	n, err := vgpu.NewNode("n1", []vgpu.Device{{ID: "d0", Slots: 10, Memory: 40 * vgpu.GiB, Healthy: true}})
	must.OK(t, err)
	scores, eras, first := k.For(r), 0, State{}
	for i := range int64(maxStates + 10) {
		// The pod leaves CPU enough for the usual request in every other state or so, and in others than before when the
		// memory starts anew: a number means another score then.
		n.SetRoom(vgpu.Room{MilliCPU: (i * 7919) % 20_011})
		at := k.State(n)
		if i == 0 {
			first = at
		}
		if !k.Has(at) {
			t.Fatalf("state %d is forgotten at once", i)
		}
		if got, want := scores.Of(n, at, r), Score(n, r, p); got != want {
			t.Fatalf("state %d: the score is %d, want %d", i, got, want)
		}
		if !k.Has(first) {
			eras++
		}
	}
	if eras == 0 {
		t.Error("the memory never started anew")
	}
}

// A Ranking with another mix, or another policy, gives its scores: also on nodes whose state it knew before.
func TestRankingUsesAnotherPolicy(t *testing.T) {
	mixed := func(k fragmentation.Kind) *fragmentation.Mix {
		m, err := fragmentation.NewMix([]fragmentation.Kind{k})
		must.OK(t, err)
		return m
	}
	var nodes []*vgpu.Node
	for i := range 6 {
		name := string(rune('a' + i))
		n, err := vgpu.NewNode(name, []vgpu.Device{
			{ID: vgpu.DeviceID(name + "0"), Slots: 10, Memory: 40 * vgpu.GiB, Healthy: true},
			{ID: vgpu.DeviceID(name + "1"), Index: 1, Slots: 10, Memory: 40 * vgpu.GiB, Healthy: i > 0},
		})
		must.OK(t, err)
		n.SetRoom(vgpu.Room{MilliCPU: int64(i) * 4000, Memory: 64 * vgpu.GiB})
		nodes = append(nodes, n)
	}
	few, many := mixed(fragmentation.Kind{Slots: 3, Weight: 1}), mixed(fragmentation.Kind{MilliCPU: 9000, Slots: 20, Weight: 1})
	r := &vgpu.Request{UID: "u", Pod: "ns/p", Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 2}}, Host: vgpu.Room{MilliCPU: 1500}}
	policies := []Policy{fgd.With(nil, 0), fgd.With(few, 0), fgd.With(many, 0), tandem.With(many, 0), spread, random, clustering, packed}
	k := NewRanking(packed)
	states := make([]State, len(nodes))
	for round := range 3 {
		for _, p := range policies {
			k.Use(p)
			for i, n := range nodes {
				if !k.Has(states[i]) {
					states[i] = k.State(n)
				}
				if got, want := k.For(r).Of(n, states[i], r), Score(n, r, p); got != want {
					t.Errorf("round %d, %s: the score of %s is %d, want %d", round, p.Name, n.Name(), got, want)
				}
			}
		}
	}
}

// A search with more steps does not get the answer of one with fewer.
func TestRankingKnowsSteps(t *testing.T) {
	r := &vgpu.Request{UID: "full", Pod: "team/full", Steps: 30}
	for i, slots := range []vgpu.Slots{2, 2, 4, 2, 2, 3, 2, 3, 2, 3, 5, 3, 2, 3, 2} {
		r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: fmt.Sprint("c", i), Slots: slots})
	}
	n := extremeNode(t, "n", 0).Only(func(i int) bool { return i < 4 })
	k := NewRanking(Policy{}.orDefault())
	state := k.State(n)
	if few := k.For(r).Of(n, state, r); few >= 0 {
		t.Fatalf("30 steps find a place: score %d", few)
	}
	r.Steps = maxSteps
	if many := k.For(r).Of(n, state, r); many < 0 {
		t.Errorf("with %d steps the score is %d", r.Steps, many)
	}
}
