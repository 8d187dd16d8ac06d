package gang_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// emptied returns the site without pods and holds. All devices are healthy, and hosts have no limit.
func (s *site) emptied(t *rapid.T) *site {
	e := *s
	var nodes []*vgpu.Node
	for _, old := range s.Nodes {
		devices := slices.Clone(old.Devices())
		for i := range devices {
			devices[i].Healthy = true
		}
		n, err := vgpu.NewNode(old.Name(), devices)
		must.OK(t, err)
		n.SetRoom(vgpu.Room{MilliCPU: 1 << 40, Memory: 1 << 50})
		nodes = append(nodes, n)
	}
	c, err := vgpu.NewCluster(nodes...)
	must.OK(t, err)
	e.cluster, e.Nodes, e.Admits = c, c.Nodes(), nil
	return &e
}

// TestNeverFitsLaw: like members of one container never fit exactly where they do not fit on the emptied, healthy
// cluster; then nothing helps. A gang that only waits for other pods or for devices to recover is refused with that
// help.
func TestNeverFitsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g := randomSite(t, 4, 3), randomGroup(t, 1, 1)
		for len(g.Members) < number(t, "many", 1, 20) {
			m := g.Members[0]
			m.Request.UID = vgpu.UID(string(rune('A'+len(g.Members))) + "-more")
			g.Members = append(g.Members, m)
		}
		if rapid.Bool().Draw(t, "whole") {
			g.MinCount = len(g.Members)
		}
		cfg := randomConfig(t)
		plan := mustPlace(t, &s.Cluster, g, cfg)
		if plan.Refused == nil {
			return
		}
		empty := mustPlace(t, &s.emptied(t).Cluster, g, cfg)
		if plan.Refused.Reason == gang.NoLevel {
			if empty.Places != nil {
				t.Fatalf("refused for %v, on the emptied cluster %v", plan.Refused, empty)
			}
			return
		}
		if never := plan.Refused.Reason == gang.NeverFits; never != (empty.Places == nil) {
			t.Fatalf("refused for %v, on the emptied cluster %v", plan.Refused, empty)
		}
		if nothing := plan.Refused.Helps == vgpu.NothingHelps; nothing != (plan.Refused.Reason == gang.NeverFits) {
			t.Fatalf("%s, and %d helps", plan.Refused.Reason, plan.Refused.Helps)
		}
	})
}

// TestHostsLaw: a gang of like members of one container never fits exactly where it does not fit on the emptied,
// healthy cluster. Hosts have there what they have without pods, and barred nodes take no member.
func TestHostsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g, cfg := randomSite(t, 4, 3), randomGroup(t, 1, 1), randomConfig(t)
		rooms, bars := make([]vgpu.Room, len(s.Nodes)), make([]string, len(s.Nodes))
		empty := s.emptied(t)
		for i := range s.Nodes {
			rooms[i] = s.Nodes[i].Room().Plus(vgpu.Room{MilliCPU: int64(number(t, "cores more", 0, 4)) * 1000})
			bars[i] = pick(t, "bar", "", "", "node(s) were unschedulable")
			empty.Nodes[i].SetRoom(rooms[i])
		}
		s.Hosts = func(node int) vgpu.Room { return rooms[node] }
		s.Bars = func(_, node int) string { return bars[node] }
		s.Admits = func(_, node int) int { return map[bool]int{true: pick(t, "admitted", 0, 2, 100)}[bars[node] == ""] }
		empty.Admits = func(_, node int) int { return map[bool]int{true: 100}[bars[node] == ""] }
		plan, free := mustPlace(t, &s.Cluster, g, cfg), mustPlace(t, &empty.Cluster, g, cfg)
		if plan.Refused == nil {
			return
		}
		if plan.Refused.Reason == gang.NoLevel {
			if free.Places != nil {
				t.Fatalf("refused for %v, on the emptied cluster %v", plan.Refused, free)
			}
			return
		}
		if never := plan.Refused.Reason == gang.NeverFits; never != (free.Places == nil) {
			t.Fatalf("refused for %v, on the emptied cluster %v", plan.Refused, free)
		}
	})
}

// TestFarNodeLaw: another node, far from all others, makes no gang that has a place worse in its spread.
func TestFarNodeLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g, cfg := randomSite(t, 4, 3), randomGroup(t, 1, 1), randomConfig(t)
		g.MinCount = len(g.Members)
		before := mustPlace(t, &s.Cluster, g, cfg)
		if before.Places == nil {
			return
		}
		far, err := vgpu.NewNode("zz-far", testkit.RandomModels[number(t, "model", 0, 3)].Devices("zz-far", number(t, "devices", 0, 4)))
		must.OK(t, err)
		far.SetRoom(vgpu.Room{MilliCPU: 100_000, Memory: 1 << 40})
		c := s.Cluster
		c.Nodes, c.Levels = append(slices.Clone(c.Nodes), far), slices.Clone(c.Levels)
		for i := range c.Levels {
			l := &c.Levels[i]
			l.Domain = append(slices.Clone(l.Domain), int32(len(l.Names)))
			l.Names = append(slices.Clone(l.Names), "zz-far")
		}
		if s.Admits != nil {
			c.Admits = func(kind, node int) int {
				if node == len(s.Nodes) {
					return 100
				}
				return s.Admits(kind, node)
			}
		}
		after := mustPlace(t, &c, g, cfg)
		if after.Places == nil {
			t.Fatalf("with another node there is no place: %v", after.Refused)
		}
		wishes := g.Wishes
		if s.bridged(before.Places) {
			wishes.Preferred = slices.DeleteFunc(slices.Clone(wishes.Preferred), func(key string) bool { return key == gang.NVLink })
		}
		if worse(&before, &after, wishes) {
			t.Fatalf("wishes %v: spread %v, with a far node %v", g.Wishes, before.Spread, after.Spread)
		}
	})
}

// bridged reports whether a member has devices on several NVLink islands: none takes it.
func (s *site) bridged(places []vgpu.Assignment) bool {
	for i := range places {
		if places[i].Node != "" && len(s.domains(gang.NVLink, places[i:i+1])) > 1 {
			return true
		}
	}
	return false
}

// worse compares the level of which one domain has all, and the spread of the first preferred level.
func worse(before, after *gang.Plan, w gang.Wishes) bool {
	level := func(p *gang.Plan) int {
		i := slices.IndexFunc(w.Preferred, func(key string) bool { return spreadOf(p, key) == 1 })
		if i < 0 {
			return len(w.Preferred)
		}
		return i
	}
	a, b := level(before), level(after)
	return b > a || b == a && len(w.Preferred) > 0 && spreadOf(after, w.Preferred[0]) > spreadOf(before, w.Preferred[0])
}

func spreadOf(p *gang.Plan, key string) int {
	return p.Spread[slices.IndexFunc(p.Spread, func(s gang.Spread) bool { return s.Key == key })].Domains
}

// TestNoHarmLaw: where a spread costs nothing, the members go where the policy puts single pods, one after the other.
func TestNoHarmLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g, cfg := randomSite(t, 5, 4), randomGroup(t, 2, 2), randomConfig(t)
		g.Wishes.Required = nil
		g.MinCount = len(g.Members)
		s.Admits = nil
		g.Losses = []gang.Loss{{Level: "host"}}
		for _, key := range g.Wishes.Preferred {
			if key != "host" {
				g.Losses = append(g.Losses, gang.Loss{Level: key})
			}
		}
		for i := range g.Members {
			g.Members[i].Request.Host = vgpu.Room{} // single pods ignore the hosts
			if len(g.Members[i].Request.Containers) == 0 {
				return
			}
		}
		plan := mustPlace(t, &s.Cluster, g, cfg)
		var want []vgpu.Assignment
		s.cluster.WhatIf(func() {
			for i := range g.Members {
				one, err := placement.Choose(s.cluster, &g.Members[i].Request, placement.Config{Policy: cfg.Policy})
				must.OK(t, err)
				if one.Place == nil {
					want = nil
					return
				}
				must.OK(t, s.cluster.Add(*one.Place))
				want = append(want, *one.Place)
			}
		})
		if want == nil {
			return // one by one the members hinder each other
		}
		if diff := cmp.Diff(onlyWhere(want), onlyWhere(plan.Places)); diff != "" {
			t.Fatalf("single pods go elsewhere (-single +gang):\n%s", diff)
		}
	})
}

// onlyWhere lists the devices of places without their pods.
func onlyWhere(places []vgpu.Assignment) []string {
	anonymous := slices.Clone(places)
	for i := range anonymous {
		anonymous[i].Pod = ""
	}
	return where(anonymous)
}

// TestMixedProperty: for unlike members, where taking them one by one, the largest first, each to the first node with
// room, finds a place for all, Place does so too but for one in a hundred, and never says that it is impossible.
func TestMixedProperty(t *testing.T) {
	missed, found := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s, g, cfg := randomSite(t, 5, 4), randomGroup(t, 3, 2), randomConfig(t)
		g.MinCount, g.Wishes.Required, s.Admits = len(g.Members), nil, nil
		plan := mustPlace(t, &s.Cluster, g, cfg)
		if !s.oneByOne(g) {
			return
		}
		if found++; plan.Places == nil {
			missed++
		}
		if plan.Places == nil && plan.Refused.Reason == gang.NeverFits {
			t.Fatalf("declared impossible, and fits one by one: %v", plan.Refused)
		}
	})
	if found < 5 || missed > 1+found/100 {
		t.Errorf("missed %d of %d places that exist", missed, found)
	}
}

// oneByOne places the members first fit, the largest first.
func (s *site) oneByOne(g *gang.Group) (all bool) {
	order := slices.Clone(g.Members)
	slices.SortStableFunc(order, func(a, b gang.Member) int { return int(b.Request.PeakSlots() - a.Request.PeakSlots()) })
	rooms := map[*vgpu.Node]vgpu.Room{}
	for _, n := range s.Nodes {
		rooms[n] = n.Room()
	}
	s.cluster.WhatIf(func() {
		for i := range order {
			r := &order[i].Request
			at := slices.IndexFunc(s.Nodes, func(n *vgpu.Node) bool { return r.Host.Within(rooms[n]) && placement.Fit(n, r) == nil })
			if at < 0 {
				return
			}
			n := s.Nodes[at]
			rooms[n] = rooms[n].Minus(r.Host)
			if a, refusal := placement.Assign(n, r, placement.Policy{}); refusal == nil && len(a.Containers) > 0 {
				_ = s.cluster.Add(a)
			}
		}
		all = true
	})
	return all
}
