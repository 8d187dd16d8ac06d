package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// model returns an interference model with coefficients that are easy to work out.
func model(t testing.TB, name string, coefficients ...float64) interference.Model {
	t.Helper()
	m, err := interference.ByName(name)
	must.OK(t, err)
	m.Coefficients = coefficients
	return m
}

// workloads by number: 1 uses the whole device, 2 half of it, 3 a tenth, 4 declares that it uses nothing; others are guesses that
// use it wholly.
func workloads(w interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
	t := interference.Tenant{Workload: w, Cap: float64(part) / 1000}
	switch w {
	case 1:
		t.SM = 1
	case 2:
		t.SM = .5
	case 3:
		t.SM = .1
	case 4:
		t.Declared = true
	default:
		t.SM, t.Guessed = 1, true
	}
	return t
}

// among returns neighbours whose speed is 1 − 0.2 · what their SM utilisations add up to beyond a device.
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
	must.OK(t, err)
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
		must.OK(t, n.Add(a))
	}
	return n
}

func pod(slots vgpu.Slots, of vgpu.Tenancy) *vgpu.Request {
	return &vgpu.Request{UID: "new", Pod: "new", Tenancy: of, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slots}}}
}

// TestWithoutNeighbours: a policy without neighbours breaks promises.
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
		// d0: 1 + 1 is 1 over, 0.8: 400 + 400 milli at 0.2 are 160 lost. d1: 1.1, 0.98: 700 at 0.02 are 14. The difference in
		// slots is one tenth, 100 milli.
		{"harm outweighs", []string{"a 0 4 1 0", "b 1 3 3 0"}, vgpu.Tenancy{Workload: 1}, true, placement.EvenWeights, "d1"},
		// d0: 1.5, 0.9: 80 lost. d1: 0.6, none. 80 is less than the 100 of one slot more.
		{"harm is less than a slot", []string{"a 0 4 1 0", "b 1 3 3 0"}, vgpu.Tenancy{Workload: 2}, true, placement.EvenWeights, "d0"},
		{"and counts ten times", []string{"a 0 4 1 0", "b 1 3 3 0"}, vgpu.Tenancy{Workload: 2}, true, double, "d1"},
		// The tenants lose already: a beside b are 0.8 of 300 each; with the pod 2.1: 0.78. On d0, 4 + 2 slots, a and b lose
		// 120 by each other already: with the pod 2.1, 1000 at 0.22 are 220, 100 more. On d1 1.1, 900 at 0.02 are 18. The
		// slot that d0 is fuller is worth 100.
		{"only what the pod adds counts", []string{"a 0 4 1 0", "b 0 2 1 0", "c 1 5 1 0"}, vgpu.Tenancy{Workload: 3}, true, placement.EvenWeights, "d0"},
		{"devices of equal room differ by their tenants", []string{"a 0 4 1 0", "b 1 4 3 0"}, vgpu.Tenancy{Workload: 1}, true, placement.EvenWeights, "d1"},
		{"idle devices while there are", []string{"a 0 4 3 0"}, vgpu.Tenancy{Workload: 3}, false, placement.EvenWeights, "d1"},
		{"not for pods of unknown workloads", []string{"a 0 4 3 0"}, vgpu.Tenancy{}, false, fragmentation, "d0"},
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

// byCap returns tenants that use as much as their limit allows.
func byCap(t testing.TB) *placement.Neighbours {
	n := among(t, true, placement.EvenWeights)
	n.Tenant = func(_ interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
		return interference.Tenant{SM: float64(part) / 1000, Cap: float64(part) / 1000}
	}
	return n
}

// TestContainersAddUp: containers of a pod on one device are one tenant under the sum of their limits, whether they are all
// there or only some of them.
func TestContainersAddUp(t *testing.T) {
	r := pod(3, vgpu.Tenancy{})
	r.ComputeLimit = 500
	r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: "second", Slots: 3})
	policy := placement.Policy{}.Among(byCap(t))
	// 0.4 + 0.5 + 0.5 is 0.4 over: 0.92, 1.087.
	for limit, fits := range map[int64]bool{1086: false, 1087: true} {
		n := shared(t, 1, fmt.Sprintf("a 0 4 1 %d", limit))
		a, refusal := placement.Assign(n, r, policy)
		if fit := policy.Fit(n, r); (refusal == nil) != fits || (fit == nil) != fits {
			t.Errorf("limit %d: got %v %v, Fit says %v", limit, a, refusal, fit)
		}
	}
	// A third container that needs all that is free of the other device: 0.7 + 0.7 are the whole device, with 0.4 it
	// is 0.4 over.
	r.ComputeLimit = 700
	r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: "large", Slots: 7})
	for limit, fits := range map[int64]bool{1086: false, 1087: true} {
		n := shared(t, 2, fmt.Sprintf("a 0 4 1 %d", limit), "b 1 3 1 0")
		if _, refusal := placement.Assign(n, r, policy); (refusal == nil) != fits {
			t.Errorf("with a third container, limit %d: %v", limit, refusal)
		}
	}
}

// TestHarmOfSeveralDevices: the score of a node counts the harm on every device that the pod uses.
func TestHarmOfSeveralDevices(t *testing.T) {
	r := pod(6, vgpu.Tenancy{Workload: 1})
	r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: "second", Slots: 6})
	policy := placement.Policy{}.Among(among(t, true, placement.EvenWeights))
	heavy := placement.Score(shared(t, 2, "a 0 4 1 0", "b 1 4 1 0"), r, policy)
	half := placement.Score(shared(t, 2, "a 0 4 3 0", "b 1 4 1 0"), r, policy)
	light := placement.Score(shared(t, 2, "a 0 4 3 0", "b 1 4 3 0"), r, policy)
	if heavy >= half || half >= light {
		t.Errorf("scores %d beside two heavy tenants, %d beside one, %d beside none", heavy, half, light)
	}
}

// TestOwnAssignment: a pod with an assignment on the node is no neighbour of itself.
func TestOwnAssignment(t *testing.T) {
	n := shared(t, 1, "new 0 4 1 1000")
	if refusal := (placement.Policy{}).Among(among(t, true, placement.EvenWeights)).Fit(n, pod(4, vgpu.Tenancy{Workload: 1, MaxSlowdown: 1000})); refusal != nil {
		t.Error(refusal)
	}
}

// TestManyTenants: promises count for any number of tenants.
func TestManyTenants(t *testing.T) {
	for _, tenants := range []int{1, 10, 11, 12, 13, 14, 40} {
		n, err := vgpu.NewNode("n1", []vgpu.Device{{ID: "d0", Model: "M", Slots: 50, Memory: 50 << 30, Healthy: true}})
		must.OK(t, err)
		for i := range tenants {
			of := vgpu.Tenancy{Workload: 3}
			if i == tenants-1 {
				of.MaxSlowdown = 1010 + 60*int64(tenants)
			}
			name := fmt.Sprintf("t%02d", i)
			share := vgpu.Share{Devices: 1, Slots: 1, Memory: 1 << 30, ComputeLimit: 20, MemoryLimit: 1 << 30}
			must.OK(t, n.Add(vgpu.Assignment{UID: vgpu.UID(name), Pod: name, Node: "n1", Tenancy: of, Containers: []vgpu.ContainerAssignment{{
				Name: "main", Devices: []vgpu.DeviceID{"d0"}, Share: share,
			}}}))
		}
		policy := placement.Policy{}.Among(among(t, true, placement.EvenWeights))
		if refusal := policy.Fit(n, pod(1, vgpu.Tenancy{Workload: 3})); refusal != nil {
			t.Errorf("%d tenants and a light one: %v", tenants, refusal)
		}
		by := among(t, true, placement.EvenWeights)
		by.Model = model(t, "constant", .2)
		want := fmt.Sprintf("t%02d", tenants-1)
		if refusal := (placement.Policy{}).Among(by).Fit(n, pod(1, vgpu.Tenancy{Workload: 1})); refusal == nil || refusal.Promised != want || len(refusal.Beside) != tenants {
			t.Errorf("%d tenants: got %+v, want the promise of %s", tenants, refusal, want)
		}
	}
}

// TestHeldDevice: a device with a hold is not like one with a tenant, though as much is free of both.
func TestHeldDevice(t *testing.T) {
	n := shared(t, 2, "a 0 4 1 0")
	share := vgpu.Share{Devices: 1, Slots: 4, Memory: 4 << 30, ComputeLimit: 400, MemoryLimit: 4 << 30}
	must.OK(t, n.Hold(vgpu.Hold{Priority: 1, Assignment: vgpu.Assignment{UID: "h", Pod: "h", Node: "n1", Containers: []vgpu.ContainerAssignment{{
		Name: "main", Devices: []vgpu.DeviceID{"d1"}, Share: share,
	}}}}))
	a, refusal := placement.Assign(n, pod(4, vgpu.Tenancy{Workload: 1}), placement.Policy{}.Among(among(t, true, placement.EvenWeights)))
	if refusal != nil || a.Containers[0].Devices[0] != "d1" {
		t.Errorf("got %+v %v, want the device without a tenant", a.Containers, refusal)
	}
}

// TestRankingSeparatesTenants: pods that ask for the same have scores of their own where their workloads, promises or
// preferences differ, and so have nodes where as much is taken by other tenants, and the same nodes by another model.
func TestRankingSeparatesTenants(t *testing.T) {
	nodes := []*vgpu.Node{
		shared(t, 2, "a 0 4 1 1300", "b 1 3 3 0"), shared(t, 2, "a 0 4 3 1300", "b 1 3 3 0"),
		shared(t, 2, "a 0 4 1 1001", "b 1 3 3 0"), shared(t, 2, "a 0 4 1 0", "b 1 3 1 0"),
	}
	policy := placement.Policy{}.Among(among(t, true, placement.EvenWeights))
	other := among(t, true, placement.EvenWeights)
	other.Model = model(t, "constant", .5)
	k := placement.NewRanking(policy)
	for _, p := range []placement.Policy{policy, policy.Among(other), policy.Among(nil)} {
		k.Use(p)
		for _, of := range []vgpu.Tenancy{{Workload: 1}, {Workload: 3}, {Workload: 9}, {Workload: 1, MaxSlowdown: 1001}} {
			for _, loss := range []vgpu.MilliGPU{0, 300} {
				r := pod(4, of)
				r.Preferences = []vgpu.Preference{{Model: "M", Loss: loss}}
				for i, n := range nodes {
					if got, want := k.For(r).Of(n, k.State(n), r), placement.Score(n, r, p); got != want {
						t.Errorf("node %d, %+v loss %d: the ranking scores %d, Score %d", i, of, loss, got, want)
					}
				}
			}
		}
	}
}

// TestPreferences: a pod goes to the GPU model where it loses the least, unless that costs more than it gains.
func TestPreferences(t *testing.T) {
	n, err := vgpu.NewNode("n1", []vgpu.Device{
		{ID: "a", Index: 0, Model: "A", Slots: 10, Memory: 1 << 30, Healthy: true},
		{ID: "b", Index: 1, Model: "B", Slots: 10, Memory: 1 << 30, Healthy: true},
	})
	must.OK(t, err)
	r := pod(4, vgpu.Tenancy{})
	r.Preferences = []vgpu.Preference{{Model: "A", Loss: 250}, {Model: "B", Loss: 50}}
	for weight, want := range map[int64]string{0: "a", 100: "b"} {
		w := placement.Weights{Fragmentation: 100, Heterogeneity: weight}
		a, refusal := placement.Assign(n, r, placement.Policy{}.Among(among(t, true, w)))
		if refusal != nil || string(a.Containers[0].Devices[0]) != want {
			t.Errorf("weight %d: got %+v %v, want %s", weight, a.Containers, refusal, want)
		}
	}
	// On a there are 2 slots taken, 200 milli to prefer it by: a share of 4 loses 80 less on b, one of 8 160, and of twice
	// that weight 320.
	must.OK(t, n.Add(vgpu.Assignment{UID: "o", Pod: "o", Node: "n1", Containers: []vgpu.ContainerAssignment{{
		Name: "main", Devices: []vgpu.DeviceID{"a"}, Share: vgpu.Share{Devices: 1, Slots: 2, Memory: 1 << 20, ComputeLimit: 200, MemoryLimit: 1 << 20},
	}}}))
	for _, test := range []struct {
		slots  vgpu.Slots
		weight int64
		want   string
	}{{4, 200, "a"}, {8, 100, "a"}, {8, 200, "b"}} {
		r.Containers[0].Slots, r.Containers[0].Memory = test.slots, 1<<20
		by := among(t, true, placement.Weights{Fragmentation: 100, Heterogeneity: test.weight})
		a, refusal := placement.Assign(n, r, placement.Policy{}.Among(by))
		if refusal != nil || string(a.Containers[0].Devices[0]) != test.want {
			t.Errorf("%d slots at weight %d: got %+v %v, want %s", test.slots, test.weight, a.Containers, refusal, test.want)
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
	must.OK(t, err)
	weight := rapid.SampledFrom([]int64{0, 50, 100, 1000})
	w := placement.Weights{
		Fragmentation: weight.Draw(t, "fragmentation"), Interference: weight.Draw(t, "interference"), Heterogeneity: weight.Draw(t, "heterogeneity"),
	}
	return &placement.Neighbours{Model: m, Tenant: workloads, Weights: w, Scarce: rapid.Bool().Draw(t, "scarce")}
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
