package preemption_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// asked returns why a pod with as many devices, and a gang of as many members, have no room. The cluster is one node of
// three devices with the pods c, b and a, in this order.
func asked(t *testing.T, devices int, keep bool, change func(*preemption.Candidates)) []*preemption.Refusal {
	t.Helper()
	n, candidates := testkit.Node(t, "n1", testkit.A100, 3), &preemption.Candidates{}
	for d, name := range []string{"c", "b", "a"} {
		if err := n.Add(testkit.Assignment(t, n, d, name, 10)); err != nil {
			t.Fatal(err)
		}
		candidates.Pods = append(candidates.Pods, preemption.Pod{UID: vgpu.UID(name), Name: name, Node: "n1", Gang: -1})
	}
	change(candidates)
	r := testkit.Request("new", vgpu.Slots(10*devices))
	r.Priority = 5
	pod := &gang.Group{Name: "new", MinCount: 1, Members: []gang.Member{{Request: *r}}}
	var list []*preemption.Refusal
	for _, g := range []*gang.Group{pod, membersOf(devices)} {
		plan, err := preemption.Victims(&gang.Cluster{Nodes: []*vgpu.Node{n}}, g, candidates, preemption.Config{KeepBudgets: keep})
		if err != nil || plan.Refused == nil {
			t.Fatal(err, plan.Evict)
		}
		list = append(list, plan.Refused)
	}
	return list
}

// TestRefusedByGuards: the text names all guarded pods, guard by guard, in the same order each time.
func TestRefusedByGuards(t *testing.T) {
	for range 10 {
		for _, r := range asked(t, 3, false, func(candidates *preemption.Candidates) {
			candidates.Pods[0].Guard, candidates.Pods[1].Guard, candidates.Pods[2].Guard = preemption.TooYoung, preemption.Protected, preemption.Foreign
		}) {
			want := "would fit by evicting a, b, c; not done because a is not the scheduler's to evict, " +
				"b is protected by its namespace or its labels, c has run for less than its minimum"
			if diff := cmp.Diff(want, r.Text); diff != "" || !cmp.Equal(r.Guards, []int{0, 1, 2}) || r.Reason != preemption.Guarded {
				t.Fatalf("%s, guards %v (-want +got):\n%s", r.Reason, r.Guards, diff)
			}
		}
	}
}

// TestRefusedByBudgets: the text names the budgets that would be violated, and not those that would be used up.
func TestRefusedByBudgets(t *testing.T) {
	for _, r := range asked(t, 3, true, func(candidates *preemption.Candidates) {
		candidates.Budgets = []preemption.Budget{{Name: "z", Allowed: 1}, {Name: "y", Allowed: 0}, {Name: "x", Allowed: 1}}
		candidates.Pods[0].Budgets, candidates.Pods[1].Budgets, candidates.Pods[2].Budgets = []int{0}, []int{0, 1}, []int{1, 2}
	}) {
		want := "would fit by evicting a, b, c; not done because budget y allows 0 of the 2 evictions, budget z allows 1 of the 2 evictions"
		if diff := cmp.Diff(want, r.Text); diff != "" || !cmp.Equal(r.Budgets, []string{"y", "z"}) || r.Reason != preemption.Budgeted {
			t.Errorf("%s, budgets %v (-want +got):\n%s", r.Reason, r.Budgets, diff)
		}
	}
}

// TestRefusedByGangs: the text says when pods of a lower priority would be enough, but their gang may not lose as many.
func TestRefusedByGangs(t *testing.T) {
	for _, r := range asked(t, 2, false, func(candidates *preemption.Candidates) {
		candidates.Gangs = []preemption.Gang{{Name: "job", MinCount: 2}}
		for i := range candidates.Pods {
			candidates.Pods[i].Gang = 0
		}
		candidates.Pods[0].Priority = 7
	}) {
		if r.Reason != preemption.NeverHelps || !strings.Contains(r.Text, "too few pods may be evicted") || r.Would != nil || r.Guards != nil {
			t.Errorf("refused %+v", *r)
		}
	}
}

// TestRefusedByNodes: a pod that no node admits has no room after any eviction.
func TestRefusedByNodes(t *testing.T) {
	c, candidates := fullRacks(t, 2)
	for admitted, want := range map[int]string{
		0: "no pods of a priority below 5 make room: no node admits it by its other conditions",
		1: "no pods of a priority below 5 make room: number of A100 devices on n00 is 4; container c0 asks for 5 whole devices",
	} {
		g := membersOf(1)
		g.Members[0].Request.Containers[0].Slots = 50
		c.Admits = func(int, int) int { return admitted }
		plan, err := preemption.Victims(c, g, candidates, preemption.Config{})
		if err != nil || plan.Refused == nil {
			t.Fatal(err, plan.Evict)
		}
		if diff := cmp.Diff(want, plan.Refused.Text); diff != "" {
			t.Errorf("admitted %d (-want +got):\n%s", admitted, diff)
		}
	}
}

// TestRefusedByNodesThatCould: the nodes that admit a pod could never take it, and others could. The text then names
// the others, full or free.
func TestRefusedByNodesThatCould(t *testing.T) {
	c, candidates := fullRacks(t, 2)
	c.Nodes[1] = testkit.Node(t, "n01", testkit.T4, 4)
	c.Nodes[1].SetRoom(vgpu.Room{MilliCPU: 1000})
	candidates.Pods = candidates.Pods[:4]
	c.Admits = func(_, node int) int { return node }
	for slots, want := range map[vgpu.Slots]string{
		10: "no node with devices for it admits it by its other conditions",
		50: "number of A100 devices on n00 is 4; container c0 asks for 5 whole devices",
		13: "container c0 asks for 13 slots, which is neither a part of one device nor whole devices; nearest legal values: 10 and 20",
	} {
		g := membersOf(1)
		g.Members[0].Request.Containers[0].Slots = slots
		plan, err := preemption.Victims(c, g, candidates, preemption.Config{})
		if err != nil || plan.Refused == nil {
			t.Fatal(err, plan.Evict)
		}
		if diff := cmp.Diff("no pods of a priority below 5 make room: "+want, plan.Refused.Text); diff != "" {
			t.Errorf("%d slots (-want +got):\n%s", slots, diff)
		}
	}
}
