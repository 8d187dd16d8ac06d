package gang_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawn is a random question to Place.
func drawn(t *rapid.T) (*site, *gang.Group, gang.Config) {
	s := randomSite(t, 5, 4)
	g := randomGroup(t, 3, 2)
	s.holdOwn(t, g)
	s.placeSome(t, g)
	g.MinCount = min(g.MinCount, len(g.Members)+len(g.Placed))
	return s, g, randomConfig(t)
}

// TestPlaceProperty: a plan has a place for as many members as must have one, on room that is free for them, within the
// limits of the hosts, in one domain of each required level with the members that have a place; its spread is what one
// counts; a refusal gives no place. The cluster is as before.
func TestPlaceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g, cfg := drawn(t)
		before := s.dump()
		plan, err := gang.Place(&s.Cluster, g, cfg)
		must.OK(t, err)
		if diff := cmp.Diff(before, s.dump()); diff != "" {
			t.Fatalf("the cluster changed (-before +after):\n%s", diff)
		}
		check(t, s, g, &plan)
	})
}

// check holds a plan to the laws.
func check(t *rapid.T, s *site, g *gang.Group, plan *gang.Plan) {
	if (plan.Places == nil) == (plan.Refused == nil) {
		t.Fatalf("places %v, refused %v", plan.Places, plan.Refused)
	}
	if plan.Refused != nil {
		if text := plan.Refused.String(); !strings.HasPrefix(text, "needs ") || plan.Refused.Want < 1 {
			t.Fatalf("refusal %+v says %q", plan.Refused, text)
		}
		return
	}
	if len(plan.Places) != len(g.Members) {
		t.Fatalf("%d places for %d members", len(plan.Places), len(g.Members))
	}
	if n := placed(plan.Places); n == 0 || n+len(g.Placed) < g.MinCount {
		t.Fatalf("%d and %d members have places, %d must", n, len(g.Placed), g.MinCount)
	}
	for at, key := range slices.Concat(g.Wishes.Required, g.Wishes.Preferred, []string{""}) {
		domains := s.domains(key, plan.Places, g.Placed)
		i := slices.IndexFunc(plan.Spread, func(o gang.Spread) bool { return o.Key == key })
		if i < 0 || plan.Spread[i].Domains != len(domains) {
			t.Fatalf("level %q is used in %v, the plan says %v", key, domains, plan.Spread)
		}
		if at < len(g.Wishes.Required) && (len(domains) > 1 || len(domains) == 1 && domains[0][0] == '?') {
			t.Fatalf("required level %s is used in %v", key, domains)
		}
	}
	s.apply(t, g, plan.Places)
}

// TestRankProperty: of the members that are alike those with the lowest ranks have the places, and those on one node, or
// on one domain of any preferred level, are neighbours in rank.
func TestRankProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g := randomSite(t, 5, 4), randomGroup(t, 1, 1)
		g.Wishes.Preferred = pick(t, "nested levels", nil, []string{"host"}, []string{"host", "rack", "zone"}, []string{"zone", "rack"})
		for i := range g.Members {
			g.Members[i].Rank = (i*5 + 3) % 11
		}
		plan := mustPlace(t, &s.Cluster, g, randomConfig(t))
		if plan.Places == nil {
			return
		}
		order := make([]int, len(g.Members))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return g.Members[a].Rank - g.Members[b].Rank })
		for _, key := range append(g.Wishes.Preferred, "") {
			var seen []string
			last, ended := "", false
			for _, i := range order {
				if ended = ended || plan.Places[i].Node == ""; ended {
					if plan.Places[i].Node != "" {
						t.Fatalf("a member has a place and one of a lower rank has none: %v", where(plan.Places))
					}
					continue
				}
				d := s.domains(key, plan.Places[i:i+1])[0]
				if d != last && slices.Contains(seen, d) {
					t.Fatalf("members on %s are not neighbours in rank: %v", d, where(plan.Places))
				}
				last, seen = d, append(seen, d)
			}
		}
	})
}

// TestOrderLaw: the order of members and that of domains in a level make no difference, nor do names that sort alike.
func TestOrderLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g, cfg := drawn(t)
		want := mustPlace(t, &s.Cluster, g, cfg)
		other := *g
		other.Members, other.Placed = testkit.Permuted(t, g.Members), testkit.Permuted(t, g.Placed)
		c := s.Cluster
		c.Levels = nil
		for _, l := range s.Levels {
			order := testkit.Permuted(t, testkit.Ordinals(len(l.Names)))
			next := gang.Level{Key: l.Key, Names: make([]string, len(l.Names))}
			for old, now := range order {
				next.Names[now] = "x-" + l.Names[old]
			}
			for _, d := range l.Domain {
				if d >= 0 {
					d = int32(order[d])
				}
				next.Domain = append(next.Domain, d)
			}
			c.Levels = append(c.Levels, next)
		}
		got := mustPlace(t, &c, &other, cfg)
		if diff := cmp.Diff(where(want.Places), where(got.Places)); diff != "" {
			t.Fatalf("another order gave another answer (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.Spread, got.Spread); diff != "" {
			t.Fatalf("another order gave another spread (-want +got):\n%s", diff)
		}
		if (want.Refused == nil) != (got.Refused == nil) || want.Refused != nil &&
			want.Refused.String() != strings.ReplaceAll(got.Refused.String(), "x-", "") {
			t.Fatalf("refused %v, in another order %v", want.Refused, got.Refused)
		}
	})
}

// TestDrainProperty: the room of a drain is free, in the ledgers and on the hosts, once its blockers and no other pods
// are gone. It respects the holds of others. No blocker is on an avoided node, and none stays for ever.
func TestDrainProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g, cfg := drawn(t)
		ends := map[string]int64{}
		if rapid.Bool().Draw(t, "ends") {
			for _, n := range s.Nodes {
				n.Each(func(a *vgpu.Assignment) { ends[a.Pod] = int64(number(t, "end", 0, 9)) * 100 })
			}
			s.Ends = func(_ vgpu.UID, pod string) int64 { return ends[pod] }
		}
		hosts := map[vgpu.UID]vgpu.Room{}
		for _, n := range s.Nodes {
			n.Each(func(a *vgpu.Assignment) {
				hosts[a.UID] = vgpu.Room{MilliCPU: int64(number(t, "cores of a pod", 0, 3)) * 1000}
			})
			if len(ends) > 0 && rapid.Bool().Draw(t, "one stays") {
				n.Each(func(a *vgpu.Assignment) { ends[a.Pod] = pick(t, "stays", ends[a.Pod], gang.Never) })
			}
		}
		s.Host = func(uid vgpu.UID, _ string) vgpu.Room { return hosts[uid] }
		avoided := pick(t, "avoided", "", s.Nodes[0].Name())
		s.Avoids = func(node string) bool { return node == avoided }
		before := s.dump()
		plan, err := gang.Drain(&s.Cluster, g, cfg)
		must.OK(t, err)
		if diff := cmp.Diff(before, s.dump()); diff != "" {
			t.Fatalf("the cluster changed (-before +after):\n%s", diff)
		}
		if plan.Refused != nil {
			if p := mustPlace(t, &s.Cluster, g, cfg); p.Places != nil {
				t.Fatalf("there is a place and no room to wait for: %v", plan.Refused)
			}
			return
		}
		for _, l := range plan.Blockers {
			if ends[l.Pod] == gang.Never {
				t.Fatalf("pod %s is a blocker and stays", l.Pod)
			}
			s.leave(t, l.UID, hosts[l.UID], avoided)
		}
		check(t, s, g, &plan)
	})
}

// leave removes a pod, which gives back its part of the host.
func (s *site) leave(t *rapid.T, uid vgpu.UID, host vgpu.Room, avoided string) {
	for _, n := range s.Nodes {
		for _, a := range n.Assignments() {
			if a.UID == uid && n.Name() == avoided {
				t.Fatalf("pod %s is a blocker on the avoided node", uid)
			}
			if a.UID == uid {
				n.SetRoom(n.Room().Plus(host))
			}
		}
	}
	s.cluster.Remove(uid)
}
