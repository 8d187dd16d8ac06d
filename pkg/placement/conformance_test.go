package placement_test

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// preferences is the table that every policy but random is run against: a drawn cluster, a request, and the devices that
// the policies by their names have to choose. A new policy adds its column. fgd and tandem go by the mix, fives where there
// is none.
//
// Percents in the comments are the rates of places in their order, rounded down: of bestfit 100·(1 − (C/128 + G/8)/2) with C
// cores and G GPUs left; of dotprod 100·(1 − (C·c/128² + G·g/8²)/2) with C and G free, c and g asked for; of packing 100 less a
// tenth of the percent that is free of used devices, 50 less the idle devices of used nodes, 33 less the devices of idle
// nodes; of fgd 100/(1 + e^(−d/1000)) with d milli-GPU less lost, in the mean of the mix. tandem counts d in steps of 40.
var preferences = []struct {
	name    string
	cluster string
	mix     string
	request *vgpu.Request
	want    map[string][]vgpu.DeviceID
}{
	{
		// fgd and tandem: fives lose 400 and tens 1200 of the 8, 4 and 10 free. On g0 (5, 4, 10) 400 and 900: d = 150; on g1 (8, 1,
		// 10) 100 and 900: d = 300; on g2 (8, 4, 7) 400 and 1900: d = −350.
		name:    "fuller or emptier device",
		cluster: "n1: g0 A100 [a:2] | g1 A100 [b:6] | g2 A100",
		request: testkit.Request("new", 3),
		want:    by("n1/g1", "spread n1/g2"),
	},
	{
		// Left on g0: 0.4 slots and 0.0 memory; on g1: 0.1 slots and 0.7 memory: the mean is less on g0. Packing counts what is free
		// before, in slots. fgd: on g0 fives lose the 400 that are left: d = −150; on g1 fives lose 100 instead of 200 and tens 600
		// instead of 700: d = 100. tandem: the 5 slots of g0 are worth nothing beside 4 GiB, whether or not the pod takes one.
		name:    "scarce memory or scarce slots",
		cluster: "n1: g0 A100 [a:5/36Gi] | g1 A100 [b:8/8Gi]",
		request: &vgpu.Request{UID: "new", Pod: "new", Containers: []vgpu.ContainerRequest{{Name: "c0", Slots: 1, Memory: 4 * vgpu.GiB}}},
		want:    by("n1/g1", "bestfit n1/g0", "clustering n1/g0", "dotprod n1/g0", "spread n1/g0", "tandem n1/g0"),
	},
	{
		// The same where all is lost to the mix: d = 100 on both, so that the device with the least left counts for fgd and tandem.
		name:    "scarce memory or scarce slots, and nothing else",
		cluster: "n1: g0 A100 [a:5/36Gi] | g1 A100 [b:8/8Gi]",
		mix:     "slots=5 models=T4 weight=1",
		request: &vgpu.Request{UID: "new", Pod: "new", Containers: []vgpu.ContainerRequest{{Name: "c0", Slots: 1, Memory: 4 * vgpu.GiB}}},
		want:    by("n1/g0", "packed n1/g1", "packing n1/g1"),
	},
	{
		// bestfit: 0.3 GPUs left on n1, 98 percent, 1.2 on n2, 92. dotprod: 0.6·0.3 and 1.5·0.3, 99 percent both. clustering: n1 runs
		// a whole device beside a share, 50 + 23; n2 a share only, 75 + 20. packing: used devices of 60 and 50 percent free,
		// 94 and 95; g1 of n2 49. fgd: on n1 the 600 are lost to tens before and the 300 to both after, d = 0; on n2/g0 500 to
		// tens, then 200 to both, d = 50; on n2/g1 500, then 1200 to tens, d = −350. tandem: 5 free on n2/g0 are room for a five,
		// which comes before tens do; of 6 on n1/g1 one would be left.
		name:    "devices of several nodes",
		cluster: "n1: g0 A100 [a:10] | g1 A100 [b:4]\nn2: g0 A100 [c:5] | g1 A100",
		request: testkit.Request("new", 3),
		want:    by("n2/g0", "spread n2/g1", "bestfit n1/g1", "dotprod n1/g1", "tandem n1/g1"),
	},
	{
		// Left are 0.9, 0.8 and 1 GPU: bestfit 94, 95, 93. dotprod: 98 each. clustering: shares of others on n1 and n2, 19 each; n3
		// runs no pods, 25 + 18. packing: 49, 49 and 33 − 2. fgd: whole devices take nothing that is lost, 50 each.
		name:    "the node breaks ties of the device",
		cluster: "n1: g0 A100 [a:1] | g1 A100\nn2: g0 A100 [b:2] | g1 A100\nn3: g0 A100 | g1 A100",
		request: testkit.Request("new", 10),
		want:    by("n1/g1", "packed n2/g1", "bestfit n2/g1", "spread n3/g0", "clustering n3/g0"),
	},
	{
		// 2 more slots leave 0.3 of the A100 or 0.25 of the T4. bestfit: 1.05 or 0.75 GPUs, 93 or 95. dotprod: 1.25·0.2 or 1.25·0.5,
		// 99 both. packing: 50 and 75 percent free, 95 and 93. fgd: fives and tens are illegal on T4. Fives use 500 of the 1250,
		// those of g0; without them d = −50; with 250 for 750 less idle on g1 d = 500.
		name:    "parts of unlike devices",
		cluster: "n1: g0 A100 [a:5] | g1 T4 [b:1]",
		request: testkit.Request("new", 2),
		want:    by("n1/g1", "spread n1/g0", "packing n1/g0"),
	},
	{
		// fgd: 7 and 5 are free. On g0 tens lose 200 less, d = 100; on g1 fives lose 300, d = −50.
		name:    "a held share counts as taken",
		cluster: "n1: g0 A100 [a:3] | g1 A100 (b:5@9)",
		request: testkit.Request("new", 2),
		want:    by("n1/g1", "spread n1/g0", "fgd n1/g0", "tandem n1/g0"),
	},
	{
		// bestfit: 0.1 and 1 GPU left, 99 and 93. dotprod: 2.1·2 and 3·2, 96 and 95. clustering: n1 runs a share, 18; n2 nothing, 25
		// + 15. packing: 50 − 2 and 33 − 3. fgd: 50 both. tandem: n2 stays whole.
		name:    "links before the name of the node, not before the rate",
		cluster: "n1: g0 A100 | g1 A100 | g2 A100 [a:9]\nn2: g0 A100 | g1 A100 | g2 A100\nlinks n1: g0-g1 PIX\nlinks n2: g0-g2 NV2",
		request: testkit.Request("new", 20),
		want:    by("n2/g0 n2/g2", "bestfit n1/g0 n1/g1", "dotprod n1/g0 n1/g1", "packing n1/g0 n1/g1", "tandem n1/g0 n1/g1"),
	},
	{
		name:    "containers together before the policy",
		cluster: "n1: g0 A100 [a:6] | g1 A100\nn2: g0 A100 [b:4] | g1 A100 [c:4]",
		request: testkit.Request("new", 4, 3),
		want:    by("n1/g1"),
	},
	{
		// The rates of bestfit, dotprod and clustering are equal; 3 or 1 slots are left. fgd: fives and tens lose 800 before, 1400 with 3
		// and 8 left, 200 with 10 and 1.
		name:    "containers together on the device with the least left",
		cluster: "n1: g0 A100 | g1 A100 [a:2]",
		request: testkit.Request("new", 4, 3),
		want:    by("n1/g1", "spread n1/g0"),
	},
	{
		// The first takes what leaves the least (the most for spread), and the second of the rest. fgd: on g0 fives and tens lose 1400 more,
		// on g1 100 less, on g2 300 less.
		name:    "containers apart on the devices with the least left",
		cluster: "n1: g0 A100 | g1 A100 [a:3] | g2 A100 [b:4]",
		request: testkit.Request("new", 6, 6),
		want:    by("n1/g1 n1/g2", "spread n1/g0 n1/g1"),
	},
	{
		name:    "equal in all: node by name, device by index",
		cluster: "n2: g0 A100 | g1 A100\nn1: g1 A100 | g0 A100",
		request: testkit.Request("new", 3),
		want:    by("n1/g0"),
	},
	{
		// The devices differ in contexts, which no policy rates.
		name:    "equal in all that is rated: device by index",
		cluster: "n1: g0 A100 [a:1 b:1] | g1 A100 [c:2] | g2 A100 [d:1 e:1]",
		request: testkit.Request("new", 3),
		want:    by("n1/g0"),
	},
	{
		// 20 slots are five T4 or two A100, and equal rates and links go to fewer devices. bestfit: 2 or 5 GPUs left, 87 or 68; dotprod:
		// 7·5 or 7·2, 72 or 89. fgd: fives and tens have no use for T4, and lose the five of them before, none without them, all five
		// without the A100: d = 5000 or 0.
		name:    "whole devices of two shapes",
		cluster: "n1: g0 T4 | g1 T4 | g2 T4 | g3 T4 | g4 T4 | g5 A100 | g6 A100",
		request: testkit.Request("new", 20),
		want:    by("n1/g5 n1/g6", "bestfit "+fiveT4, "fgd "+fiveT4, "tandem "+fiveT4),
	},
	{
		// n1 has 16 cores left of which the pod takes 12: enough for two fives of 2 cores, 1000 of the 1800 that fives could use. fgd
		// does not see it, d = 0 on both; tandem sees 800 starved, a fifth of them is 160, 4 steps. bestfit: 4 cores and 1.8 GPUs
		// left or 52 and 1.8, 87 and 68; dotprod: 99 and 97.
		name:    "CPU that fives will need",
		cluster: "n1 cpu=16: g0 A100 | g1 A100\nn2 cpu=64: g0 A100 | g1 A100",
		mix:     "slots=5 cpu=2 weight=1",
		request: hosted(testkit.Request("new", 2), 12000, 0),
		want:    by("n1/g0", "tandem n2/g0"),
	},
	{
		// The same with memory, which no other policy considers: 8 GiB are left of 32.
		name:    "memory that fives will need",
		cluster: "n1 cpu=64 memory=32Gi: g0 A100 | g1 A100\nn2 cpu=64 memory=256Gi: g0 A100 | g1 A100",
		mix:     "slots=5 cpu=2 memory=4Gi weight=1",
		request: hosted(testkit.Request("new", 2), 0, 24*vgpu.GiB),
		want:    by("n1/g0", "tandem n2/g0"),
	},
	{
		// Now fives need more CPU than is left on n1: the 1800 are lost, d = −1800, 14 percent.
		name:    "CPU that fives need now",
		cluster: "n1 cpu=16: g0 A100 | g1 A100\nn2 cpu=64: g0 A100 | g1 A100",
		mix:     "slots=5 cpu=5 weight=1",
		request: hosted(testkit.Request("new", 2), 12000, 0),
		want:    by("n1/g0", "fgd n2/g0", "tandem n2/g0"),
	},
	{
		// Pods of eight devices are 6 of 100 requests, so they belong to the typical 95 percent: 7000 are lost to them on n1, d = −420;
		// on n2 they lose 1000 less, d = 60. bestfit: 7 GPUs or none left, 56 and 100; dotprod: 93 and 99; clustering: 25 and 25 + 21;
		// packing: 33 − 8 and 33 − 1. Nothing is left of the device, and nothing taken of the node, so that n1 is first for packed.
		name:    "requests that are just typical",
		cluster: "n1: " + eight + "\nn2: g0 A100",
		mix:     "slots=10 weight=94\nslots=80 weight=6",
		request: testkit.Request("new", 10),
		want:    by("n2/g0", "packed n1/g0", "spread n1/g0"),
	},
	{
		// Now they are 5 of 100 and do not count for fgd. They are 400 of 1,350 slots, so they do for tandem.
		name:    "requests that are rare and ask for much",
		cluster: "n1: " + eight + "\nn2: g0 A100",
		mix:     "slots=10 weight=95\nslots=80 weight=5",
		request: testkit.Request("new", 10),
		want:    by("n2/g0", "packed n1/g0", "spread n1/g0", "fgd n1/g0"),
	},
	{
		// One of 100, with 80 of 1,070 slots: it counts for neither.
		name:    "requests that are rare and ask for little in all",
		cluster: "n1: " + eight + "\nn2: g0 A100",
		mix:     "slots=10 weight=99\nslots=80 weight=1",
		request: testkit.Request("new", 10),
		want:    by("n2/g0", "packed n1/g0", "spread n1/g0", "fgd n1/g0", "tandem n1/g0"),
	},
	{
		// Nothing but OTHER serves the mix: on g0 20 that are lost are taken, d = 20, on g1 20 that are not, d = 0. Both are 50 percent
		// and no step, so the device with the least left counts: 25 and 15. packing: 4 and 3 percent free, 100 both.
		name:    "a gain that is too small to count",
		cluster: fine + "n1: g0 FINE [a:955] | g1 OTHER [b:965]",
		mix:     "slots=10 models=OTHER weight=1",
		request: testkit.Request("new", 20),
		want:    by("n1/g1", "spread n1/g0"),
	},
	{
		// d = 45, 51 percent, and d = 0. packing: 11 and 10 percent free, 99 both.
		name:    "a gain that counts",
		cluster: fine + "n1: g0 FINE [a:890] | g1 OTHER [b:900]",
		mix:     "slots=10 models=OTHER weight=1",
		request: testkit.Request("new", 45),
		want:    by("n1/g1", "spread n1/g0", "fgd n1/g0", "tandem n1/g0"),
	},
}

// fine are models whose slots are thousandths.
const fine = "model FINE slots=1000 memory=1000Gi\nmodel OTHER slots=1000 memory=1000Gi\n"

// fiveT4 are the first devices of a node.
const fiveT4 = "n1/g0 n1/g1 n1/g2 n1/g3 n1/g4"

// eight idle devices.
const eight = "g0 A100 | g1 A100 | g2 A100 | g3 A100 | g4 A100 | g5 A100 | g6 A100 | g7 A100"

// fives is the mix of the table where a row has no other.
const fives = "slots=5 weight=1\nslots=10 weight=1"

// by is the choice of most policies, with those that choose otherwise: "spread n1/g2".
func by(most string, others ...string) map[string][]vgpu.DeviceID {
	want := map[string][]vgpu.DeviceID{}
	for _, name := range placement.Policies() {
		want[name] = devicesIn(most)
	}
	for _, o := range others {
		name, devices, _ := strings.Cut(o, " ")
		want[name] = devicesIn(devices)
	}
	return want
}

func devicesIn(text string) (ids []vgpu.DeviceID) {
	for _, w := range strings.Fields(text) {
		ids = append(ids, vgpu.DeviceID(w))
	}
	return ids
}

// hosted adds what the pod asks of its host.
func hosted(r *vgpu.Request, milliCPU int64, memory vgpu.Bytes) *vgpu.Request {
	r.Host = vgpu.Room{MilliCPU: milliCPU, Memory: memory}
	return r
}

// policyBy returns a policy with a mix, none for an empty text, and a seed.
func policyBy(t *testing.T, name, mix string, seed int64) placement.Policy {
	t.Helper()
	p, err := placement.ByName(name)
	must.OK(t, err)
	if mix == "" {
		return p.With(nil, seed)
	}
	m, err := testkit.ParseMix(mix)
	must.OK(t, err)
	return p.With(m, seed)
}

// TestConformance runs the policies against the same table.
func TestConformance(t *testing.T) {
	for _, name := range placement.Policies() {
		if name == "random" {
			continue // see TestRandom
		}
		t.Run(name, func(t *testing.T) {
			for _, tc := range preferences {
				p := policyBy(t, name, cmp.Or(tc.mix, fives), 1)
				t.Run(tc.name, func(t *testing.T) { prefers(t, p, tc.cluster, tc.request, tc.want[name]) })
			}
		})
	}
}

// TestConformanceProperty runs every policy against the same laws.
func TestConformanceProperty(t *testing.T) {
	for _, name := range placement.Policies() {
		p, err := placement.ByName(name)
		must.OK(t, err)
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { obeysLaws(t, p.With(testkit.RandomMix(t), drawSeed(t))) })
		})
	}
}

func prefers(t *testing.T, p placement.Policy, drawing string, r *vgpu.Request, want []vgpu.DeviceID) {
	c, err := testkit.Parse(drawing)
	must.OK(t, err)
	plan, err := placement.Choose(c, r, placement.Config{Policy: p})
	must.OK(t, err)
	if plan.Place == nil {
		t.Fatalf("refused: %v", plan.Refused)
	}
	var got []vgpu.DeviceID
	for _, k := range plan.Place.Containers {
		got = append(got, k.Devices...)
	}
	slices.Sort(got)
	if diff := gocmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// obeysLaws: the choice is feasible, fits the ledger, is the same again and after shuffling; no node that fits scores
// higher than the chosen one, and of equal scores it is the first by name.
func obeysLaws(t *rapid.T, p placement.Policy) {
	c := testkit.RandomCluster(t, 3, 4)
	testkit.Fill(t, c, 6)
	testkit.Furnish(t, c)
	r, cfg := testkit.RandomRequest(t, "new", 2), placement.Config{Policy: p}
	r.Host = testkit.RandomRoom(t)
	plan, err := placement.Choose(c, r, cfg)
	must.OK(t, err)
	for _, same := range []*vgpu.Cluster{c, testkit.Shuffled(t, c)} {
		again, err := placement.Choose(same, r, cfg)
		must.OK(t, err)
		if diff := gocmp.Diff(plan, again); diff != "" {
			t.Fatalf("another answer for the same cluster (-first +again):\n%s", diff)
		}
	}
	if plan.Place == nil {
		return
	}
	chosen := c.Node(plan.Place.Node)
	if !feasible(chosen, r, plan.Place) {
		t.Fatalf("%splaced %+v, more than is free", testkit.Draw(c), plan.Place)
	}
	top := placement.Score(chosen, r, p)
	for _, n := range c.Nodes() {
		if placement.Fit(n, r) != nil {
			continue
		}
		if s := placement.Score(n, r, p); s > top || (s == top && n.Name() < chosen.Name()) {
			t.Fatalf("%snode %s scores %d, the chosen %s %d", testkit.Draw(c), n.Name(), s, chosen.Name(), top)
		}
	}
	must.OK(t, c.Add(*plan.Place))
	withinCapacity(t, c)
}

func TestByName(t *testing.T) {
	if diff := gocmp.Diff([]string{"bestfit", "clustering", "dotprod", "fgd", "packed", "packing", "random", "spread", "tandem"}, placement.Policies()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	_, err := placement.ByName("tetris")
	if want := `choose policy: unknown name "tetris", known are ` + strings.Join(placement.Policies(), ", "); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestPoliciesAreDocumented: each page that lists the policies names all of them.
func TestPoliciesAreDocumented(t *testing.T) {
	for path, quote := range map[string]string{
		"../../docs/guides/simulator.md": "`", "../../docs/glossary.md": "`", "../api/config/v1/types.go": `"`,
	} {
		page, err := os.ReadFile(path)
		must.OK(t, err)
		for _, name := range placement.Policies() {
			if !strings.Contains(string(page), quote+name+quote) {
				t.Errorf("%s does not name the policy %s", path, name)
			}
		}
	}
}
