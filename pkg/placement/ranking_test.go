package placement

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// More states than a Ranking keeps, some of them while the nodes of one pod are compared: the scores stay those of Score.
func TestRankingStartsAnew(t *testing.T) {
	mix, err := fragmentation.NewMix([]fragmentation.Kind{{MilliCPU: 10_000, Slots: 5, Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	p := fgd.With(mix, 0)
	k := NewRanking(p)
	r := &vgpu.Request{UID: "u", Pod: "ns/p", Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 5}}, Host: vgpu.Room{MilliCPU: 1}}
	n, err := vgpu.NewNode("n1", []vgpu.Device{{ID: "d0", Slots: 10, Memory: 40 * vgpu.GiB, Healthy: true}})
	if err != nil {
		t.Fatal(err)
	}
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
