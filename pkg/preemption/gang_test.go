package preemption_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// fullRacks returns nodes of four devices in racks of two, of which the last node has no rack. A pod of priority 0 is
// on each device. It also returns the candidates.
func fullRacks(tb testing.TB, nodes int) (*gang.Cluster, *preemption.Candidates) {
	tb.Helper()
	c, candidates := &gang.Cluster{}, &preemption.Candidates{}
	for i := range nodes {
		n := testkit.Node(tb, fmt.Sprintf("n%02d", i), testkit.A100, 4)
		n.SetRoom(vgpu.Room{MilliCPU: 1000})
		for d := range 4 {
			name := fmt.Sprintf("old-%02d-%d", i, d)
			must.OK(tb, n.Add(testkit.Assignment(tb, n, d, name, 10)))
			candidates.Pods = append(candidates.Pods, preemption.Pod{UID: vgpu.UID(name), Name: name, Node: n.Name(), Gang: -1, Lost: int64(10*i + d)})
		}
		c.Nodes = append(c.Nodes, n)
	}
	c.Levels = levels(c.Nodes)
	c.Levels[0].Names = nil
	for i := range nodes {
		c.Levels[0].Domain[i] = int32(i / 2)
		if i%2 == 0 {
			c.Levels[0].Names = append(c.Levels[0].Names, fmt.Sprintf("r%02d", i/2))
		}
	}
	c.Levels[0].Domain[nodes-1] = -1
	return c, candidates
}

// membersOf returns as many members with one device each.
func membersOf(members int, required ...string) *gang.Group {
	g := &gang.Group{Name: "new", MinCount: members, Wishes: gang.Wishes{Required: required}}
	for i := range members {
		r := testkit.Request(fmt.Sprintf("new-%02d", i), 10)
		r.Priority = 5
		g.Members = append(g.Members, gang.Member{Request: *r, Rank: i})
	}
	return g
}

// TestGangDomains: the search looks at each domain of each required level by itself. Nodes without a label are in no
// domain. If members have a place, only their domain counts.
func TestGangDomains(t *testing.T) {
	for name, ask := range map[string]struct {
		required []string
		placed   bool
		places   int
	}{
		"anywhere":          {nil, false, 1},
		"rack":              {[]string{"rack"}, false, 3},
		"host":              {[]string{"host"}, false, 6},
		"host in a rack":    {[]string{"host", "rack"}, false, 5},
		"island":            {[]string{gang.NVLink}, false, 6},
		"near the others":   {[]string{"rack"}, true, 1},
		"beside the others": {nil, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, candidates := fullRacks(t, 6)
			g := membersOf(1, ask.required...)
			g.MinCount = 2
			g.Members = append(g.Members, membersOf(2).Members[1])
			if ask.placed {
				candidates.Pods = candidates.Pods[1:]
				a := c.Nodes[0].Assignments()[0]
				g.Placed, g.MinCount = []vgpu.Assignment{a}, 3
			}
			plan, err := preemption.Victims(c, g, candidates, preemption.Config{})
			must.OK(t, err)
			if plan.Stats.Places != ask.places {
				t.Errorf("looked at %d domains, want %d (%+v)", plan.Stats.Places, ask.places, plan.Refused)
			}
		})
	}
}

// TestGangSteps: the number of tried sets stays within bounds, and the plan says whether a bound cut the search. The
// search finds the cheapest victims all the same.
func TestGangSteps(t *testing.T) {
	for name, ask := range map[string]struct {
		nodes, members int
		required       []string
		maxSteps       int
		// lost is the work that is lost, 10·node + device for each pod.
		lost  int64
		steps int
		cut   bool
		// two says that a node takes two members at most, by their CPU or by other conditions.
		two string
	}{
		// The search lists the 4,096 sets of twelve pods. It tries few of those that fail, since their subsets fail as well.
		"all sets of three nodes": {3, 4, nil, 0, 0 + 1 + 2 + 3, 50, false, ""},
		// Sixteen pods have 65,536 sets: the greedy search takes the four with the least work one by one, and tries to
		// spare each.
		"four of four nodes":     {4, 4, nil, 0, 0 + 1 + 2 + 3, 8, true, ""},
		"two on a node by CPU":   {4, 4, nil, 0, 0 + 1 + 10 + 11, 8, true, "CPU"},
		"two on a node by rules": {4, 4, nil, 0, 0 + 1 + 10 + 11, 8, true, "rules"},
		"few steps":              {3, 4, nil, 1, 0 + 1 + 2 + 3, 8, true, ""},
		"thirty of ten":          {10, 30, nil, 0, 10*4*(0+1+2+3+4+5+6) + 7*6 + 70 + 71, 34, true, ""},
		// Each host has sixteen sets.
		"a host of ten": {10, 4, []string{"host"}, 0, 0 + 1 + 2 + 3, 72, false, ""},
		"larger":        {10, 5, []string{"host"}, 0, 0, 11, false, ""},
		"a rack of ten": {10, 6, []string{"rack"}, 0, 0 + 1 + 2 + 3 + 10 + 11, 154, false, ""},
		// The steps end at the second of the hosts.
		"few steps on hosts": {10, 4, []string{"host"}, 20, 0 + 1 + 2 + 3, 35, true, ""},
		// The search tries only the rack that promises the cheapest victims.
		"few steps in racks": {10, 6, []string{"rack"}, 1, 0 + 1 + 2 + 3 + 10 + 11, 23, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, candidates := fullRacks(t, ask.nodes)
			g := membersOf(ask.members, ask.required...)
			switch ask.two {
			case "CPU":
				for i := range g.Members {
					g.Members[i].Request.Host.MilliCPU = 500
				}
			case "rules":
				c.Admits = func(int, int) int { return 2 }
			}
			plan, err := preemption.Victims(c, g, candidates, preemption.Config{MaxSteps: ask.maxSteps})
			must.OK(t, err)
			if plan.Cost.Lost != ask.lost || plan.Stats.Steps > ask.steps || plan.Stats.Cut != ask.cut {
				t.Errorf("lost %d by %v, want %d; %+v, at most %d steps, cut %v", plan.Cost.Lost, names(plan.Evict), ask.lost, plan.Stats, ask.steps, ask.cut)
			}
		})
	}
}

// TestGangSets: a pod that is evicted only with others is no set by itself.
func TestGangSets(t *testing.T) {
	c, candidates := fullRacks(t, 3)
	candidates.Gangs = []preemption.Gang{{Name: "one", MinCount: 6}, {Name: "two", MinCount: 6}}
	for i := range candidates.Pods {
		candidates.Pods[i].Gang = i / 6
	}
	plan, err := preemption.Victims(c, membersOf(7), candidates, preemption.Config{MaxSteps: 30})
	must.OK(t, err)
	if plan.Stats.Cut || len(plan.Evict) != 2 || plan.Cost.Broken != 2 {
		t.Errorf("evicts %v, %+v", plan.Evict, plan.Stats)
	}
}

// TestGangIsland: the cheapest room for one member after the other is on two islands, and the gang needs one.
func TestGangIsland(t *testing.T) {
	devices := testkit.A100.Devices("n1", 4)
	for _, d := range []int{1, 3} {
		devices[d].Links = []vgpu.Link{{Peer: devices[d-1].ID, Class: vgpu.LinkNVLink, Lanes: 12}}
	}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	candidates := &preemption.Candidates{}
	for d, lost := range []int64{1, 30, 2, 40} {
		name := fmt.Sprint("old-", d)
		must.OK(t, n.Add(testkit.Assignment(t, n, d, name, 10)))
		candidates.Pods = append(candidates.Pods, preemption.Pod{UID: vgpu.UID(name), Name: name, Node: "n1", Gang: -1, Lost: lost})
	}
	candidates.Budgets = []preemption.Budget{{Name: "web", Allowed: 1}}
	for _, ask := range []struct {
		steps int
		keep  bool
		lost  int64
	}{{0, false, 31}, {1, false, 31}, {0, true, 42}, {1, true, 42}} {
		if ask.keep { // one of the cheaper island
			candidates.Pods[0].Budgets, candidates.Pods[1].Budgets = []int{0}, []int{0}
		}
		plan, err := preemption.Victims(&gang.Cluster{Nodes: []*vgpu.Node{n}}, membersOf(2, gang.NVLink), candidates,
			preemption.Config{MaxSteps: ask.steps, KeepBudgets: ask.keep})
		must.OK(t, err)
		if plan.Cost.Lost != ask.lost || plan.Stats.Cut != (ask.steps == 1) {
			t.Errorf("%+v: evicts %v, %+v, %+v", ask, names(plan.Evict), plan.Stats, plan.Refused)
		}
	}
}
