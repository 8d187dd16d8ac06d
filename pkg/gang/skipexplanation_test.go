package gang_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestSkipExplanationLaw: SkipExplanation changes no place. It changes a refusal only by leaving the explanation out.
func TestSkipExplanationLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 3, 3)
		testkit.Fill(t, c, 6)
		g := gang.Group{Name: "g", MinCount: 1}
		for i := range rapid.IntRange(1, 4).Draw(t, "members") {
			r := *testkit.RandomRequest(t, string(rune('a'+i)), 1)
			r.UID = vgpu.UID("m" + r.Pod)
			g.Members = append(g.Members, gang.Member{Request: r, Rank: i})
		}
		g.MinCount = rapid.IntRange(1, len(g.Members)).Draw(t, "min count")
		full, err := gang.Place(&gang.Cluster{Nodes: c.Nodes()}, &g, gang.Config{})
		must.OK(t, err)
		short, err := gang.Place(&gang.Cluster{Nodes: c.Nodes()}, &g, gang.Config{SkipExplanation: true})
		must.OK(t, err)
		if full.Refused != nil {
			full.Refused = &gang.Refusal{Reason: gang.NoRoom, Want: full.Refused.Want, Of: full.Refused.Of, Cut: full.Refused.Cut}
			short.Stats, full.Stats = gang.Stats{}, gang.Stats{}
		}
		if diff := cmp.Diff(full, short); diff != "" {
			t.Fatalf("plans without an explanation differ:\n%s", diff)
		}
	})
}
