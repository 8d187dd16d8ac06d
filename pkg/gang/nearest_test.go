package gang_test

import (
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Two members of 10 slots and two of 9: n1 with two devices and n2 with three may take all four by the bound of each size, so both are worth
// a try. They take two and three. A search of one domain tries the first alone.
func TestNearestTriesNoMoreThanMaxDomains(t *testing.T) {
	nodes := []*vgpu.Node{testkit.Node(t, "n1", testkit.A100, 2), testkit.Node(t, "n2", testkit.A100, 3)}
	c := &gang.Cluster{Nodes: nodes, Levels: []gang.Level{{Key: "rack", Domain: []int32{0, 1}, Names: []string{"r1", "r2"}}}}
	g := &gang.Group{Name: "ns/g", MinCount: 4, Wishes: gang.Wishes{Required: []string{"rack"}}}
	for i, slots := range []vgpu.Slots{10, 10, 9, 9} {
		g.Members = append(g.Members, gang.Member{Request: *testkit.Request(string(rune('a'+i)), slots), Rank: i})
	}
	for domains, want := range map[int]int{1: 2, 2: 3} {
		plan, err := gang.Place(c, g, gang.Config{MaxDomains: domains})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Refused == nil || plan.Refused.Best != want {
			t.Errorf("with %d domains the refusal is %+v, want one where the best domain takes %d", domains, plan.Refused, want)
		}
	}
}
