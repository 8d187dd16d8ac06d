package placement_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestRankingSeparatesNodes: nodes that differ in one thing have other scores, and a ranking does not take one for the
// other.
func TestRankingSeparatesNodes(t *testing.T) {
	share := func(slots vgpu.Slots, memory vgpu.Bytes) *vgpu.Request {
		return &vgpu.Request{UID: "new", Containers: []vgpu.ContainerRequest{{Name: "c0", Slots: slots, Memory: memory}}}
	}
	const two = "model LIMITED slots=10 memory=40Gi contexts=2\n"
	const one = "model LIMITED slots=10 memory=40Gi contexts=1\n"
	tests := []struct {
		name, policy, mix string
		a, b              string
		before            [2][]vgpu.Slots // a pod each that takes whole devices
		request           *vgpu.Request
	}{
		{name: "CPU", policy: "bestfit", a: "n cpu=4: g0 A100", b: "n cpu=64: g0 A100", request: share(3, 0)},
		{
			name: "memory", policy: "tandem", mix: "slots=5 memory=4Gi weight=1", a: "n memory=3Gi: g0 A100", b: "n memory=64Gi: g0 A100",
			request: share(3, 0),
		},
		{name: "slots in use", policy: "packed", a: "n: g0 A100 [x:2/8Gi]", b: "n: g0 A100 [x:3/8Gi]", request: share(3, 0)},
		{name: "memory in use", policy: "packed", a: "n: g0 A100 [x:2/8Gi]", b: "n: g0 A100 [x:2/39Gi]", request: share(3, 0)},
		{name: "contexts in use", policy: "packed", a: two + "n: g0 LIMITED [x:2]", b: two + "n: g0 LIMITED [x:1 y:1]", request: share(3, 0)},
		{name: "contexts", policy: "packed", a: one + "n: g0 LIMITED [x:2]", b: two + "n: g0 LIMITED [x:2]", request: share(3, 0)},
		{name: "health", policy: "packed", a: "n: g0 A100", b: "n: g0 A100 sick", request: share(3, 0)},
		{
			name: "model", policy: "packed", a: "n: g0 A100", b: "model B100 slots=10 memory=40Gi contexts=48\nn: g0 B100",
			request: onModels(3, vgpu.Variant{Model: "A100"}),
		},
		{name: "memory of a device", policy: "packed", a: "n: g0 A100", b: "n: g0 A100 80Gi", request: share(3, 60*vgpu.GiB)},
		{name: "slots of a device", policy: "packed", a: "n: g0 A100", b: "model A100 slots=8\nn: g0 A100", request: share(3, 0)},
		{
			name: "links", policy: "packed", a: "n: g0 A100 | g1 A100\nlinks n: g0-g1 NV4", b: "n: g0 A100 | g1 A100\nlinks n: g0-g1 PIX",
			request: share(20, 0),
		},
		{
			name: "what runs", policy: "clustering", a: "n: " + eight, b: "n: " + eight, before: [2][]vgpu.Slots{{20, 20}, {40}},
			request: share(20, 0),
		},
		{name: "no devices", policy: "packed", a: "n:", b: "n: g0 A100", request: share(3, 0)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := policyBy(t, tc.policy, tc.mix, 0)
			k := placement.NewRanking(p)
			scores := k.For(tc.request)
			var nodes [2]*vgpu.Node
			var want [2]int64
			for i, drawing := range []string{tc.a, tc.b} {
				n := drawn(t, drawing)
				for j, slots := range tc.before[i] {
					place(t, n, testkit.Request(fmt.Sprint("before-", j), slots))
				}
				nodes[i], want[i] = n, placement.Score(n, tc.request, p)
				if got := scores.Of(n, k.State(n), tc.request); got != want[i] {
					t.Errorf("node %d: the ranking scores it %d, Score %d", i, got, want[i])
				}
			}
			if want[0] == want[1] {
				t.Errorf("both score %d: they tell nothing", want[0])
			}
			scoresAfterUse(t, p, nodes, want, tc.request)
		})
	}
}

// scoresAfterUse checks the scores of a ranking that knows the nodes from the time when it went by spread.
func scoresAfterUse(t *testing.T, p placement.Policy, nodes [2]*vgpu.Node, want [2]int64, r *vgpu.Request) {
	t.Helper()
	k := placement.NewRanking(policyBy(t, "spread", "", 0))
	states := [2]placement.State{k.State(nodes[0]), k.State(nodes[1])}
	k.Use(p)
	for i, n := range nodes {
		if !k.Has(states[i]) {
			states[i] = k.State(n)
		}
		if got := k.For(r).Of(n, states[i], r); got != want[i] {
			t.Errorf("node %d, after Use: the ranking scores it %d, Score %d", i, got, want[i])
		}
	}
}

// place books a pod where Assign puts it.
func place(t *testing.T, n *vgpu.Node, r *vgpu.Request) {
	t.Helper()
	a, refusal := placement.Assign(n, r, placement.Policy{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	if err := n.Add(a); err != nil {
		t.Fatal(err)
	}
}

// TestRankingSeparatesRequests: the same for requests that differ in one thing, on one node.
func TestRankingSeparatesRequests(t *testing.T) {
	limited := func(compute vgpu.MilliGPU, memory vgpu.Bytes) *vgpu.Request {
		r := testkit.Request("new", 3)
		r.ComputeLimit, r.MemoryLimit = compute, memory
		return r
	}
	tests := []struct {
		name, policy string
		a, b         *vgpu.Request
	}{
		{"slots", "packed", testkit.Request("new", 3), testkit.Request("new", 4)},
		{"models", "packed", onModels(3, vgpu.Variant{Model: "A100"}), onModels(3, vgpu.Variant{Model: "T4"})},
		{"a compute limit below the request", "packed", limited(0, 0), limited(200, 0)},
		{"a memory limit below the request", "packed", limited(0, 0), limited(0, vgpu.GiB)},
		{"CPU", "bestfit", hosted(testkit.Request("new", 3), 1000, 0), hosted(testkit.Request("new", 3), 32000, 0)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := policyBy(t, tc.policy, "", 0)
			n := drawn(t, "n cpu=64: g0 A100")
			k := placement.NewRanking(p)
			at := k.State(n)
			a, b := placement.Score(n, tc.a, p), placement.Score(n, tc.b, p)
			if a == b {
				t.Errorf("both score %d: they tell nothing", a)
			}
			if gotA, gotB := k.For(tc.a).Of(n, at, tc.a), k.For(tc.b).Of(n, at, tc.b); gotA != a || gotB != b {
				t.Errorf("scores %d and %d, want %d and %d", gotA, gotB, a, b)
			}
		})
	}
}

// TestRankingOfRebuiltNodes: nodes that are built anew again and again, in the same state, do not fill the memory.
func TestRankingOfRebuiltNodes(t *testing.T) {
	k := placement.NewRanking(placement.Policy{})
	k.Bound(8, 8)
	for range 50 {
		k.State(drawn(t, "n1: g0 A100"))
		if states, _ := k.Known(); states > 8 {
			t.Fatalf("%d states or nodes are remembered, at most 8 are to be", states)
		}
	}
}
