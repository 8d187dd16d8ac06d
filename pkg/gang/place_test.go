package gang_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawing is a cluster from a drawing; nodes n1, n2, … are in racks by a map.
func drawing(t *testing.T, text string, racks map[string]string) *gang.Cluster {
	t.Helper()
	v, err := testkit.Parse(text)
	must.OK(t, err)
	c := &gang.Cluster{Nodes: v.Nodes(), Levels: []gang.Level{{Key: "rack"}}}
	numbers := map[string]int32{}
	for _, n := range c.Nodes {
		r, labelled := racks[n.Name()]
		at, known := numbers[r]
		switch {
		case !labelled:
			at = -1
		case !known:
			at = int32(len(numbers))
			numbers[r] = at
			c.Levels[0].Names = append(c.Levels[0].Names, r)
		}
		c.Levels[0].Domain = append(c.Levels[0].Domain, at)
	}
	return c
}

// TestBrokenInput: input that contradicts itself gives an error that names the contradiction.
func TestBrokenInput(t *testing.T) {
	tests := []struct {
		name   string
		change func(*gang.Cluster, *gang.Group, *gang.Config)
		want   string
	}{
		{"no least number", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.MinCount = 0 }, "the least number of members is 0"},
		{"more than there are", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.MinCount = 3 }, "2 members want a place or have one, the least number is 3"},
		{"a member twice", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.Members[1] = g.Members[0] }, "appears twice"},
		{"placed and not", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) {
			g.Placed = []vgpu.Assignment{{UID: g.Members[0].Request.UID}}
		}, "appears twice"},
		{"no UID", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.Members[0].Request.UID = "" }, "has no UID"},
		{"a broken request", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.Members[0].Request.Containers[0].Slots = 0 }, "asks for 0 slots"},
		{"a negative host", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.Members[0].Request.Host.MilliCPU = -1 }, "of its host"},
		{"a wish without a key", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.Wishes.Required = []string{""} }, "a wish names no level"},
		{"a level twice", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.Wishes.Preferred = []string{"rack", "rack"} }, "level rack is listed twice"},
		{"NVLink twice", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) {
			g.Wishes.Required = []string{gang.NVLink, gang.NVLink}
		}, "level nvlink is listed twice"},
		{"a loss of more than all", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) {
			g.Losses = []gang.Loss{{Level: "rack", Part: 1001}}
		}, "legal is 0 to"},
		{"a negative loss", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) {
			g.Losses = []gang.Loss{{Level: "rack", Part: -1}}
		}, "legal is 0 to"},
		{"a loss of nothing", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) { g.Losses = []gang.Loss{{}} }, "names no level"},
		{"two losses", func(_ *gang.Cluster, g *gang.Group, _ *gang.Config) {
			g.Losses = []gang.Loss{{Level: "rack"}, {Level: "rack"}}
		}, "two losses"},
		{"negative domains", func(_ *gang.Cluster, _ *gang.Group, c *gang.Config) { c.MaxDomains = -1 }, "most domains to try are -1"},
		{"nodes out of order", func(c *gang.Cluster, _ *gang.Group, _ *gang.Config) { c.Nodes[0], c.Nodes[1] = c.Nodes[1], c.Nodes[0] }, "comes after"},
		{"a level of fewer nodes", func(c *gang.Cluster, _ *gang.Group, _ *gang.Config) { c.Levels[0].Domain = c.Levels[0].Domain[:1] }, "knows 1 nodes of 2"},
		{"an unknown domain", func(c *gang.Cluster, _ *gang.Group, _ *gang.Config) { c.Levels[0].Domain[1] = 1 }, "is in domain 1 of 1"},
		{"NVLink as a label", func(c *gang.Cluster, g *gang.Group, _ *gang.Config) {
			c.Levels[0].Key, g.Wishes.Preferred = gang.NVLink, []string{gang.NVLink}
		}, "level nvlink is no label of nodes"},
		{"two levels with one key", func(c *gang.Cluster, _ *gang.Group, _ *gang.Config) { c.Levels = append(c.Levels, c.Levels[0]) }, "appears twice"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := drawing(t, "n1: g0 A100 | g1 A100\nn2: g0 A100", map[string]string{"n1": "r1", "n2": "r1"})
			g, cfg := withoutHostRequests(benchGang(2, 10, nil, []string{"rack"})), gang.Config{}
			tc.change(c, g, &cfg)
			for _, decide := range []func(*gang.Cluster, *gang.Group, gang.Config) (gang.Plan, error){gang.Place, gang.Drain} {
				if _, err := decide(c, g, cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
			}
		})
	}
}

// A wish for a key that no node has is one for a level of no node, and costs no entry in the list.
func TestLevelOfNoNode(t *testing.T) {
	for _, required := range []bool{false, true} {
		c := drawing(t, "n1: g0 A100 | g1 A100\nn2: g0 A100", map[string]string{"n1": "r1", "n2": "r1"})
		wishes, keys := gang.Wishes{}, []string{"row"}
		if wishes.Preferred = keys; required {
			wishes.Required, wishes.Preferred = keys, nil
		}
		g := withoutHostRequests(benchGang(2, 10, wishes.Required, wishes.Preferred))
		got, err := gang.Place(c, g, gang.Config{})
		must.OK(t, err)
		c.Levels = append(c.Levels, gang.Level{Key: "row", Domain: []int32{-1, -1}})
		want, err := gang.Place(c, g, gang.Config{})
		must.OK(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("required %v (-with an entry +without):\n%s", required, diff)
		}
		if required != (got.Refused != nil && got.Refused.Reason == gang.NoLevel) {
			t.Errorf("required %v: %+v", required, got.Refused)
		}
	}
}

// TestAllPlaced: for a gang all of whose members have a place the plan is empty.
func TestAllPlaced(t *testing.T) {
	c := drawing(t, "n1: g0 A100 [a:10]", nil)
	g := &gang.Group{MinCount: 1, Placed: c.Nodes[0].Assignments()}
	if plan := mustPlace(t, c, g, gang.Config{}); plan.Places != nil || plan.Refused != nil {
		t.Errorf("plan %+v", plan)
	}
}

// TestRefusal: the fields of a refusal, not only its words.
func TestRefusal(t *testing.T) {
	racks := map[string]string{"n1": "r1", "n2": "r2"}
	const two = "n1: g0 A100 [a:10] | g1 A100 [b:4] | g2 A100\nn2: g0 A100 [c:10] | g1 A100 | g2 A100 [d:10]\n"
	tests := []struct {
		name, drawing string
		change        func(*gang.Cluster, *gang.Group)
		want          gang.Refusal
	}{
		{"others are there", two, nil, gang.Refusal{
			Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r1", Best: 1, After: "r1",
			Blockers: []gang.Blocker{{UID: "b", Pod: "b"}},
		}},
		{"as many as there are", two, func(_ *gang.Cluster, g *gang.Group) {
			g.Members, g.MinCount = withoutHostRequests(benchGang(3, 10, nil, nil)).Members, 3
		}, gang.Refusal{
			Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Want: 3, Of: 3, Share: "3 × 1 GPU", Nearest: "r1", Best: 1, After: "r1",
			Blockers: []gang.Blocker{{UID: "a", Pod: "a"}, {UID: "b", Pod: "b"}},
		}},
		{"those that end first", two, func(c *gang.Cluster, _ *gang.Group) {
			c.Ends = func(_ vgpu.UID, pod string) int64 { return map[string]int64{"a": 30, "b": 40, "c": 50, "d": 20}[pod] }
		}, gang.Refusal{
			Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r1", Best: 1, After: "r2",
			Blockers: []gang.Blocker{{UID: "d", Pod: "d"}},
		}},
		{"too large", two, func(_ *gang.Cluster, g *gang.Group) {
			g.Members, g.MinCount = withoutHostRequests(benchGang(4, 10, nil, nil)).Members, 4
		}, gang.Refusal{Reason: gang.NeverFits, Want: 4, Of: 4, Share: "4 × 1 GPU", Nearest: "r1", Best: 3}},
		{"sick devices", "n1: g0 A100 sick | g1 A100\nn2: g0 A100\n", nil, gang.Refusal{
			Reason: gang.NoRoom, Helps: vgpu.RecoveryHelps, Nearest: "r1", Best: 1,
		}},
		{"no room on the host", "n1 cpu=3: g0 A100 | g1 A100\nn2: g0 A100\n", func(_ *gang.Cluster, g *gang.Group) {
			for i := range g.Members {
				g.Members[i].Request.Host.MilliCPU = 2000
			}
		}, gang.Refusal{Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r1", Best: 1, Hosts: &gang.Hosts{
			Lacks: []gang.Lack{{Why: "Insufficient cpu", Nodes: 2}}, Want: vgpu.Room{MilliCPU: 2000}, Most: vgpu.Room{MilliCPU: 3000},
		}}},
		{"no room on any host, even without pods", "n1 cpu=3: g0 A100 | g1 A100\nn2: g0 A100\n", func(c *gang.Cluster, g *gang.Group) {
			c.Hosts = func(node int) vgpu.Room { return vgpu.Room{MilliCPU: 3000 - int64(node)*1000} }
			for i := range g.Members {
				g.Members[i].Request.Host.MilliCPU = 2000
			}
		}, gang.Refusal{Reason: gang.NeverFits, Nearest: "r1", Best: 1, Hosts: &gang.Hosts{
			Lacks: []gang.Lack{{Why: "Insufficient cpu", Nodes: 1}}, Want: vgpu.Room{MilliCPU: 2000}, Most: vgpu.Room{MilliCPU: 3000}, Empty: true,
		}}},
		{"room on a host once others end", "n1 cpu=3: g0 A100 | g1 A100\nn2: g0 A100 [a:1]\n", func(c *gang.Cluster, g *gang.Group) {
			c.Hosts = func(int) vgpu.Room { return vgpu.Room{MilliCPU: 4000} }
			for i := range g.Members {
				g.Members[i].Request.Host.MilliCPU = 2000
			}
		}, gang.Refusal{Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r1", Best: 1, Hosts: &gang.Hosts{
			Lacks: []gang.Lack{{Why: "Insufficient cpu", Nodes: 1}}, Want: vgpu.Room{MilliCPU: 2000}, Most: vgpu.Room{MilliCPU: 3000},
		}}},
		{"too little memory", "n1 cpu=9 memory=3G: g0 A100 | g1 A100\nn2: g0 A100\n", func(_ *gang.Cluster, g *gang.Group) {
			for i := range g.Members {
				g.Members[i].Request.Host = vgpu.Room{MilliCPU: 1000, Memory: 2 * vgpu.GiB}
			}
		}, gang.Refusal{Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r1", Best: 1, Hosts: &gang.Hosts{
			Lacks: []gang.Lack{{Why: "Insufficient cpu", Nodes: 1}, {Why: "Insufficient memory", Nodes: 1}},
			Want:  vgpu.Room{MilliCPU: 1000, Memory: 2 * vgpu.GiB}, Most: vgpu.Room{MilliCPU: 9000, Memory: 3 * vgpu.GiB},
		}}},
		{"barred", "n1: g0 A100 | g1 A100\nn2: g0 A100\n", func(c *gang.Cluster, _ *gang.Group) {
			c.Admits = func(int, int) int { return 0 }
			c.Bars = func(int, int) string { return "node(s) had untolerated taint {gpu: a100}" }
		}, gang.Refusal{Reason: gang.NeverFits, Nearest: "r1", Hosts: &gang.Hosts{
			Lacks: []gang.Lack{{Why: "node(s) had untolerated taint {gpu: a100}", Nodes: 2}}, Empty: true,
		}}},
		{"barred, and others are in the way", "n1: g0 A100 | g1 A100\nn2: g0 A100 [a:10] | g1 A100\n", func(c *gang.Cluster, _ *gang.Group) {
			c.Admits = func(_, node int) int { return 9 * node }
			c.Bars = func(_, node int) string { return []string{"node(s) were unschedulable", ""}[node] }
		}, gang.Refusal{
			Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r2", Best: 1, After: "r2", Blockers: []gang.Blocker{{UID: "a", Pod: "a"}},
			Hosts: &gang.Hosts{Lacks: []gang.Lack{{Why: "node(s) were unschedulable", Nodes: 1}}},
		}},
		{"not admitted", "n1: g0 A100 | g1 A100\nn2: g0 A100\n", func(c *gang.Cluster, _ *gang.Group) {
			c.Admits = func(int, int) int { return 1 }
		}, gang.Refusal{Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r1", Best: 1, Hosts: &gang.Hosts{
			Lacks: []gang.Lack{{Why: "node(s) take no more pods now", Nodes: 1}},
		}}},
		{"held with the same priority", "n1: g0 A100 (x:10@0) | g1 A100\nn2: g0 A100\n", nil, gang.Refusal{
			Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Nearest: "r1", Best: 1,
		}},
		{"some must", two, func(_ *gang.Cluster, g *gang.Group) {
			g.Members = append(g.Members, withoutHostRequests(benchGang(9, 10, nil, nil)).Members[2:]...)
		}, gang.Refusal{
			Reason: gang.NoRoom, Helps: vgpu.EvictionHelps, Of: 9, Nearest: "r1", Best: 1, After: "r1", Blockers: []gang.Blocker{{UID: "b", Pod: "b"}},
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, g := drawing(t, tc.drawing, racks), withoutHostRequests(benchGang(2, 10, []string{"rack"}, nil))
			if tc.change != nil {
				tc.change(c, g)
			}
			got := mustPlace(t, c, g, gang.Config{}).Refused
			if got == nil {
				t.Fatal("there is a place")
			}
			if tc.want.Want == 0 {
				tc.want.Want, tc.want.Share = 2, "2 × 1 GPU"
			}
			if tc.want.Of == 0 {
				tc.want.Of = 2
			}
			tc.want.Level = "rack"
			if devices := got.Member != nil; devices == (tc.want.Hosts != nil || tc.want.Reason == gang.NeverFits) {
				t.Errorf("the nearest miss of the devices is %v", got.Member)
			}
			got.Member = nil
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWords: Words names the blockers by the given function.
func TestWords(t *testing.T) {
	r := gang.Refusal{
		Reason: gang.NoRoom, Want: 8, Share: "8 × 1 GPU", Level: "topology.kubernetes.io/rack", Nearest: "r3", Best: 7, After: "r1",
		Blockers: []gang.Blocker{{"a", "team/train-b-0"}, {"b", "team/train-b-1"}}, Helps: vgpu.EvictionHelps,
	}
	if got, want := r.String(), "needs 8 × 1 GPU in one topology.kubernetes.io/rack; rack r3 takes 7; rack r1 takes 8 after team/train-b-0, team/train-b-1 end"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	r.Cut, r.Blockers = true, r.Blockers[:1]
	got := r.Words(func(l []gang.Blocker) string { return l[0].Pod + " (priority 10)" })
	want := "needs 8 × 1 GPU in one topology.kubernetes.io/rack; rack r3 takes 7; rack r1 takes 8 after team/train-b-0 (priority 10) ends" +
		"; the search was cut short, there may be a place that it did not see"
	if got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// TestPromises: promises hold among the members: two that tolerate no slowdown do not share a device.
func TestPromises(t *testing.T) {
	model, err := interference.ByName("hinge")
	must.OK(t, err)
	model.Coefficients = []float64{1, .2} // 0.2 slower for each device's worth that is used beyond the device
	among := &placement.Neighbours{
		Model: model, Weights: placement.EvenWeights,
		Tenant: func(w interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
			return interference.Tenant{Workload: w, Cap: float64(part) / 1000, SM: 1}
		},
	}
	c := drawing(t, "n1: g0 A100 | g1 A100\nn2: g0 A100", nil)
	g := withoutHostRequests(benchGang(3, 3, nil, []string{"rack"}))
	cfg := gang.Config{Policy: placement.Policy{}.Among(among)}
	used := func() map[vgpu.DeviceID]bool {
		plan, devices := mustPlace(t, c, g, cfg), map[vgpu.DeviceID]bool{}
		for i := range plan.Places {
			devices[plan.Places[i].Containers[0].Devices[0]] = true
		}
		return devices
	}
	for i := range g.Members {
		g.Members[i].Request.Tenancy = vgpu.Tenancy{Workload: 1, MaxSlowdown: 1100}
	}
	if got := used(); len(got) != 3 {
		t.Errorf("members that tolerate a tenth are on %v", got)
	}
	for i := range g.Members {
		g.Members[i].Request.MaxSlowdown = 1400
	}
	among.Scarce = true
	cfg.Policy = placement.Policy{}.Among(among)
	if got := used(); len(got) > 2 {
		t.Errorf("members that tolerate 1.4 are on %v", got)
	}
	for i := range g.Members {
		g.Members[i].Request.MaxSlowdown = 1100
	}
	g.Members, g.MinCount = append(g.Members, g.Members[0]), 4
	g.Members[3].Request.UID = "another"
	if r := mustPlace(t, c, g, cfg).Refused; r == nil || r.Reason != gang.NeverFits || r.Best != 3 {
		t.Errorf("four on three devices: %v", r)
	}
}

// TestChoices: places where one rule decides.
func TestChoices(t *testing.T) {
	tests := []struct {
		name, drawing string
		group         *gang.Group
		change        func(*gang.Cluster, *gang.Group)
		// want is the node of each member, "!" for a refusal.
		want string
	}{
		// Both nodes take two halves and have nothing left then. packed leaves nothing of two devices on n2, on n1 a half
		// and then nothing of one.
		{"the policy decides between equals", "n1: g0 A100\nn2: g0 A100 [a:5] | g1 A100 [b:5]", benchGang(2, 5, nil, []string{"rack"}), nil, "n2/n2"},
		{"else the name", "n1: g0 A100\nn2: g0 A100", benchGang(1, 5, nil, nil), nil, "n1"},
		{"without a label there is no domain", "n0: g0 A100\nn1: g0 A100", benchGang(1, 10, []string{"rack"}, nil), nil, "n1"},
		// Only n1 admits the second, which is the smaller.
		{"the scarcest first", "n1: g0 A100\nn2: g0 A100", benchGang(2, 10, nil, nil), func(c *gang.Cluster, g *gang.Group) {
			g.Members[1].Request.Containers[0].Slots, g.Members[1].Kind = 5, 1
			c.Admits = func(kind, node int) int { return []int{9, 9 * (1 - node)}[kind] }
		}, "n2/n1"},
		// Twice 6 on n1 and n2, by the part of the room that they need, leave no whole device.
		{"then the largest first", "n1: g0 A100\nn2: g0 A100\nn3: g0 A100 [a:4]", benchGang(3, 6, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.Members[0].Request.Containers[0].Slots = 10
		}, "n1/n2/n3"},
		{"who asks for no GPU needs none", "n1 cpu=1: g0 A100 [a:10]\nn2: g0 A100 [b:10]", benchGang(1, 10, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.Members[0].Request.Containers, g.Members[0].Request.Host.MilliCPU = nil, 1000
		}, "n1"},
		{"kinds are admitted by themselves", "n1: g0 A100 | g1 A100\nn2: g0 A100 | g1 A100", benchGang(2, 10, nil, nil), func(c *gang.Cluster, g *gang.Group) {
			g.Members[1].Kind = 1
			c.Admits = func(kind, node int) int { return []int{1 - node, node}[kind] }
		}, "n1/n2"},
		{"models are", "n1: g0 A100 | g1 H100", benchGang(2, 10, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.Members[1].Request.Variants = []vgpu.Variant{{Model: "H100"}}
			g.Members[0].Request.Variants = []vgpu.Variant{{Model: "A100"}}
		}, "n1/n1"},
		{"hosts are", "n1 cpu=3: g0 A100 | g1 A100\nn2 cpu=1: g0 A100", benchGang(2, 10, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.Members[0].Request.Host.MilliCPU, g.Members[1].Request.Host.MilliCPU = 1000, 3000
		}, "n2/n1"},
		{"hosts fill up", "n1 cpu=3: g0 A100 | g1 A100\nn2 cpu=2: g0 A100", benchGang(2, 10, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.Members[0].Request.Host.MilliCPU, g.Members[1].Request.Host.MilliCPU = 2000, 2000
		}, "n1/n2"},
		{"an island where one takes all", "n1: g0 A100 | g1 A100\nn2: g0 A100 | g1 A100\nlinks n2: g0-g1 NV1", benchGang(2, 10, nil, []string{gang.NVLink, "rack"}), nil, "n2/n2"},
		{"else what the next level says", "n1: g0 A100 | g1 A100\nn2: g0 A100\nn3: g0 A100 | g1 A100 [a:10]\nlinks n3: g0-g1 NV1", benchGang(2, 10, nil, []string{gang.NVLink, "rack"}), nil, "n1/n1"},
		// Even if only islands cost nothing, nodes still count: one takes both, and the policy would rather fill two.
		{"islands that cost nothing", "n1: g0 A100 [a:7]\nn2: g0 A100 [b:7]\nn3: g0 A100", benchGang(2, 3, nil, []string{gang.NVLink}), func(_ *gang.Cluster, g *gang.Group) {
			g.Losses = []gang.Loss{{Level: gang.NVLink}}
		}, "n3/n3"},
		{"a rank decides who goes without", "n1: g0 A100", benchGang(2, 10, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.MinCount, g.Members[0].Rank = 1, 5
		}, "/n1"},
		{"of unlike members too", "n1: g0 A100", benchGang(2, 10, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.MinCount, g.Members[1].Request.Containers[0].Slots = 1, 5
		}, "n1/"},
		{"one more than is needed", "n1: g0 A100 | g1 A100 | g2 A100", benchGang(5, 10, nil, nil), func(_ *gang.Cluster, g *gang.Group) {
			g.MinCount = 1
		}, "n1/n1/n1//"},
		{"refused", "n1: g0 A100", benchGang(2, 10, nil, nil), nil, "!"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, g := drawing(t, tc.drawing, map[string]string{"n1": "r1", "n2": "r1", "n3": "r2"}), withoutHostRequests(tc.group)
			if tc.change != nil {
				tc.change(c, g)
			}
			plan := mustPlace(t, c, g, gang.Config{})
			nodes := make([]string, 0, len(g.Members))
			for i := range plan.Places {
				nodes = append(nodes, plan.Places[i].Node)
			}
			if plan.Refused != nil {
				nodes = []string{"!"}
			}
			if got := strings.Join(nodes, "/"); got != tc.want {
				t.Errorf("placed on %q, want %q", got, tc.want)
			}
		})
	}
}
