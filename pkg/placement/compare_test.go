package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// failing is a test or one check of a property.
type failing interface {
	Helper()
	Fatal(args ...any)
}

// unlikeNodes returns nodes of 8 devices of one of three models, with pods on them at random: hardly two are in one state.
func unlikeNodes(tb failing, random *rand.Rand, count int) []*vgpu.Node {
	tb.Helper()
	nodes := make([]*vgpu.Node, count)
	for i := range nodes {
		var devices []vgpu.Device
		for g := range 8 {
			devices = append(devices, vgpu.Device{
				ID: vgpu.DeviceID(fmt.Sprint("g", g)), Index: g, Model: fmt.Sprint("M", i%3), Slots: 10, Memory: 40 * vgpu.GiB, Healthy: true,
			})
		}
		n, err := vgpu.NewNode(fmt.Sprintf("n%05d", i), devices)
		must.OK(tb, err)
		n.SetRoom(vgpu.Room{MilliCPU: 1000 * random.Int64N(100), Memory: vgpu.Bytes(random.Int64N(400)) * vgpu.GiB})
		for g := range devices {
			if slots := vgpu.Slots(random.Int64N(16) - 5); slots > 0 {
				addShare(tb, n, devices[g].ID, slots)
			}
		}
		nodes[i] = n
	}
	return nodes
}

// addShare books slots of a device.
func addShare(tb failing, n *vgpu.Node, on vgpu.DeviceID, slots vgpu.Slots) {
	tb.Helper()
	memory := vgpu.Bytes(slots) * 4 * vgpu.GiB
	share := vgpu.Share{Devices: 1, Slots: slots, Memory: memory, ComputeLimit: 100 * vgpu.MilliGPU(slots), MemoryLimit: memory}
	uid := vgpu.UID(fmt.Sprint(n.Name(), on))
	a := vgpu.Assignment{UID: uid, Pod: string(uid), Node: n.Name(), Containers: []vgpu.ContainerAssignment{{Name: "c", Devices: []vgpu.DeviceID{on}, Share: share}}}
	must.OK(tb, n.Add(a))
}

// unlikeKinds are usual requests of many sizes.
func unlikeKinds(random *rand.Rand, count int) []fragmentation.Kind {
	kinds := make([]fragmentation.Kind, count)
	for i := range kinds {
		slots := vgpu.Slots(1 + random.Int64N(10))
		if random.IntN(5) == 0 {
			slots = 10 << random.IntN(4)
		}
		kinds[i] = fragmentation.Kind{
			Slots: slots, MilliCPU: int64(slots) * (400 + 50*random.Int64N(25)), Memory: vgpu.Bytes(slots*(1+vgpu.Slots(random.Int64N(4)))) * vgpu.GiB,
			Weight: int64(1 + 1000/(i+10)),
		}
	}
	return kinds
}

func mixOf(tb failing, kinds []fragmentation.Kind) *fragmentation.Mix {
	tb.Helper()
	m, err := fragmentation.NewMix(kinds)
	must.OK(tb, err)
	return m
}

// asks is a pod that asks for what a kind asks for.
func asks(k *fragmentation.Kind) *vgpu.Request {
	return &vgpu.Request{
		UID: "new", Pod: "default/new", Host: vgpu.Room{MilliCPU: k.MilliCPU, Memory: k.Memory},
		Containers: []vgpu.ContainerRequest{{Name: "c", Slots: k.Slots, Memory: k.DeviceMemory}},
	}
}

// compared returns the scores that Compare finds, by name.
func compared(k *Ranking, nodes []*vgpu.Node, r *vgpu.Request, admits func(*vgpu.Node) bool) map[string]int64 {
	entrants := make([]Entrant, len(nodes))
	for i, n := range append(nodes, nodes...) { // the ranking may clear its cache once
		if at := &entrants[i%len(nodes)]; !k.Has(at.State) {
			*at = Entrant{Node: n, State: k.State(n)}
		}
	}
	found := map[string]int64{}
	k.For(r).Compare(entrants, r, func(i int) bool { return admits(nodes[i]) }, func(i int, score int64) { found[nodes[i].Name()] = score })
	return found
}

func everyNode(*vgpu.Node) bool { return true }

// TestCompareFewStatesProperty: as long as the nodes are in no more states than Compare scores, it finds the score of each
// node that the request fits.
func TestCompareFewStatesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		nodes, kinds := unlikeNodes(t, random, rapid.IntRange(1, 20).Draw(t, "nodes")), unlikeKinds(random, 5)
		policy := rapid.SampledFrom(policies).Draw(t, "policy").With(mixOf(t, kinds), 7)
		k, r := NewRanking(policy), asks(&kinds[0])
		k.bounds.exact = 20
		want := map[string]int64{}
		for _, n := range nodes {
			if score := Score(n, r, policy); score >= 0 {
				want[n.Name()] = score
			}
		}
		if got := compared(k, nodes, r, everyNode); !maps.Equal(got, want) {
			t.Fatalf("Compare finds %v, want %v", got, want)
		}
	})
}

// TestCompareManyStatesProperty: where the nodes are in more states, Compare finds exact scores of so many states that it
// should score, or of all that the request fits, of nodes that may be used. They are the same in another order of the nodes,
// and by a ranking that has compared other nodes before.
func TestCompareManyStatesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		nodes, kinds := unlikeNodes(t, random, 40), unlikeKinds(random, 5)
		for i := range 10 { // some are in one state
			nodes = append(nodes, renamed(t, nodes[i], fmt.Sprint(i, "-twin")))
		}
		policy := tandem.With(mixOf(t, kinds), 7)
		k, r := NewRanking(policy), asks(&kinds[0])
		k.bounds.exact = rapid.IntRange(1, 10).Draw(t, "exact")
		every := rapid.IntRange(1, 4).Draw(t, "every")
		admits := func(n *vgpu.Node) bool { return int(n.Name()[len(n.Name())-1])%every == 0 }
		got := compared(k, nodes, r, admits)
		states, admitted := map[State]bool{}, map[State]bool{}
		for _, n := range nodes {
			want := Score(n, r, policy)
			if score, found := got[n.Name()]; found && score != want {
				t.Fatalf("Compare finds %d for node %s, Score is %d", score, n.Name(), want)
			} else if found {
				states[k.State(n)] = true
			}
			if admits(n) && want >= 0 {
				admitted[k.State(n)] = true
			}
		}
		if want := min(k.bounds.exact, len(admitted)); len(states) != want {
			t.Fatalf("Compare scores %d states, want %d", len(states), want)
		}
		for state := range states {
			if !admitted[state] {
				t.Fatalf("Compare scores a state of which no node may be used")
			}
		}
		again := NewRanking(policy)
		again.bounds.exact = k.bounds.exact
		compared(again, unlikeNodes(t, random, 20), asks(&kinds[1]), everyNode)
		random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		if other := compared(again, nodes, r, admits); !maps.Equal(got, other) {
			t.Fatalf("Compare finds %v, and %v in another order", got, other)
		}
	})
}

// renamed returns a node in the same state under another name.
func renamed(t failing, n *vgpu.Node, name string) *vgpu.Node {
	twin, err := vgpu.NewNode(name, n.Devices())
	must.OK(t, err)
	for i := range n.Devices() {
		if u := n.Used(i); u.Slots > 0 {
			addShare(t, twin, n.Devices()[i].ID, u.Slots)
		}
	}
	twin.SetRoom(n.Room())
	return twin
}

// Among many states, the best that Compare finds is as good as the best of all within a step of the policy, for each of 20
// kinds; for half of them it is the best of all.
func TestCompareFindsTheBest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	nodes, kinds := unlikeNodes(t, random, 1000), unlikeKinds(random, 200)
	policy := tandem.With(mixOf(t, kinds), 0)
	k, same := NewRanking(policy), 0
	remembering := policy.Remembering()
	for i := range 20 {
		r := asks(&kinds[7*i])
		best := int64(-1)
		for _, n := range nodes {
			if r.Host.Within(n.Room()) {
				best = max(best, Score(n, r, remembering))
			}
		}
		found := compared(k, nodes, r, func(n *vgpu.Node) bool { return r.Host.Within(n.Room()) })
		top := int64(-1)
		for _, n := range nodes {
			if score, ok := found[n.Name()]; ok && r.Host.Within(n.Room()) {
				top = max(top, score)
			}
		}
		if policy.Gain(best)-policy.Gain(top) > step {
			t.Errorf("kind %d: the best place found is worth %d, the best of all %d", i, policy.Gain(top), policy.Gain(best))
		}
		if top == best {
			same++
		}
	}
	if same < 10 {
		t.Errorf("for %d of 20 kinds the best of all nodes is found, want 10", same)
	}
}

// Nodes of unlike devices have no rough score: they are all scored beside the others.
func TestCompareScoresNodesWithoutSketch(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	nodes, kinds := unlikeNodes(t, random, 30), unlikeKinds(random, 5)
	for i := range 10 {
		devices := slices.Clone(nodes[i].Devices())
		devices[7].Slots = 4
		mixed, err := vgpu.NewNode(fmt.Sprint("mixed-", i), devices)
		must.OK(t, err)
		mixed.SetRoom(vgpu.Room{MilliCPU: int64(100_000 + i), Memory: 1 << 40})
		nodes = append(nodes, mixed)
	}
	k := NewRanking(tandem.With(mixOf(t, kinds), 0))
	k.bounds.exact = 3
	r := asks(&fragmentation.Kind{Slots: 2})
	mixed, others := 0, 0
	for name := range compared(k, nodes, r, everyNode) {
		if name[:5] == "mixed" {
			mixed++
		} else {
			others++
		}
	}
	if mixed != 10 || others != 3 {
		t.Errorf("%d nodes of unlike devices and %d others have scores, want 10 and 3", mixed, others)
	}
	kept := slices.DeleteFunc(slices.Clone(k.For(r).known), func(score int64) bool { return score == unscored })
	if len(kept) != 10 {
		t.Errorf("%d scores of nodes of unlike devices are kept for the next comparison, want 10", len(kept))
	}
}

func TestNth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Int32Range(-3, 30), 1, 40).Draw(t, "list")
		place := rapid.IntRange(0, len(list)-1).Draw(t, "place")
		sorted := slices.Clone(list)
		slices.Sort(sorted)
		slices.Reverse(sorted)
		if got := nth(slices.Clone(list), place); got != sorted[place] {
			t.Fatalf("number %d of %v is %d, want %d", place, list, got, sorted[place])
		}
	})
}

// The rough scores know what comes before and beside the policy's rate: the cheaper variant, the model that suits the
// workload, and a device without neighbours. With exact scores of one state alone, that state has the best place.
func TestCompareKnowsCosts(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	kinds := unlikeKinds(random, 20)
	known := func(scarce bool) *Neighbours {
		n := Neighbours{Weights: EvenWeights, Scarce: scarce}
		n.Tenant = func(interference.Workload, string, vgpu.MilliGPU) interference.Tenant { return interference.Tenant{} }
		return &n
	}
	cheapest := func(a, b, c string) func(*vgpu.Request) {
		return func(r *vgpu.Request) {
			r.Variants = []vgpu.Variant{{Model: a, Cost: 1}, {Model: b, Cost: 2}, {Model: c, Cost: 3}}
		}
	}
	for name, tc := range map[string]struct {
		among  *Neighbours
		change func(r *vgpu.Request)
		best   func(n *vgpu.Node) bool
	}{
		"M0 is cheaper": {nil, cheapest("M0", "M1", "M2"), ofModel("M0")},
		"M1 is cheaper": {nil, cheapest("M1", "M2", "M0"), ofModel("M1")},
		"M2 is cheaper": {nil, cheapest("M2", "M0", "M1"), ofModel("M2")},
		"model that suits": {known(true), func(r *vgpu.Request) {
			r.Preferences = []vgpu.Preference{{Model: "M0", Loss: 1000}, {Model: "M2", Loss: 1000}}
		}, ofModel("M1")},
		"no neighbours": {known(false), func(r *vgpu.Request) { r.Workload = 3 }, untouched},
	} {
		nodes := unlikeNodes(t, random, 60)
		for _, n := range nodes[1:] {
			for i := range n.Devices() {
				if name == "no neighbours" && n.Used(i).Slots == 0 {
					addShare(t, n, n.Devices()[i].ID, 3)
				}
			}
		}
		k := NewRanking(tandem.With(mixOf(t, kinds), 0).Among(tc.among))
		k.bounds.exact = 1
		r := asks(&fragmentation.Kind{Slots: 3})
		tc.change(r)
		for _, n := range nodes {
			if _, found := compared(k, nodes, r, everyNode)[n.Name()]; found && !tc.best(n) {
				t.Errorf("%s: node %s is found, which is not the best", name, n.Name())
			}
		}
	}
}

func ofModel(model string) func(*vgpu.Node) bool {
	return func(n *vgpu.Node) bool { return n.Devices()[0].Model == model }
}

func untouched(n *vgpu.Node) bool {
	for i := range n.Devices() {
		if n.Used(i).Slots == 0 {
			return true
		}
	}
	return false
}

// TestCompareAfterChangesProperty: a ranking finds what a new one finds, after nodes have changed, after it has cleared its
// cache, and by another mix.
func TestCompareAfterChangesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		nodes, kinds := unlikeNodes(t, random, 30), unlikeKinds(random, 5)
		policy := tandem.With(mixOf(t, kinds), 7)
		k := NewRanking(policy)
		k.bounds.exact, k.bounds.states = 4, 40
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			r := asks(&kinds[rapid.IntRange(0, 1).Draw(t, "kind")])
			fresh := NewRanking(policy)
			fresh.bounds.exact = 4
			if got, want := compared(k, nodes, r, everyNode), compared(fresh, nodes, r, everyNode); !maps.Equal(got, want) {
				t.Fatalf("Compare finds %v, a new ranking %v", got, want)
			}
			if rapid.Bool().Draw(t, "another mix") {
				policy = tandem.With(mixOf(t, unlikeKinds(random, 5)), 7)
				k.Use(policy)
			}
			for i := range rapid.IntRange(0, 10).Draw(t, "changed") {
				nodes[i] = unlikeNodes(t, random, i+1)[i]
			}
		}
	})
}

// Workloads that nothing is known of share a state, until one of them becomes known.
func TestStatesKnowWorkloads(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	nodes := make([]*vgpu.Node, 2)
	for i := range nodes {
		n, err := vgpu.NewNode(fmt.Sprint("n", i), unlikeNodes(t, random, 1)[0].Devices())
		must.OK(t, err)
		addShare(t, n, "g0", 3)
		a := n.Assignments()[0]
		n.Remove(a.UID)
		a.Workload = uint32(i + 1)
		must.OK(t, n.Add(a))
		nodes[i] = n
	}
	knowing := func(workloads ...interference.Workload) Policy {
		return packed.Among(&Neighbours{
			Weights: EvenWeights, Known: func(w interference.Workload) bool { return slices.Contains(workloads, w) },
		})
	}
	k := NewRanking(knowing())
	states := func() [2]State { return [2]State{k.State(nodes[0]), k.State(nodes[1])} }
	before := states()
	if before[0] != before[1] {
		t.Error("two unknown workloads make two states")
	}
	k.Use(knowing(7))
	if states() != before || !k.Has(before[0]) {
		t.Error("knowledge of a workload that does not run changes states")
	}
	k.Use(knowing(7, 2))
	if now := states(); now[0] == now[1] || k.Has(before[0]) {
		t.Error("a workload became known, and makes no state of its own")
	}
}
