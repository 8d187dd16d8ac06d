package preemption_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// victimSet is one set of units with its cost, as the twin computes it.
type victimSet struct {
	units []preemption.Unit
	cost  preemption.Cost
}

func (c *victimSet) pods() (all []int) {
	for i := range c.units {
		all = append(all, c.units[i].Pods...)
	}
	return all
}

func names(units []preemption.Unit) []string {
	list := make([]string, 0, len(units))
	for i := range units {
		list = append(list, units[i].Name)
	}
	slices.Sort(list)
	return list
}

// may reports whether a pod is a victim by itself: of a lower priority, not leaving, and unguarded unless guards are lifted.
func (s *site) may(i int, lifted bool) bool {
	p := &s.who.Pods[i]
	return p.Priority < s.want.Members[0].Request.Priority && !p.Leaving && (lifted || p.Guard == "")
}

// running lists the members of a gang that do not leave.
func (s *site) running(g int) (list []int) {
	for i := range s.who.Pods {
		if s.who.Pods[i].Gang == g && !s.who.Pods[i].Leaving {
			list = append(list, i)
		}
	}
	return list
}

// choices returns all legal sets of units, the cheapest first.
func (s *site) choices(lifted bool) []victimSet {
	all := []victimSet{{}}
	add := func(options [][]preemption.Unit) {
		var next []victimSet
		for _, c := range all {
			for _, units := range options {
				next = append(next, victimSet{units: slices.Concat(c.units, units)})
			}
		}
		all = next
	}
	for i := range s.who.Pods {
		if s.who.Pods[i].Gang < 0 && s.may(i, lifted) {
			add([][]preemption.Unit{nil, {{Kind: preemption.Single, Name: s.who.Pods[i].Name, Pods: []int{i}}}})
		}
	}
	for g := range s.who.Gangs {
		add(s.ofGang(g, lifted))
	}
	by := s.pricing(lifted)
	for i := range all {
		all[i].cost = s.costBy(by, all[i].units)
	}
	slices.SortFunc(all, func(a, b victimSet) int {
		return cmp.Or(dearer(a.cost, b.cost), slices.Compare(names(a.units), names(b.units)))
	})
	return all
}

// ofGang lists what may be evicted of a gang: some of its surplus, or all of it.
func (s *site) ofGang(g int, lifted bool) [][]preemption.Unit {
	running := s.running(g)
	surplus := len(running) - s.who.Gangs[g].MinCount
	options, whole := [][]preemption.Unit{nil}, len(running) > 0
	for _, i := range running {
		if !s.may(i, lifted) {
			whole = false
			continue
		}
		for _, units := range options {
			if len(units) < surplus {
				options = append(options, append(slices.Clone(units), preemption.Unit{Kind: preemption.Surplus, Name: s.who.Pods[i].Name, Pods: []int{i}}))
			}
		}
	}
	if whole {
		options = append(options, []preemption.Unit{{Kind: preemption.Whole, Name: s.who.Gangs[g].Name, Pods: running}})
	}
	return options
}

// evictable reports whether a candidate is in some legal set of units.
func (s *site) evictable(i int, lifted bool) bool {
	g := s.who.Pods[i].Gang
	if !s.may(i, lifted) || g < 0 {
		return s.may(i, lifted)
	}
	for _, units := range s.ofGang(g, lifted) {
		for u := range units {
			if slices.Contains(units[u].Pods, i) {
				return true
			}
		}
	}
	return false
}

// pricing is the twin's prices of candidates. It computes each from the definition, and remembers them.
type pricing struct {
	s      *site
	lifted bool
	known  map[int]priced
	below  map[int][]int
}

// priced is what is known of a candidate.
type priced struct {
	steps          int
	returns, price int64
}

func (s *site) pricing(lifted bool) *pricing {
	return &pricing{s: s, lifted: lifted, known: map[int]priced{}, below: map[int][]int{}}
}

// lower lists the evictable candidates of a lower priority than i.
func (p *pricing) lower(i int) (list []int) {
	if list, known := p.below[i]; known {
		return list
	}
	for o := range p.s.who.Pods {
		if p.s.evictable(o, p.lifted) && p.s.who.Pods[o].Priority < p.s.who.Pods[i].Priority {
			list = append(list, o)
		}
	}
	p.below[i] = list
	return list
}

// steps counts the lower priorities.
func (p *pricing) steps(i int) int {
	seen := map[int32]bool{}
	for _, o := range p.lower(i) {
		seen[p.s.who.Pods[o].Priority] = true
	}
	return len(seen)
}

// returns is the least price of what a candidate evicts when it comes back: whole offers by their price for a
// thousandth of a GPU, the last one in part.
func (p *pricing) returns(i int) (price int64) {
	type offer struct{ rate, share, price int64 }
	var offers []offer
	seen := map[int]bool{}
	total := int64(0)
	add := func(share, price int64) {
		if share > 0 {
			offers = append(offers, offer{price / share, share, price})
			total += share
		}
	}
	for _, o := range p.lower(i) {
		v := &p.s.who.Pods[o]
		switch running := p.s.running(v.Gang); {
		case v.Gang < 0:
			add(int64(v.Share), p.s.price(p, []preemption.Unit{{Kind: preemption.Single, Pods: []int{o}}}))
		case len(running) > p.s.who.Gangs[v.Gang].MinCount:
			add(int64(v.Share), p.s.price(p, []preemption.Unit{{Kind: preemption.Surplus, Pods: []int{o}}}))
		case !seen[v.Gang]:
			share, below := int64(0), true
			for _, m := range running {
				share += int64(p.s.who.Pods[m].Share)
				below = below && p.s.who.Pods[m].Priority < p.s.who.Pods[i].Priority
			}
			if seen[v.Gang] = true; below {
				add(share, p.s.price(p, []preemption.Unit{{Kind: preemption.Whole, Pods: running}}))
			}
		}
	}
	left := int64(p.s.who.Pods[i].Share)
	if p.s.who.Pods[i].NeverPreempts || left > total {
		return 0
	}
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.rate, b.rate), cmp.Compare(a.share, b.share), cmp.Compare(a.price, b.price))
	})
	for _, o := range offers {
		if o.share >= left {
			return price + o.rate*left
		}
		price, left = price+o.price, left-o.share
	}
	return price
}

// of is what one victim costs without budgets and gangs.
func (p *pricing) of(i int) priced {
	if known, ok := p.known[i]; ok {
		return known
	}
	v, prices := &p.s.who.Pods[i], &p.s.cfg.Prices
	c := priced{steps: p.steps(i), returns: p.returns(i)}
	c.price = v.Lost + c.returns + int64(c.steps)*prices.Step
	if v.Serving {
		c.price += prices.Serving
	}
	p.known[i] = c
	return c
}

func (s *site) price(p *pricing, units []preemption.Unit) int64 { return s.costBy(p, units).Price }

// cost adds up what Cost says.
func (s *site) cost(units []preemption.Unit) preemption.Cost {
	return s.costBy(s.pricing(false), units)
}

func (s *site) costBy(by *pricing, units []preemption.Unit) preemption.Cost {
	var c preemption.Cost
	counts := make([]int, len(s.who.Budgets))
	for i := range units {
		if units[i].Kind == preemption.Whole {
			c.Broken++
		}
		if units[i].Kind != preemption.Surplus {
			c.Price += int64(len(units[i].Pods)) * s.cfg.Prices.Victim
		}
		for _, v := range units[i].Pods {
			p := &s.who.Pods[v]
			c.Victims++
			c.Lost += p.Lost
			of := by.of(v)
			c.Returns += of.returns
			c.Steps += of.steps
			c.Price += of.price
			for _, b := range p.Budgets {
				counts[b]++
			}
			if p.Serving {
				c.Serving++
			}
			if p.Slow {
				c.Slow++
			}
		}
	}
	for b, n := range counts {
		c.Violations += max(0, n-s.who.Budgets[b].Allowed)
	}
	c.Price += int64(c.Broken)*s.cfg.Prices.Broken + int64(c.Violations)*s.cfg.Prices.Violation
	return c
}

// dearer compares costs: late room, then the price, then the number of victims.
func dearer(a, b preemption.Cost) int {
	return cmp.Or(cmp.Compare(a.Slow, b.Slow), cmp.Compare(a.Price, b.Price), cmp.Compare(a.Victims, b.Victims))
}

// cheapest returns the first of the sets that makes room, nil where none does.
func (s *site) cheapest(t *rapid.T, lifted, keep bool) *victimSet {
	all := s.choices(lifted)
	for i := range all {
		if keep && all[i].cost.Violations > 0 {
			continue
		}
		if s.fits(t, all[i].pods()) {
			return &all[i]
		}
	}
	return nil
}

// tally counts what a property has met, so that one that meets nothing of a kind fails.
type tally map[string]int

func (c tally) require(t *testing.T, least int, kinds ...string) {
	t.Helper()
	for _, k := range kinds {
		if c[k] < least && !t.Failed() {
			t.Errorf("met %q %d times of %v, want at least %d", k, c[k], map[string]int(c), least)
		}
	}
}

// TestPodTwinProperty: for a pod, the plan is the cheapest set of units that makes room, of all that there are, or it is
// refused for the reason that they give.
func TestPodTwinProperty(t *testing.T) {
	met := tally{}
	rapid.Check(t, func(t *rapid.T) { twin(t, randomSite(t, small, false), met) })
	met.require(t, 1, "no victim", "Single", "NeverHelps")
}

// TestGangTwinProperty is TestPodTwinProperty for gangs, which fit where gang.Place says so.
func TestGangTwinProperty(t *testing.T) {
	met := tally{}
	rapid.Check(t, func(t *rapid.T) { twin(t, randomSite(t, small, true), met) })
	met.require(t, 1, "no victim", "Single", "NeverHelps")
}

// TestTwinMeetsAllProperty: among what is drawn are all kinds of units and refusals.
func TestTwinMeetsAllProperty(t *testing.T) {
	met := tally{}
	rapid.Check(t, func(t *rapid.T) { twin(t, randomSite(t, small, rapid.Bool().Draw(t, "gang")), met) })
	if t.Logf("%v", met); met["asked"] >= 1000 {
		met.require(t, 5, "no victim", "Single", "Surplus", "Whole", "several", "violation", "NeverHelps", "Guarded", "Budgeted")
	}
}

// twin compares a plan with the result of a search of all sets.
func twin(t *rapid.T, s *site, met tally) {
	met["asked"]++
	plan := mustPlan(t, s)
	want := s.cheapest(t, false, s.cfg.KeepBudgets)
	if want == nil {
		s.refused(t, &plan, met)
		return
	}
	if plan.Refused != nil {
		t.Fatalf("refused %+v, the twin evicts %v", *plan.Refused, names(want.units))
	}
	if plan.Stats.Cut {
		t.Fatalf("the search of a small cluster was cut: %+v", plan.Stats)
	}
	if got := names(plan.Evict); !slices.Equal(got, names(want.units)) || plan.Cost != want.cost {
		t.Fatalf("evicts %v at %+v, the twin %v at %+v", got, plan.Cost, names(want.units), want.cost)
	}
	met.note(&plan)
}

func (c tally) note(plan *preemption.Plan) {
	if len(plan.Evict) == 0 {
		c["no victim"]++
	}
	if len(plan.Evict) > 1 {
		c["several"]++
	}
	if plan.Cost.Violations > 0 {
		c["violation"]++
	}
	for i := range plan.Evict {
		c[[]string{"Single", "Surplus", "Whole"}[plan.Evict[i].Kind]]++
	}
}

// refused compares a refusal with the result of a search of all sets, without guards and budgets.
func (s *site) refused(t *rapid.T, plan *preemption.Plan, met tally) {
	if plan.Refused == nil {
		t.Fatalf("evicts %v, the twin finds no victims", names(plan.Evict))
	}
	reason, would := preemption.NeverHelps, s.cheapest(t, false, false)
	if would != nil {
		reason = preemption.Budgeted
	} else if would = s.cheapest(t, true, false); would != nil {
		reason = preemption.Guarded
	}
	r := plan.Refused
	met[string(r.Reason)]++
	if r.Reason != reason {
		t.Fatalf("refused for %s (%s), the twin says %s", r.Reason, r.Text, reason)
	}
	if would == nil {
		would = &victimSet{}
	}
	if !slices.Equal(names(r.Would), names(would.units)) {
		t.Fatalf("refused for %s, would evict %v, the twin %v", reason, names(r.Would), names(would.units))
	}
	var guards []int
	for _, i := range would.pods() {
		if s.who.Pods[i].Guard != "" {
			guards = append(guards, i)
		}
	}
	slices.Sort(guards)
	if !slices.Equal(guards, r.Guards) || strings.TrimSpace(r.Text) == "" || (reason == preemption.Budgeted) != (len(r.Budgets) > 0) {
		t.Fatalf("refusal %+v, the twin has the guards %v", *r, guards)
	}
}
