package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestAdmitsProperty: where some nodes admit no job, jobs and gangs get the same places as in a cluster without these nodes.
func TestAdmitsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSetup(t, allQueues...)
		s.Mix = usual(t)
		closed := map[string]bool{}
		open := s
		open.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n *vgpu.Node) bool {
			closed[n.Name()] = n != s.Nodes[0] && rapid.Bool().Draw(t, "closed") // one node is open
			return closed[n.Name()]
		})
		s.Admits = func(_ int, node string) bool { return !closed[node] }
		if diff := cmp.Diff(times(play(t, open)), times(play(t, s))); diff != "" {
			t.Fatalf("closed nodes make a difference (-without them +with them):\n%s", diff)
		}
	})
}

// times returns what became of the jobs, without what depends on the devices of all nodes.
func times(h *sim.History) []sim.Outcome {
	all := slices.Clone(h.Outcomes)
	for i := range all {
		all[i].Asked = 0
	}
	return all
}

// TestAdmitsByClass: each job goes to a node that admits its class, and jobs that are alike apart from their class do not take each
// other's refusal for theirs.
func TestAdmitsByClass(t *testing.T) {
	s := setup(t, 10, 10, 10, 10)
	n := s.Nodes[0].Clone()
	other, err := vgpu.NewNode("n2", []vgpu.Device{{ID: "n2/g0", Model: "A100", Slots: 10, Memory: n.Devices()[0].Memory, Healthy: true}})
	must.OK(t, err)
	other.SetRoom(plenty)
	s.Nodes, s.Queue = append(s.Nodes, other), sim.Skip
	s.Admits = func(class int, node string) bool { return class == 1 && node == "n1" || class == 2 && node == "n2" }
	for i := range s.Jobs {
		s.Jobs[i].Class = 1 + i%2
	}
	s.Jobs[0].Duration = 0
	h, err := sim.Run(s)
	must.OK(t, err)
	var nodes []string
	for i := range h.Outcomes {
		nodes = append(nodes, h.Outcomes[i].Assignment.Node)
	}
	if diff := cmp.Diff([]string{"n1", "n2", "", "n2"}, nodes); diff != "" {
		t.Error(diff)
	}
	if at := h.Outcomes[3].Started; at != 11*time.Minute {
		t.Errorf("job 3 starts at %v, want the end of job 1", at)
	}
}
