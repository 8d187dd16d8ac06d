package placement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestPromises(t *testing.T) {
	tests := []struct {
		name    string
		pods    []string
		request *vgpu.Request
		// device that is chosen, "" with why not.
		device string
		why    string
	}{{
		// 1 + 0.5 is 0.5 over: speed 0.9, slowdown 1.111.
		name: "the pod's own promise holds", pods: []string{"a 0 4 1 0"}, request: pod(4, vgpu.Tenancy{Workload: 2, MaxSlowdown: 1112}),
		device: "d0",
	}, {
		name: "and breaks", pods: []string{"a 0 4 1 0"}, request: pod(4, vgpu.Tenancy{Workload: 2, MaxSlowdown: 1110}),
		why: "on n1/g0 a slowdown of 1.111 is predicted for the pod beside a; its max-slowdown is 1.11",
	}, {
		name: "a neighbour's promise breaks", pods: []string{"a 0 4 1 1110", "b 0 1 3 0"}, request: pod(4, vgpu.Tenancy{Workload: 3}),
		// 1 + 0.1 + 0.1 is 0.2 over: 0.96, 1.042.
		device: "d0",
	}, {
		name: "of several the one that breaks the most", pods: []string{"a 0 3 1 1200", "b 0 3 3 1100"}, request: pod(4, vgpu.Tenancy{Workload: 1}),
		// 1 + 0.1 + 1 is 1.1 over: 0.78, 1.282.
		why: "on n1/g0 the pod would slow down b, for which 1.282 is then predicted and whose max-slowdown is 1.1",
	}, {
		// The guess is a standard error worse: 1 + 1 is 1 over: 0.8, 1.25, times 1.11.
		name: "a guess is taken as worse", pods: []string{"a 0 4 1 1300"}, request: pod(4, vgpu.Tenancy{Workload: 9}),
		why: "on n1/g0 the pod would slow down a, for which 1.388 is then predicted and whose max-slowdown is 1.3",
	}, {
		// Half of what 0.4 of the device allow: 1 + 0.2 is 0.2 over: 0.96, 1.042.
		name: "who declares to use nothing is not believed", pods: []string{"a 0 4 1 1030"}, request: pod(4, vgpu.Tenancy{Workload: 4}),
		why: "on n1/g0 the pod would slow down a, for which 1.042 is then predicted and whose max-slowdown is 1.03 " +
			"(the use of the pod is declared and not observed yet: at least half of what the compute limit allows counts)",
	}, {
		name: "nor is a resident", pods: []string{"a 0 4 4 0"}, request: pod(4, vgpu.Tenancy{Workload: 1, MaxSlowdown: 1030}),
		why: "on n1/g0 a slowdown of 1.042 is predicted for the pod beside a; its max-slowdown is 1.03 " +
			"(the use of a is declared and not observed yet: at least half of what the compute limit allows counts)",
	}, {
		name: "a low compute limit makes room beside a promise", pods: []string{"a 0 4 1 1030"}, request: pod(1, vgpu.Tenancy{Workload: 4}),
		// Half of what 0.1 of the device allows: 0.05 over: 0.99, 1.01.
		device: "d0",
	}, {
		name: "for its own promise it is", pods: []string{"a 0 4 1 0"}, request: pod(4, vgpu.Tenancy{Workload: 4, MaxSlowdown: 1000}),
		device: "d0",
	}, {
		name: "no neighbours, no promise to break", request: pod(4, vgpu.Tenancy{Workload: 9, MaxSlowdown: 1000}), device: "d0",
	}, {
		name: "no slowdown at all is tolerated", pods: []string{"a 0 4 2 0"}, request: pod(4, vgpu.Tenancy{Workload: 2, MaxSlowdown: 1000}),
		// 0.5 + 0.5 is not over a device: no slowdown is predicted.
		device: "d0",
	}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := shared(t, 1, test.pods...)
			policy := placement.Policy{}.Among(among(t, true, placement.EvenWeights))
			a, refusal := placement.Assign(n, test.request, policy)
			if got := policy.Fit(n, test.request); (got == nil) != (refusal == nil) || got != nil && got.String() != refusal.String() {
				t.Errorf("Fit says %v, Assign %v", got, refusal)
			}
			if score := placement.Score(n, test.request, policy); (score >= 0) != (refusal == nil) {
				t.Errorf("the score is %d, Assign says %v", score, refusal)
			}
			if test.why != "" {
				if refusal == nil || refusal.String() != test.why || refusal.Helps != vgpu.EvictionHelps {
					t.Fatalf("got %v %v, want %s", a, refusal, test.why)
				}
				return
			}
			if refusal != nil || string(a.Containers[0].Devices[0]) != test.device || a.Tenancy != test.request.Tenancy {
				t.Fatalf("got %+v %v, want device %s", a, refusal, test.device)
			}
			if got := placement.Fit(n, test.request); got != nil {
				t.Errorf("without neighbours Fit says %v", got)
			}
		})
	}
}

// TestNearestPromise: of promises that would break the one that comes nearest to being kept is named, on a node and among
// nodes.
func TestNearestPromise(t *testing.T) {
	r := pod(2, vgpu.Tenancy{Workload: 1})
	policy := placement.Policy{}.Among(among(t, true, placement.EvenWeights))
	// 2 is 1 over: 1.25.
	near := policy.Fit(shared(t, 2, "a 0 4 1 1100", "b 1 4 1 1200"), r)
	if near == nil || near.Promised != "b" || near.Device != "g1" {
		t.Fatalf("got %+v, want b", near)
	}
	far := policy.Fit(shared(t, 1, "a 0 4 1 1100"), r)
	for _, list := range [][]vgpu.Refusal{{*near, *far}, {*far, *near}} {
		if got, _ := placement.Nearest(list); got.Promised != "b" {
			t.Errorf("got %+v, want b", got)
		}
	}
}

// TestPromiseProperty: Fit, Score and Assign agree on whether there is a place that breaks no promise, and the place
// that Assign gives breaks none.
func TestPromiseProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 1, 4)
		testkit.Fill(t, c, 8)
		n, r, by := c.Nodes()[0], testkit.RandomRequest(t, "new", 3), drawAmong(t)
		p := drawPolicy(t).Among(by)
		a, refusal := placement.Assign(n, r, p)
		if fit := p.Fit(n, r); !cmp.Equal(fit == nil, refusal == nil) {
			t.Fatalf("%sfit %+v: %v, Assign says %v", testkit.Draw(c), r.Containers, fit, refusal)
		}
		if s := placement.Score(n, r, p); (s >= 0) != (refusal == nil) {
			t.Fatalf("%sscore %d, Assign says %v", testkit.Draw(c), s, refusal)
		}
		if refusal != nil || by == nil || len(a.Containers) == 0 {
			return
		}
		if err := n.Add(a); err != nil {
			t.Fatal(err)
		}
		for i := range n.Devices() {
			keeps(t, n, i, by, r.UID)
		}
	})
}
