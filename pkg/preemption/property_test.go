package preemption_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// large sizes are beyond any search of all sets.
var large = size{nodes: 8, devices: 8, pods: 30, members: 8, full: true}

func mustPlan(t *rapid.T, s *site) preemption.Plan {
	plan, err := preemption.Victims(&s.Cluster, s.want, &s.who, s.cfg)
	must.OK(t, err)
	return plan
}

// TestPlanProperty: on clusters of any size a plan evicts only allowed pods, in units, and makes room on the ledgers.
// It needs each unit and each pod that it waits for. The question does not change.
func TestPlanProperty(t *testing.T) {
	met := tally{}
	rapid.Check(t, func(t *rapid.T) {
		s := randomSite(t, pick(t, "size", small, large), rapid.Bool().Draw(t, "gang"))
		before := s.dump()
		plan := mustPlan(t, s)
		if diff := cmp.Diff(before, s.dump()); diff != "" {
			t.Fatalf("the question changed (-before +after):\n%s", diff)
		}
		if (plan.Places == nil) == (plan.Refused == nil) {
			t.Fatalf("places %v, refused %v", plan.Places, plan.Refused)
		}
		if plan.Refused == nil {
			s.legal(t, &plan)
			s.minimal(t, &plan)
			s.effective(t, &plan)
			met.note(&plan)
		} else if plan.Evict != nil || plan.Waits != nil || plan.Cost != (preemption.Cost{}) {
			t.Fatalf("refused %+v, and evicts %v at %+v", plan.Refused, plan.Evict, plan.Cost)
		}
	})
	met.require(t, 1, "no victim", "Single", "several")
}

// TestSkipExplanationProperty: SkipExplanation changes a refusal only by leaving out its reason.
func TestSkipExplanationProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSite(t, small, rapid.Bool().Draw(t, "gang"))
		want := mustPlan(t, s)
		s.cfg.SkipExplanation = true
		got := mustPlan(t, s)
		if r := got.Refused; r != nil && (r.Reason != "" || r.Text != "" || r.Would != nil) {
			t.Fatalf("explained: %+v", *r)
		}
		if (want.Refused == nil) != (got.Refused == nil) {
			t.Fatalf("refused %v, explained %v", got.Refused, want.Refused)
		}
		want.Refused, got.Refused = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-explained +not):\n%s", diff)
		}
	})
}

// legal checks that the units may be evicted, and that the cost is theirs.
func (s *site) legal(t *rapid.T, plan *preemption.Plan) {
	all := victimSet{units: plan.Evict}
	gone := all.pods()
	slices.Sort(gone)
	if len(slices.Compact(slices.Clone(gone))) != len(gone) {
		t.Fatalf("somebody is evicted twice: %v", gone)
	}
	for _, i := range gone {
		if !s.may(i, false) {
			t.Fatalf("evicts %+v for priority %d", s.who.Pods[i], s.want.Members[0].Request.Priority)
		}
	}
	taken := make([]int, len(s.who.Gangs))
	for i := range plan.Evict {
		s.unit(t, &plan.Evict[i], taken)
	}
	if got := names(plan.Evict); !slices.EqualFunc(plan.Evict, got, func(u preemption.Unit, name string) bool { return u.Name == name }) {
		t.Fatalf("units are not in the order of their names: %v", got)
	}
	if cost := s.cost(plan.Evict); plan.Cost != cost {
		t.Fatalf("evicts %v at %+v, they cost %+v", names(plan.Evict), plan.Cost, cost)
	}
	costs, err := preemption.Costs(&s.Cluster, s.want, &s.who, s.cfg)
	must.OK(t, err)
	if cost := costs(plan.Evict); plan.Cost != cost {
		t.Fatalf("evicts %v at %+v, and Costs says %+v", names(plan.Evict), plan.Cost, cost)
	}
	if s.cfg.KeepBudgets && plan.Cost.Violations > 0 {
		t.Fatalf("violates budgets: %+v", plan.Cost)
	}
}

// unit checks one unit against its kind, and counts the evicted members of gangs.
func (s *site) unit(t *rapid.T, u *preemption.Unit, taken []int) {
	first := &s.who.Pods[u.Pods[0]]
	switch {
	case first.Gang < 0:
		if u.Kind != preemption.Single || len(u.Pods) != 1 || u.Name != first.Name {
			t.Fatalf("unit %+v of pod %s", *u, first.Name)
		}
	case u.Kind == preemption.Surplus:
		taken[first.Gang]++
		left := len(s.running(first.Gang)) - taken[first.Gang]
		if len(u.Pods) != 1 || u.Name != first.Name || left < s.who.Gangs[first.Gang].MinCount {
			t.Fatalf("unit %+v leaves %d of gang %+v", *u, left, s.who.Gangs[first.Gang])
		}
	default:
		taken[first.Gang] += len(u.Pods)
		if u.Kind != preemption.Whole || u.Name != s.who.Gangs[first.Gang].Name || !slices.Equal(u.Pods, s.running(first.Gang)) {
			t.Fatalf("unit %+v of gang %+v, running are %v", *u, s.who.Gangs[first.Gang], s.running(first.Gang))
		}
		if taken[first.Gang] != len(u.Pods) {
			t.Fatalf("gang %s is evicted whole and in part", u.Name)
		}
	}
}

// minimal checks that the plan needs each unit; where units are few, that no proper subset of them makes room.
func (s *site) minimal(t *rapid.T, plan *preemption.Plan) {
	n := len(plan.Evict)
	for kept := uint(1); n < 7 && kept < 1<<n || n >= 7 && kept < 1<<n; kept++ {
		if n >= 7 && kept&(kept-1) != 0 {
			continue
		}
		var rest victimSet
		for i := range plan.Evict {
			if kept&(1<<i) == 0 {
				rest.units = append(rest.units, plan.Evict[i])
			}
		}
		if s.fits(t, rest.pods()) {
			t.Fatalf("evicts %v, %v would do", names(plan.Evict), names(rest.units))
		}
	}
}

// effective books the places in the ledgers without the victims and the leaving pods.
func (s *site) effective(t *rapid.T, plan *preemption.Plan) {
	all := victimSet{units: plan.Evict}
	gone := append(all.pods(), plan.Waits...)
	for _, i := range plan.Waits {
		if !s.who.Pods[i].Leaving {
			t.Fatalf("waits for %s, which does not leave", s.who.Pods[i].Name)
		}
	}
	if why := s.book(t, s.without(gone), plan.Places); why != "" {
		t.Fatalf("evicts %v, waits for %v, and %s:\n%s", names(plan.Evict), plan.Waits, why, testkit.Draw(s.cluster))
	}
	for at := range plan.Waits {
		if s.book(t, s.without(append(all.pods(), slices.Delete(slices.Clone(plan.Waits), at, at+1)...)), plan.Places) == "" {
			t.Fatalf("waits for %v and not in need of %s", plan.Waits, s.who.Pods[plan.Waits[at]].Name)
		}
	}
}

// book returns why the places are not legal on the cluster, "" where they are.
func (s *site) book(t *rapid.T, c *gang.Cluster, places []vgpu.Assignment) string {
	g, count, admitted := s.want, len(s.want.Placed), make([]int, len(c.Nodes))
	if len(places) != len(g.Members) {
		return fmt.Sprintf("%d places for %d members", len(places), len(g.Members))
	}
	nodes := make([]*vgpu.Node, len(c.Nodes))
	for i, n := range c.Nodes {
		nodes[i] = n.Clone()
		for m := range g.Members {
			nodes[i].Release(g.Members[m].Request.UID)
		}
	}
	for i := range places {
		m, a := &g.Members[i], &places[i]
		if a.Node == "" {
			continue
		}
		at := slices.IndexFunc(nodes, func(n *vgpu.Node) bool { return n.Name() == a.Node })
		if admitted[at]++; c.Admits != nil && admitted[at] > c.Admits(m.Kind, at) {
			return fmt.Sprintf("node %s takes no %d", a.Node, admitted[at])
		}
		if a.UID != m.Request.UID || !m.Request.Host.Within(nodes[at].Room()) {
			return fmt.Sprintf("host %s has %v for %s", a.Node, nodes[at].Room(), a.Pod)
		}
		nodes[at].SetRoom(nodes[at].Room().Minus(m.Request.Host))
		if why := s.bookOn(t, nodes[at], &m.Request, a); why != "" {
			return why
		}
		count++
	}
	if count < g.MinCount || count == len(g.Placed) {
		return fmt.Sprintf("%d members of %d have a place", count, g.MinCount)
	}
	return s.together(places)
}

// bookOn books one place by the holds that count, the share that is legal and the promises that are kept.
func (s *site) bookOn(t *rapid.T, n *vgpu.Node, r *vgpu.Request, a *vgpu.Assignment) string {
	if len(a.Containers) != len(r.Containers) {
		return fmt.Sprintf("%d of %d containers have a place", len(a.Containers), len(r.Containers))
	}
	if len(r.Containers) == 0 {
		return ""
	}
	on := func(i int) bool {
		return slices.ContainsFunc(a.Containers, func(c vgpu.ContainerAssignment) bool { return slices.Contains(c.Devices, n.Devices()[i].ID) })
	}
	if refusal := s.cfg.Policy.Fit(n.Only(on), r); refusal != nil {
		return refusal.String()
	}
	for c := range a.Containers {
		for _, id := range a.Containers[c].Devices {
			i := n.Index(id)
			share, refusal := r.On(c, &n.Devices()[i])
			if refusal != nil || share != a.Containers[c].Share || !share.Use().Within(n.FreeFor(i, r)) {
				return fmt.Sprintf("device %s has %v free for %v", id, n.FreeFor(i, r), share)
			}
		}
	}
	if err := n.Add(*a); err != nil {
		return err.Error()
	}
	must.OK(t, n.Check())
	return ""
}

// together returns the required level at which the nodes of the members differ, "" for none.
func (s *site) together(places []vgpu.Assignment) string {
	for _, key := range s.want.Wishes.Required {
		at := slices.IndexFunc(s.Levels, func(l gang.Level) bool { return l.Key == key })
		if at < 0 {
			continue
		}
		used := map[int32]bool{}
		for _, a := range slices.Concat(places, s.want.Placed) {
			if a.Node != "" {
				i := slices.IndexFunc(s.Nodes, func(n *vgpu.Node) bool { return n.Name() == a.Node })
				used[s.Levels[at].Domain[i]] = true
			}
		}
		if len(used) > 1 || used[-1] {
			return fmt.Sprintf("level %s has members on %v", key, used)
		}
	}
	return ""
}

// TestBudgetLaw: a plan that may violate budgets costs no more than one that keeps them. If a violation costs more than
// all else together, it violates none that the other keeps, unless that spares pods that are slow to end: the room that
// they leave may come too late.
func TestBudgetLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSite(t, small, rapid.Bool().Draw(t, "gang"))
		high := rapid.Bool().Draw(t, "high price")
		if high {
			s.cfg.Prices.Violation = preemption.MaxPrice
		}
		s.cfg.KeepBudgets = true
		strict := mustPlan(t, s)
		s.cfg.KeepBudgets = false
		free := mustPlan(t, s)
		if strict.Places != nil && free.Cost.Compare(strict.Cost) > 0 {
			t.Fatalf("evicts %v at %+v, and could evict %v at %+v", names(free.Evict), free.Cost, names(strict.Evict), strict.Cost)
		}
		if high && strict.Places != nil && free.Cost.Slow == strict.Cost.Slow && (free.Cost != strict.Cost || free.Cost.Violations > 0) {
			t.Fatalf("evicts %v at %+v, and could keep budgets by %v", names(free.Evict), free.Cost, names(strict.Evict))
		}
		if strict.Places == nil && free.Places != nil && free.Cost.Violations == 0 {
			t.Fatalf("refused %+v, and %v violates nothing", *strict.Refused, names(free.Evict))
		}
	})
}

// TestOrderLaw: candidates, gangs, budgets, devices, members and domains in another order give the same plan.
func TestOrderLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSite(t, pick(t, "size", small, large), rapid.Bool().Draw(t, "gang"))
		other := s.shuffled(t)
		want, got := mustPlan(t, s), mustPlan(t, other)
		if diff := cmp.Diff(s.describe(&want), other.describe(&got)); diff != "" {
			t.Fatalf("another order gave another answer (-want +got):\n%s", diff)
		}
	})
}

// describe writes a plan without indices.
func (s *site) describe(plan *preemption.Plan) []string {
	pods := func(list []int) []string {
		out := make([]string, 0, len(list))
		for _, i := range list {
			out = append(out, s.who.Pods[i].Name)
		}
		slices.Sort(out)
		return out
	}
	var where []string
	for i := range plan.Places {
		line := fmt.Sprint(plan.Places[i].Pod, " → ", plan.Places[i].Node)
		for _, c := range plan.Places[i].Containers {
			line += fmt.Sprint(" ", c.Devices)
		}
		where = append(where, line)
	}
	slices.Sort(where)
	lines := append(slices.Clone(where), fmt.Sprintf("%+v %v", plan.Cost, plan.Stats.Cut), fmt.Sprint("waits for ", pods(plan.Waits)))
	for _, u := range plan.Evict {
		lines = append(lines, fmt.Sprint(u.Kind, u.Name, pods(u.Pods)))
	}
	if r := plan.Refused; r != nil {
		lines = append(lines, fmt.Sprint(r.Reason, r.Text, names(r.Would), pods(r.Guards), r.Budgets, r.Cut))
	}
	return lines
}

// shuffled returns the same question in another order.
func (s *site) shuffled(t *rapid.T) *site {
	o := *s
	o.cluster = testkit.Shuffled(t, s.cluster)
	o.Nodes = o.cluster.Nodes()
	want := *s.want
	o.want = &want
	want.Members, want.Placed = testkit.Permuted(t, s.want.Members), testkit.Permuted(t, s.want.Placed)
	gangs, budgets := testkit.Permuted(t, testkit.Ordinals(len(s.who.Gangs))), testkit.Permuted(t, testkit.Ordinals(len(s.who.Budgets)))
	o.who = preemption.Candidates{}
	for _, g := range gangs {
		o.who.Gangs = append(o.who.Gangs, s.who.Gangs[g])
	}
	for _, b := range budgets {
		o.who.Budgets = append(o.who.Budgets, s.who.Budgets[b])
	}
	for _, p := range testkit.Permuted(t, s.who.Pods) {
		if p.Gang >= 0 {
			p.Gang = slices.Index(gangs, p.Gang)
		}
		var of []int
		for _, b := range p.Budgets {
			of = append(of, slices.Index(budgets, b))
		}
		p.Budgets = of
		o.who.Pods = append(o.who.Pods, p)
	}
	return &o
}
