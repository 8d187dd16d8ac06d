package preemption_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestVictimsRefusesBrokenInput: an error names the field that contradicts the rest.
func TestVictimsRefusesBrokenInput(t *testing.T) {
	type input struct {
		c    *gang.Cluster
		want *gang.Group
		who  *preemption.Candidates
		cfg  preemption.Config
	}
	pod := func(change func(p *preemption.Pod)) func(*input) {
		return func(in *input) { change(&in.who.Pods[1]) }
	}
	for _, c := range []struct {
		name, want string
		change     func(in *input)
	}{
		{"sound", "", func(*input) {}},
		{"no candidates", "", func(in *input) { in.who = nil }},
		{"a node that the cluster does not have", "", pod(func(p *preemption.Pod) { p.Node = "elsewhere" })},
		{"no cluster", "no cluster", func(in *input) { in.c = nil }},
		{"no group", "no group", func(in *input) { in.want = nil }},
		{"steps", "the most steps are -1", func(in *input) { in.cfg.MaxSteps = -1 }},
		{"request", "max-slowdown 5", func(in *input) { in.want.Members[0].Request.MaxSlowdown = 5 }},
		{"nodes", "comes after", func(in *input) { in.c.Nodes[0], in.c.Nodes[1] = in.c.Nodes[1], in.c.Nodes[0] }},
		{"budget", "budget 0 web allows -1", func(in *input) { in.who.Budgets[0].Allowed = -1 }},
		{"gang", "gang 0 job has the min count -1", func(in *input) { in.who.Gangs[0].MinCount = -1 }},
		{"UID", "candidate 1 b: no UID", pod(func(p *preemption.Pod) { p.UID = "" })},
		{"twice", "candidate 1 b: its UID appears twice", pod(func(p *preemption.Pod) { p.UID = "a" })},
		{"name", "candidate 1 : no name", pod(func(p *preemption.Pod) { p.Name = "" })},
		{"cores", "candidate 1 b: its part of the host is -1m", pod(func(p *preemption.Pod) { p.Host.MilliCPU = -1 })},
		{"memory", "candidate 1 b: its part of the host is 0m -1", pod(func(p *preemption.Pod) { p.Host.Memory = -1 })},
		{"lost", "candidate 1 b: the work lost is -1", pod(func(p *preemption.Pod) { p.Lost = -1 })},
		{"lost for ever", "candidate 1 b: the work lost is 9223372036854775807", pod(func(p *preemption.Pod) { p.Lost = 1<<63 - 1 })},
		{"gang below", "candidate 1 b: its gang is -2 of 1", pod(func(p *preemption.Pod) { p.Gang = -2 })},
		{"gang above", "candidate 1 b: its gang is 1 of 1", pod(func(p *preemption.Pod) { p.Gang = 1 })},
		{"budget below", "candidate 1 b: its budget is -1 of 1", pod(func(p *preemption.Pod) { p.Budgets = []int{-1} })},
		{"budget above", "candidate 1 b: its budget is 1 of 1", pod(func(p *preemption.Pod) { p.Budgets = []int{1} })},
		{"budget twice", "candidate 1 b: budget 0 is listed twice", pod(func(p *preemption.Pod) { p.Budgets = []int{0, 0} })},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &input{
				c:    &gang.Cluster{Nodes: []*vgpu.Node{testkit.Node(t, "n1", testkit.A100, 1), testkit.Node(t, "n2", testkit.A100, 1)}},
				want: &gang.Group{Name: "new", Members: []gang.Member{{Request: *testkit.Request("new", 5)}}, MinCount: 1},
				who: &preemption.Candidates{
					Pods:  []preemption.Pod{{UID: "a", Name: "a", Node: "n1", Gang: -1}, {UID: "b", Name: "b", Node: "n1"}},
					Gangs: []preemption.Gang{{Name: "job", MinCount: 1}}, Budgets: []preemption.Budget{{Name: "web"}},
				},
			}
			c.change(in)
			_, err := preemption.Victims(in.c, in.want, in.who, in.cfg)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "find victims")):
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestAmountsSaturate: amounts that add up to more than 64 bits hide no pod. The host lacks more than c gives back, and
// each of the others gives back enough: the one that loses less is evicted.
func TestAmountsSaturate(t *testing.T) {
	n := testkit.Node(t, "n1", testkit.A100, 1)
	n.SetRoom(vgpu.Room{MilliCPU: -1 << 60, Memory: -1 << 60})
	want := testkit.Request("new", 5)
	want.Priority, want.Host = 9, vgpu.Room{MilliCPU: 1000, Memory: vgpu.GiB}
	all := vgpu.Room{MilliCPU: 1 << 62, Memory: 1 << 62}
	candidates := &preemption.Candidates{Pods: []preemption.Pod{
		{UID: "a", Name: "a", Node: "n1", Host: all, Lost: preemption.MaxLost, Gang: -1},
		{UID: "b", Name: "b", Node: "n1", Host: all, Lost: preemption.MaxLost - 1, Gang: -1},
		{UID: "c", Name: "c", Node: "n1", Host: vgpu.Room{MilliCPU: 2000, Memory: 2 * vgpu.GiB}, Gang: -1},
	}}
	policy, err := placement.ByName("packed")
	must.OK(t, err)
	plan, err := preemption.Victims(&gang.Cluster{Nodes: []*vgpu.Node{n}},
		&gang.Group{Name: "new", Members: []gang.Member{{Request: *want}}, MinCount: 1}, candidates, preemption.Config{Config: gang.Config{Policy: policy}})
	if err != nil || plan.Refused != nil {
		t.Fatalf("error %v, refused %+v", err, plan.Refused)
	}
	if diff := cmp.Diff([]preemption.Unit{{Name: "b", Pods: []int{1}}}, plan.Evict); diff != "" {
		t.Errorf("victims (-want +got):\n%s", diff)
	}
}

// TestCutSparesOnOtherNodes: a gang that ends as a whole makes room on two nodes. A search that a bound cuts finds room
// for two whole devices only where a pod beside the gang must go as well, on n1. The plan spares that pod and moves to n0.
func TestCutSparesOnOtherNodes(t *testing.T) {
	c := testkit.Cluster(t, testkit.Node(t, "n0", testkit.A100, 3), testkit.Node(t, "n1", testkit.A100, 2))
	who := &preemption.Candidates{Gangs: []preemption.Gang{{Name: "job", MinCount: 3}}}
	for _, p := range []struct {
		node, device int
		name         string
		gang         int
	}{{0, 0, "job-0", 0}, {0, 1, "job-1", 0}, {0, 2, "b", -1}, {1, 0, "job-2", 0}, {1, 1, "a", -1}} {
		n := c.Nodes()[p.node]
		must.OK(t, c.Add(testkit.Assignment(t, n, p.device, p.name, 10)))
		who.Pods = append(who.Pods, preemption.Pod{UID: vgpu.UID(p.name), Name: p.name, Node: n.Name(), Gang: p.gang})
	}
	want := testkit.Request("new", 20)
	want.Priority = 1
	policy, err := placement.ByName("packed")
	must.OK(t, err)
	plan, err := preemption.Victims(&gang.Cluster{Nodes: c.Nodes()}, &gang.Group{Name: "new", Members: []gang.Member{{Request: *want}}, MinCount: 1},
		who, preemption.Config{Config: gang.Config{Policy: policy}, MaxSteps: 2})
	if err != nil || plan.Refused != nil || !plan.Stats.Cut {
		t.Fatalf("error %v, refused %+v, %+v", err, plan.Refused, plan.Stats)
	}
	if got := names(plan.Evict); !slices.Equal(got, []string{"job"}) || plan.Places[0].Node != "n0" {
		t.Errorf("evicts %v for a place on %s, want the job for a place on n0", got, plan.Places[0].Node)
	}
}

// TestCutLaw: a search that a bound cuts may miss the cheapest set, and says so. Its plan is legal, makes room, and
// needs each unit. If it finds no plan although there is one, it says that it was cut.
func TestCutLaw(t *testing.T) {
	met := tally{}
	rapid.Check(t, func(t *rapid.T) {
		met["asked"]++
		s := randomSite(t, small, false)
		s.cfg.MaxSteps = rapid.IntRange(1, 3).Draw(t, "steps")
		plan := mustPlan(t, s)
		best := s.cheapest(t, false, s.cfg.KeepBudgets)
		switch {
		case best == nil:
			if plan.Refused == nil {
				t.Fatalf("evicts %v, the twin finds no victims", names(plan.Evict))
			}
			return
		case plan.Refused != nil:
			if !plan.Refused.Cut {
				t.Fatalf("refused %+v, the twin evicts %v", *plan.Refused, names(best.units))
			}
			met["refused"]++
			return
		}
		s.legal(t, &plan)
		s.minimal(t, &plan)
		s.effective(t, &plan)
		if dear := dearer(plan.Cost, best.cost); dear < 0 || dear > 0 && !plan.Stats.Cut {
			t.Fatalf("evicts %v at %+v, the twin %v at %+v", names(plan.Evict), plan.Cost, names(best.units), best.cost)
		} else if dear > 0 {
			met["dearer"]++
		}
		if plan.Stats.Cut {
			met["cut"]++
		}
	})
	if met["asked"] >= 1000 {
		met.require(t, 1, "cut")
	}
}

// TestPlaceLaw: of the nodes where the same units make room, a pod goes to the one with the highest score of the
// policy, the first by name among equals. It gets the devices that the policy prefers there. With leaving pods the node
// may be another.
func TestPlaceLaw(t *testing.T) {
	met := tally{}
	rapid.Check(t, func(t *rapid.T) {
		s := randomSite(t, small, false)
		for i := range s.who.Pods {
			s.who.Pods[i].Leaving = false
		}
		plan := mustPlan(t, s)
		if plan.Refused != nil {
			return
		}
		gone := victimSet{units: plan.Evict}
		r, c := &s.want.Members[0].Request, s.without(gone.pods())
		var best vgpu.Assignment
		top, nodes := int64(-1), 0
		for i, n := range c.Nodes {
			if s.Admits != nil && s.Admits(0, i) < 1 || !r.Host.Within(n.Room()) {
				continue
			}
			a, score, refusal := s.cfg.Policy.AssignScored(n, r)
			if refusal != nil {
				continue
			}
			if nodes++; score > top {
				best, top = a, score
			}
		}
		if diff := cmp.Diff(best, plan.Places[0]); diff != "" {
			t.Fatalf("without %v the policy prefers (-want +got):\n%s", names(plan.Evict), diff)
		}
		met.note(&plan)
		if nodes > 1 && len(plan.Evict) > 0 {
			met["nodes"]++
		}
	})
	met.require(t, 1, "no victim", "Single")
}

// TestFewestWaits: of nodes without evictions, Victims takes the one where it waits for the fewest pods, whatever its
// name and score.
func TestFewestWaits(t *testing.T) {
	c, err := testkit.Parse("n1: g0 A100 [a:5 b:5]\nn2: g0 A100 [c:10]\nn3: g0 A100 [d:3 e:7]\n")
	must.OK(t, err)
	var candidates preemption.Candidates
	for _, p := range []struct{ name, node string }{{"a", "n1"}, {"b", "n1"}, {"c", "n2"}, {"d", "n3"}, {"e", "n3"}} {
		candidates.Pods = append(candidates.Pods, preemption.Pod{UID: vgpu.UID(p.name), Name: p.name, Node: p.node, Leaving: true, Gang: -1})
	}
	want := &gang.Group{Name: "new", Members: []gang.Member{{Request: *testkit.Request("new", 8)}}, MinCount: 1}
	plan, err := preemption.Victims(&gang.Cluster{Nodes: c.Nodes()}, want, &candidates, preemption.Config{})
	must.OK(t, err)
	if diff := cmp.Diff([]int{2}, plan.Waits); diff != "" || plan.Places[0].Node != "n2" {
		t.Errorf("goes to %s and waits for (-want +got):\n%s", plan.Places[0].Node, diff)
	}
}
