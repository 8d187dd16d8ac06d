package sim_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// runner is a pod that runs, by name as in the drawing. Without devices it says on which node it is.
type runner struct {
	name     string
	priority int32
	started  int64
	cores    int64
	node     string
	budgets  []int
}

// inTreeCase is one eviction for a pod of priority 100 that asks for slots and cores.
type inTreeCase struct {
	name, cluster string
	pods          []runner
	allowed       []int
	slots         vgpu.Slots
	cores         int64
	// want is the node, then the victims, then "!" for each violation; "" for nobody.
	want string
}

var inTreeCases = []inTreeCase{
	{
		name:    "only those of a lower priority go",
		cluster: "n1: g0 A100 [a:5 b:5]\nn2: g0 A100 [c:5 d:5]",
		pods:    []runner{{name: "a", priority: 100}, {name: "b", priority: 101}, {name: "c", priority: 99}, {name: "d", priority: 100}},
		slots:   5, want: "n2 c",
	},
	{
		name:    "nobody helps where those of a lower priority are too few",
		cluster: "n1: g0 A100 [a:5 b:5]",
		pods:    []runner{{name: "a", priority: 100}, {name: "b"}},
		slots:   6, want: "",
	},
	{
		// Both have to be looked at, and one of either stays: b is more important than a, and then c than d.
		name:    "the higher priority is spared, then the earlier start",
		cluster: "n1: g0 A100 [a:5 b:5] | g1 A100 [c:5 d:5]",
		pods:    []runner{{name: "d", priority: 5, started: 3}, {name: "c", priority: 5, started: 2}, {name: "a", priority: 5, started: 1}, {name: "b", priority: 6, started: 9}},
		slots:   5, want: "n1 d",
	},
	{
		// On one GPU all of it is needed: a comes back first and leaves g1, where c comes back beside nobody.
		name:    "devices are not looked ahead to: the last GPU is cleared, however many are on it",
		cluster: "n1: g0 A100 [a:1] | g1 A100 [b:1 c:1 d:1]",
		pods:    []runner{{name: "a", started: 1}, {name: "b", started: 2}, {name: "c", started: 3}, {name: "d", started: 4}},
		slots:   10, want: "n1 b c d",
	},
	{
		name:    "those against a budget are spared first, whatever their priority",
		cluster: "n1: g0 A100 [a:5 b:5]",
		pods:    []runner{{name: "a", priority: 1, budgets: []int{0}}, {name: "b", priority: 9}},
		allowed: []int{0}, slots: 5, want: "n1 b",
	},
	{
		// The most important of the three under the budget uses it up, so that the other two are the ones to spare.
		name:    "a budget is used up by the most important",
		cluster: "n1: g0 A100 [a:4 b:3 c:3]",
		pods:    []runner{{name: "a", priority: 3, budgets: []int{0}}, {name: "b", priority: 2, budgets: []int{0}}, {name: "c", priority: 1, budgets: []int{0}}},
		allowed: []int{1}, slots: 4, want: "n1 a",
	},
	{
		// a goes against budget 0, and is one of two that budget 1 allows.
		name:    "a pod counts up to the first budget that it goes against",
		cluster: "n1: g0 A100 [a:5 b:5]",
		pods:    []runner{{name: "a", priority: 2, budgets: []int{0, 1}}, {name: "b", priority: 1, budgets: []int{1}}},
		allowed: []int{0, 2}, slots: 10, want: "n1 a b !",
	},
	{
		name:    "fewest violations",
		cluster: "n1: g0 A100 [a:10]\nn2: g0 A100 [b:5 c:5]",
		pods:    []runner{{name: "a", budgets: []int{0}}, {name: "b", priority: 9}, {name: "c", priority: 9}},
		allowed: []int{0}, slots: 10, want: "n2 b c",
	},
	{
		name:    "then the lowest highest priority",
		cluster: "n1: g0 A100 [a:10]\nn2: g0 A100 [b:5 c:5]",
		pods:    []runner{{name: "a", priority: 9}, {name: "b", priority: 8}, {name: "c", priority: 8}},
		slots:   10, want: "n2 b c",
	},
	{
		// The highest is a violating one, which is not the first to be looked at again.
		name:    "the highest priority is that of all victims",
		cluster: "n1: g0 A100 [a:5 b:5]\nn2: g0 A100 [c:5 d:5]",
		pods: []runner{{name: "a", priority: 2, budgets: []int{0}}, {name: "b", priority: 9},
			{name: "c", priority: 3, budgets: []int{0}}, {name: "d", priority: 3}},
		allowed: []int{0}, slots: 10, want: "n2 c d !",
	},
	{
		name:    "then the smallest sum, in which a negative priority is still more than none",
		cluster: "n1: g0 A100 [a:5 b:5]\nn2: g0 A100 [c:10]",
		pods:    []runner{{name: "a", priority: -5}, {name: "b", priority: -5}, {name: "c", priority: -5}},
		slots:   10, want: "n2 c",
	},
	{
		name:    "the sum comes before the start",
		cluster: "n1: g0 A100 [a:5 b:5]\nn2: g0 A100 [c:5 d:5]",
		pods:    []runner{{name: "a", priority: 9, started: 8}, {name: "b", priority: 5, started: 8}, {name: "c", priority: 9}, {name: "d", priority: 4}},
		slots:   10, want: "n2 c d",
	},
	{
		// The least possible priority adds nothing to the sum.
		name:    "then the fewest pods",
		cluster: "n1: g0 A100 [a:5 b:5]\nn2: g0 A100 [c:10]",
		pods:    []runner{{name: "a", priority: 9, started: 8}, {name: "b", priority: math.MinInt32}, {name: "c", priority: 9}},
		slots:   10, want: "n2 c",
	},
	{
		// The first to start of the highest priority started at 3 on n1, at 4 on n2; those of a lower priority do not count.
		name:    "then the latest of the first starts",
		cluster: "n1: g0 A100 [a:4 b:3 x:3]\nn2: g0 A100 [c:4 d:3 y:3]",
		pods: []runner{{name: "a", priority: 1, started: 9}, {name: "b", priority: 1, started: 3}, {name: "x", started: 8},
			{name: "c", priority: 1, started: 5}, {name: "d", priority: 1, started: 4}, {name: "y", started: 1}},
		slots: 10, want: "n2 d c y",
	},
	{
		name:    "then the first node",
		cluster: "n2: g0 A100 [c:10]\nn1: g0 A100 [a:10]",
		pods:    []runner{{name: "c"}, {name: "a"}},
		slots:   10, want: "n1 a",
	},
	{
		name:    "the host counts: pods without devices go as well",
		cluster: "n1 cpu=1: g0 A100 [a:5]",
		pods:    []runner{{name: "a", cores: 1, started: 1}, {name: "web", node: "n1", cores: 2, started: 2}, {name: "idle", node: "n1", cores: 0}},
		slots:   5, cores: 3, want: "n1 web",
	},
	{
		name:    "a host that is too small is no help",
		cluster: "n1 cpu=1: g0 A100 [a:5]",
		pods:    []runner{{name: "a", cores: 1}},
		slots:   5, cores: 3, want: "",
	},
	{
		// A try in vain leaves no trace: were b's three cores still counted, c could not be spared either.
		name:    "a pod that cannot come back gives its room back",
		cluster: "n1 cpu=1: g0 A100",
		pods:    []runner{{name: "b", node: "n1", cores: 3, started: 1}, {name: "c", node: "n1", cores: 1, started: 2}},
		slots:   5, cores: 4, want: "n1 b",
	},
	{
		name:    "nor do its devices stay taken",
		cluster: "n1: g0 A100 [b:6 c:4]",
		pods:    []runner{{name: "b", started: 1}, {name: "c", started: 2}},
		slots:   5, want: "n1 b",
	},
	{
		name:    "a node that has room is passed over",
		cluster: "n1: g0 A100 [a:5]\nn2: g0 A100 [b:10]",
		pods:    []runner{{name: "a"}, {name: "b", priority: 9}},
		slots:   5, want: "n2 b",
	},
	{
		name:    "room that is held by priority stays",
		cluster: "n1: g0 A100 [a:10] (h:5@100)\nn2: g0 A100 [b:10] (i:5@99)",
		pods:    []runner{{name: "a"}, {name: "b", priority: 9}},
		slots:   10, want: "n2 b",
	},
}

func TestInTree(t *testing.T) {
	for _, tc := range inTreeCases {
		t.Run(tc.name, func(t *testing.T) {
			cluster, err := testkit.Parse(tc.cluster)
			must.OK(t, err)
			before := testkit.Draw(cluster)
			c, model := tc.candidates(cluster)
			r := testkit.Request("new", tc.slots)
			r.Priority, r.Host.MilliCPU = 100, tc.cores*1000
			got, err := model.Victims(cluster.Nodes(), r, c)
			must.OK(t, err)
			words := []string{got.Node}
			for _, i := range got.Pods {
				words = append(words, c.Pods[i].Name)
			}
			for range got.Violations {
				words = append(words, "!")
			}
			if diff := cmp.Diff(tc.want, strings.Join(words, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, testkit.Draw(cluster)); diff != "" {
				t.Errorf("the cluster changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestInTreeStopsEarly: once it has found candidates on 100 nodes, or on a tenth of them, one of which violates nothing, it looks
// no further. Each node has a pod that started later than those before it, so the last to be looked at is chosen.
func TestInTreeStopsEarly(t *testing.T) {
	for _, tc := range []struct {
		name                        string
		nodes, violating, foreigner int
		want                        string
	}{
		{name: "all of few", nodes: 99, want: "n0098"},
		{name: "a hundred", nodes: 101, want: "n0099"},
		{name: "a tenth", nodes: 1200, want: "n0119"},
		{name: "nodes without victims do not count", nodes: 1200, foreigner: 30, want: "n0149"},
		{name: "up to the first that violates nothing", nodes: 300, violating: 150, want: "n0150"},
		{name: "all where all violate", nodes: 300, violating: 300, want: "n0299"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var drawing strings.Builder
			var pods []runner
			for i := range tc.nodes {
				fmt.Fprintf(&drawing, "n%04d: g0 A100 [p%d:10]\n", i, i)
				p := runner{name: fmt.Sprintf("p%d", i), started: int64(i)}
				if i < tc.violating {
					p.budgets = []int{0}
				}
				if i < tc.foreigner {
					p.priority = 100
				}
				pods = append(pods, p)
			}
			cluster, err := testkit.Parse(drawing.String())
			must.OK(t, err)
			own := inTreeCase{pods: pods, allowed: []int{0}}
			c, model := own.candidates(cluster)
			r := testkit.Request("new", 10)
			r.Priority = 100
			got, err := model.Victims(cluster.Nodes(), r, c)
			if err != nil || got.Node != tc.want {
				t.Errorf("node %q, %v, want %s", got.Node, err, tc.want)
			}
		})
	}
}

// TestInTreeDraws: the order of the nodes is drawn, and the same draw gives the same order.
func TestInTreeDraws(t *testing.T) {
	var drawing strings.Builder
	var pods []runner
	for i := range 200 {
		fmt.Fprintf(&drawing, "n%03d: g0 A100 [p%d:10]\n", i, i)
		pods = append(pods, runner{name: fmt.Sprintf("p%d", i), started: int64(i)})
	}
	cluster, err := testkit.Parse(drawing.String())
	must.OK(t, err)
	c, model := (&inTreeCase{pods: pods}).candidates(cluster)
	r := testkit.Request("new", 10)
	r.Priority = 1
	choose := func(seed uint64) string {
		model.Draw = seed
		e, err := model.Victims(cluster.Nodes(), r, c)
		must.OK(t, err)
		return e.Node
	}
	times := map[string]int{}
	for seed := uint64(1); seed <= 300; seed++ {
		node := choose(seed)
		times[node]++
		if again := choose(seed); again != node {
			t.Errorf("seed %d: %s, then %s", seed, node, again)
		}
	}
	// Half of the nodes are looked at: the best is among them in every second draw.
	if best := times["n199"]; best < 110 || best > 190 || len(times) < 4 {
		t.Errorf("300 draws choose %v, want n199 in about 150 of them", times)
	}
}

// candidates returns the pods of a case on the nodes of its drawing.
func (tc *inTreeCase) candidates(cluster *vgpu.Cluster) (*preemption.Candidates, *sim.InTree) {
	c, model := &preemption.Candidates{}, &sim.InTree{}
	for _, allowed := range tc.allowed {
		c.Budgets = append(c.Budgets, preemption.Budget{Allowed: allowed})
	}
	on := map[vgpu.UID]string{}
	for _, n := range cluster.Nodes() {
		n.Each(func(a *vgpu.Assignment) { on[a.UID] = n.Name() })
	}
	for _, p := range tc.pods {
		node := p.node
		if node == "" {
			node = on[vgpu.UID(p.name)]
		}
		c.Pods = append(c.Pods, preemption.Pod{
			UID: vgpu.UID(p.name), Name: p.name, Node: node, Priority: p.priority, Budgets: p.budgets, Gang: -1,
			Host: vgpu.Room{MilliCPU: p.cores * 1000},
		})
		model.Started = append(model.Started, p.started)
	}
	return c, model
}

func TestInTreeRefusesUnevenLists(t *testing.T) {
	cluster, err := testkit.Parse("n1: g0 A100 [a:5]")
	must.OK(t, err)
	c := &preemption.Candidates{Pods: []preemption.Pod{{UID: "a", Node: "n1"}}}
	_, err = (&sim.InTree{}).Victims(cluster.Nodes(), testkit.Request("new", 10), c)
	if want := "model eviction for pod new: 0 times of start for 1 pods"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
