package gang

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Members of several containers have a bound for their searches, which the nodes share. The gang of the caller stays as it is.
func TestGangSharesSteps(t *testing.T) {
	two := []vgpu.ContainerRequest{{Name: "a", Slots: 1}, {Name: "b", Slots: 2}}
	g := &Group{Members: []Member{{Request: vgpu.Request{Containers: two[:1]}}, {Request: vgpu.Request{Containers: two}}, {Request: vgpu.Request{Containers: two, Steps: 7}}}}
	got := newSearch(&Cluster{Nodes: make([]*vgpu.Node, 0)}, g, Config{}, &Stats{}).g
	for i, want := range []int{0, placement.StepsOn(0), 7} {
		if steps := got.Members[i].Request.Steps; steps != want {
			t.Errorf("member %d has %d steps, want %d", i, steps, want)
		}
	}
	if g.Members[1].Request.Steps != 0 {
		t.Error("the gang of the caller has changed")
	}
	if one, many := placement.StepsOn(1), placement.StepsOn(100); one <= many {
		t.Errorf("each of 100 nodes has %d steps, a single one %d", many, one)
	}
}
