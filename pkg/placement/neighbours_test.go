package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// model returns an interference model with coefficients that are easy to work out.
func model(t testing.TB, name string, coefficients ...float64) interference.Model {
	t.Helper()
	m, err := interference.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	m.Coefficients = coefficients
	return m
}

// workloads by number: 1 uses the whole device, 2 half of it, 3 a tenth; others are guesses that use it wholly.
func workloads(w interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
	t := interference.Tenant{Workload: w, Cap: float64(part) / 1000}
	switch w {
	case 1:
		t.SM = 1
	case 2:
		t.SM = .5
	case 3:
		t.SM = .1
	default:
		t.SM, t.Guessed = 1, true
	}
	return t
}

// among returns neighbours whose speed is 1 − .2 · what their SM utilisations add up to beyond a device.
func among(t testing.TB, scarce bool, w placement.Weights) *placement.Neighbours {
	return &placement.Neighbours{Model: model(t, "hinge", 1, .2), Tenant: workloads, Weights: w, Scarce: scarce}
}

// shared returns a node of devices with ten slots, g0 and so on, with pods on them: "pod device slots workload max-slowdown".
func shared(t *testing.T, devices int, pods ...string) *vgpu.Node {
	t.Helper()
	var list []vgpu.Device
	for i := range devices {
		list = append(list, vgpu.Device{ID: vgpu.DeviceID(fmt.Sprint("d", i)), Index: i, Model: "M", Slots: 10, Memory: 40 << 30, Healthy: true})
	}
	n, err := vgpu.NewNode("n1", list)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range pods {
		var name string
		var device int
		var slots vgpu.Slots
		var of vgpu.Tenancy
		if _, err := fmt.Sscan(line, &name, &device, &slots, &of.Workload, &of.MaxSlowdown); err != nil {
			t.Fatal(err)
		}
		share := vgpu.Share{Devices: 1, Slots: slots, Memory: vgpu.Bytes(slots) << 30, ComputeLimit: vgpu.MilliGPU(slots * 100), MemoryLimit: vgpu.Bytes(slots) << 30}
		a := vgpu.Assignment{UID: vgpu.UID(name), Pod: name, Node: "n1", Tenancy: of, Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{list[device].ID}, Share: share,
		}}}
		if err := n.Add(a); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func pod(slots vgpu.Slots, of vgpu.Tenancy) *vgpu.Request {
	return &vgpu.Request{UID: "new", Pod: "new", Tenancy: of, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slots}}}
}

func TestPromises(t *testing.T) {
	tests := []struct {
		name    string
		pods    []string
		request *vgpu.Request
		// device that is chosen, "" with why not.
		device string
		why    string
	}{{
		// 1 + .5 is .5 over: speed .9, slowdown 1.111.
		name: "the pod's own promise holds", pods: []string{"a 0 4 1 0"}, request: pod(4, vgpu.Tenancy{Workload: 2, MaxSlowdown: 1112}),
		device: "d0",
	}, {
		name: "and breaks", pods: []string{"a 0 4 1 0"}, request: pod(4, vgpu.Tenancy{Workload: 2, MaxSlowdown: 1110}),
		why: "on n1/g0 a slowdown of 1.111 is predicted for the pod beside a; its max-slowdown is 1.11",
	}, {
		name: "a neighbour's promise breaks", pods: []string{"a 0 4 1 1110", "b 0 1 3 0"}, request: pod(4, vgpu.Tenancy{Workload: 3}),
		// 1 + .1 + .1 is .2 over: .96, 1.042.
		device: "d0",
	}, {
		name: "of several the one that breaks the most", pods: []string{"a 0 3 1 1200", "b 0 3 3 1100"}, request: pod(4, vgpu.Tenancy{Workload: 1}),
		// 1 + .1 + 1 is 1.1 over: .78, 1.282.
		why: "on n1/g0 the pod would slow down b, for which 1.282 is then predicted and whose max-slowdown is 1.1",
	}, {
		// The guess is a standard error worse: 1 + 1 is 1 over: .8, 1.25, times 1.11.
		name: "a guess is taken as worse", pods: []string{"a 0 4 1 1300"}, request: pod(4, vgpu.Tenancy{Workload: 9}),
		why: "on n1/g0 the pod would slow down a, for which 1.388 is then predicted and whose max-slowdown is 1.3",
	}, {
		name: "no neighbours, no promise to break", request: pod(4, vgpu.Tenancy{Workload: 9, MaxSlowdown: 1000}), device: "d0",
	}, {
		name: "no slowdown at all is tolerated", pods: []string{"a 0 4 2 0"}, request: pod(4, vgpu.Tenancy{Workload: 2, MaxSlowdown: 1000}),
		// .5 + .5 is not over a device: no slowdown is predicted.
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

// TestWithoutNeighbours: a policy that goes by no neighbours breaks promises.
func TestWithoutNeighbours(t *testing.T) {
	n := shared(t, 1, "a 0 4 1 1000")
	if _, refusal := placement.Assign(n, pod(4, vgpu.Tenancy{Workload: 1}), placement.Policy{}.Among(nil)); refusal != nil {
		t.Error(refusal)
	}
}

func TestHarm(t *testing.T) {
	fragmentation := placement.Weights{Fragmentation: 100}
	double := placement.Weights{Fragmentation: 100, Interference: 1000}
	tests := []struct {
		name    string
		pods    []string
		of      vgpu.Tenancy
		scarce  bool
		weights placement.Weights
		want    string
	}{
		// packed prefers the fuller device.
		{"harm does not count", []string{"a 0 4 1 0", "b 1 3 3 0"}, vgpu.Tenancy{Workload: 1}, true, fragmentation, "d0"},
		// d0: 1 + 1 is 1 over, .8: 400 + 400 milli at .2 are 160 lost. d1: 1.1, .98: 700 at .02 are 14. The difference in
		// slots is one tenth, 100 milli.
		{"harm outweighs", []string{"a 0 4 1 0", "b 1 3 3 0"}, vgpu.Tenancy{Workload: 1}, true, placement.EvenWeights, "d1"},
		// d0: 1.5, .9: 80 lost. d1: .6, none. 80 is less than the 100 of one slot more.
		{"harm is less than a slot", []string{"a 0 4 1 0", "b 1 3 3 0"}, vgpu.Tenancy{Workload: 2}, true, placement.EvenWeights, "d0"},
		{"and counts ten times", []string{"a 0 4 1 0", "b 1 3 3 0"}, vgpu.Tenancy{Workload: 2}, true, double, "d1"},
		// What is there loses already: a beside b are .8 of 300 each; with the pod 2.1: .78.
		{"only what the pod adds counts", []string{"a 0 3 1 0", "b 0 3 1 0", "c 1 3 1 0"}, vgpu.Tenancy{Workload: 3}, true, placement.EvenWeights, "d0"},
		{"idle devices while there are", []string{"a 0 4 3 0"}, vgpu.Tenancy{Workload: 3}, false, placement.EvenWeights, "d1"},
		{"not for pods that nobody knows", []string{"a 0 4 3 0"}, vgpu.Tenancy{}, false, fragmentation, "d0"},
		{"not when GPUs are scarce", []string{"a 0 4 3 0"}, vgpu.Tenancy{Workload: 3}, true, placement.EvenWeights, "d0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := shared(t, 2, test.pods...)
			a, refusal := placement.Assign(n, pod(4, test.of), placement.Policy{}.Among(among(t, test.scarce, test.weights)))
			if refusal != nil || string(a.Containers[0].Devices[0]) != test.want {
				t.Errorf("got %+v %v, want %s", a.Containers, refusal, test.want)
			}
		})
	}
}

// TestPreferences: a pod goes to the GPU model where it loses the least, unless that costs more than it gains.
func TestPreferences(t *testing.T) {
	n, err := vgpu.NewNode("n1", []vgpu.Device{
		{ID: "a", Index: 0, Model: "A", Slots: 10, Memory: 1 << 30, Healthy: true},
		{ID: "b", Index: 1, Model: "B", Slots: 10, Memory: 1 << 30, Healthy: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := pod(4, vgpu.Tenancy{})
	r.Preferences = []vgpu.Preference{{Model: "A", Loss: 250}, {Model: "B", Loss: 50}}
	for weight, want := range map[int64]string{0: "a", 100: "b"} {
		w := placement.Weights{Fragmentation: 100, Heterogeneity: weight}
		a, refusal := placement.Assign(n, r, placement.Policy{}.Among(among(t, true, w)))
		if refusal != nil || string(a.Containers[0].Devices[0]) != want {
			t.Errorf("weight %d: got %+v %v, want %s", weight, a.Containers, refusal, want)
		}
	}
	r.Preferences[0].Loss = 1001
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "legal is 0 to 1000") {
		t.Errorf("got %v", err)
	}
}

// drawAmong draws neighbours, or none, of a model that promises can break by.
func drawAmong(t *rapid.T) *placement.Neighbours {
	if rapid.Bool().Draw(t, "no neighbours") {
		return nil
	}
	m, err := interference.ByName("hinge")
	if err != nil {
		t.Fatal(err)
	}
	weight := rapid.SampledFrom([]int64{0, 50, 100, 1000})
	w := placement.Weights{
		Fragmentation: weight.Draw(t, "fragmentation"), Interference: weight.Draw(t, "interference"), Heterogeneity: weight.Draw(t, "heterogeneity"),
	}
	return &placement.Neighbours{Model: m, Tenant: workloads, Weights: w, Scarce: rapid.Bool().Draw(t, "scarce")}
}

// TestPromiseProperty: Fit, Score and Assign agree on whether there is a place that breaks no promise, and what Assign
// gives breaks none.
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

// keeps fails where the promise of a tenant of device i breaks beside the new pod.
func keeps(t *rapid.T, n *vgpu.Node, i int, by *placement.Neighbours, newcomer vgpu.UID) {
	residents := n.Residents(i, nil)
	var on []interference.Tenant
	joined, guessed := false, false
	for _, r := range residents {
		joined = joined || r.UID == newcomer
		on = append(on, workloads(interference.Workload(r.Workload), "", r.Compute))
		guessed = guessed || on[len(on)-1].Guessed
	}
	if !joined || len(on) < 2 {
		return
	}
	for k, p := range by.Model.Predict(on, nil) {
		slow := p.Slowdown()
		if guessed {
			slow *= 1 + p.Error
		}
		if limit := residents[k].MaxSlowdown; limit > 0 && slow*1000 > float64(limit)+1 {
			t.Fatalf("pod %s tolerates %d, predicted is %v beside the new one", residents[k].Pod, limit, slow)
		}
	}
}
