package elastic

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// decide lets the policy decide on a pool, and tries to place the new workers. If they do not fit, the policy decides again and knows
// it. If a job that waits does not fit, jobs that keep lent devices may be in its way: then nothing is lent, and the policy begins
// anew.
func (s *search) decide(p *pool) error {
	before := p.remember()
	for round := 1; ; round++ {
		s.stats.Rounds++
		t := &trial{search: s, pool: p, want: s.policy.decide(s, p), copies: maps.Clone(s.copies)}
		learned, err := t.place(round)
		switch {
		case err != nil:
			return err
		case t.crowded:
			p.lent, round = nil, 0
			p.restore(before)
		case !learned:
			t.reprieve()
			s.copies = t.copies
			t.explain()
			return nil
		}
	}
}

// remember returns what is known of the jobs of a pool that lends.
func (p *pool) remember() (known []entry) {
	if len(p.lent) == 0 {
		return nil
	}
	for _, e := range p.entries {
		known = append(known, *e)
		known[len(known)-1].rates = slices.Clone(e.rates)
	}
	return known
}

// restore forgets what was learned of the jobs since remember.
func (p *pool) restore(known []entry) {
	for i, e := range p.entries {
		*e = known[i]
	}
}

// trial is one decision of the policy, on copies of the nodes that it changes.
type trial struct {
	*search
	pool *pool
	want []int
	// copies are the changed nodes, by index.
	copies map[int]*vgpu.Node
	// after are the expected rates, larger the jobs that start or grow, in the order in which they do.
	after  []float64
	larger []int
	// crowded says that a job that waits does not fit while devices are lent.
	crowded bool
}

// node returns a copy of a node, to write.
func (t *trial) node(name string) *vgpu.Node {
	at := t.byName[name]
	if n := t.copies[at]; n == nil || n == t.search.copies[at] {
		t.copies[at] = t.view().Nodes[at].Clone()
	}
	return t.copies[at]
}

// view returns the cluster with the changed nodes.
func (t *trial) view() *gang.Cluster {
	c := *t.cluster
	c.Nodes = slices.Clone(c.Nodes)
	for at, n := range t.copies {
		c.Nodes[at] = n
	}
	return &c
}

// place removes the workers of the jobs that shrink, and tries to place those of the jobs that start or grow: first those
// that start, then those that gain the most for each GPU. It reports whether it learned that there is no room for one, or
// that it would be slower than expected, so that the policy must decide again. The last time it takes what fits.
func (t *trial) place(round int) (learned bool, err error) {
	t.after = make([]float64, len(t.want))
	for i, e := range t.pool.entries {
		n := t.want[i]
		for _, a := range e.Placed[min(n, len(e.Placed)):] {
			t.remove(e, a)
		}
		if n > len(e.Placed) {
			t.larger = append(t.larger, i)
		}
		if n > 0 {
			t.after[i] = e.rate(n)
		}
	}
	t.sortByGain(t.larger)
	for at, i := range t.larger {
		e := t.pool.entries[i]
		if at >= t.cfg.MaxPlacements { // no job shrinks for it
			t.keep(i)
			e.limit, e.blocked = min(e.limit, max(e.size, e.least())), e.waits()
			t.stats.Cut, learned = true, true
			continue
		}
		t.stats.Placed++
		places, err := t.extend(e, t.want[i])
		if err != nil {
			return false, err
		}
		more, err := t.accept(i, places, round)
		if err != nil {
			return false, err
		}
		learned = more || learned
	}
	return learned && round < maxRounds, nil
}

// keep leaves a job as it is.
func (t *trial) keep(i int) {
	e := t.pool.entries[i]
	t.want[i], t.after[i] = e.size, e.current
}

// accept takes the places that a job got, and reports whether they are fewer or worse than the policy expected.
func (t *trial) accept(i int, places []vgpu.Assignment, round int) (learned bool, err error) {
	e := t.pool.entries[i]
	n := len(e.Placed) + len(places)
	if n <= e.size {
		learned = t.want[i] > e.size // else workers that are missing have no room yet
		t.keep(i)
		if !learned {
			return false, nil
		}
		if e.waits() && len(t.pool.lent) > 0 {
			t.crowded = true
			return true, nil
		}
		if e.waits() && round < maxRounds-1 {
			if needs, err := t.needsMore(e); err != nil || needs {
				return true, err
			}
		}
		e.limit, e.blocked = min(e.limit, max(e.size, e.least())), e.waits()
		return true, nil
	}
	if n < t.want[i] {
		learned = true
		e.limit, t.want[i] = min(e.limit, n), n
	}
	expected := e.rate(n)
	t.after[i] = e.Curve.Rate(n, hosts(slices.Concat(e.Placed, places)))
	if t.policy.worth == nil {
		return learned, nil
	}
	if t.after[i] < expected {
		learned = true
		e.setRate(n, t.after[i])
	}
	if !e.waits() && !t.policy.worth(t.search, e, t.after[i]) {
		for _, a := range places {
			t.remove(e, a)
		}
		t.keep(i)
	}
	return learned, nil
}

// needsMore has other jobs free more for a job that waits, twice as much each time, and reports whether it does: the job would fit
// if all others had their least sizes. The shares that they free in the order of their ranks need not lie together.
func (t *trial) needsMore(e *entry) (bool, error) {
	if e.looked {
		e.scattered *= 2
		return e.scattered > 0, nil
	}
	e.looked = true
	u := &trial{search: t.search, pool: t.pool, copies: maps.Clone(t.search.copies)}
	least := vgpu.MilliGPU(0)
	for _, o := range t.pool.entries {
		if len(o.Placed) <= o.least() {
			continue
		}
		if least == 0 || o.unit < least {
			least = o.unit
		}
		for _, a := range o.Placed[o.least():] {
			u.remove(o, a)
		}
	}
	places, err := u.extend(e, e.least())
	if err != nil || len(places) == 0 {
		return false, err
	}
	e.scattered = least
	return least > 0, nil
}

// reprieve lets jobs that shrink keep the workers whose room no other job takes, those with the lowest ranks first: the job for which they were to
// leave may have found no places. A policy that does not weigh rates shrinks jobs by its own rules.
func (t *trial) reprieve() {
	if t.policy.worth == nil {
		return
	}
	left := t.pool.capacity
	for i, e := range t.pool.entries {
		left -= e.takes(t.want[i])
	}
	for i, e := range t.pool.entries {
		for n := t.want[i]; n < min(e.size, len(e.Placed)); {
			from := n
			n = min(e.above(n), len(e.Placed))
			size := min(e.above(n-1), e.size) // workers that are missing come back
			if e.takes(size-from) > left || e.rate(size) <= t.after[i] || !t.restore(e, e.Placed[from:n]) {
				break
			}
			left -= e.takes(size - from)
			t.want[i], t.after[i] = size, e.rate(size)
		}
	}
}

// restore gives back the places of workers that were removed, all or none, and reports whether they are free.
func (t *trial) restore(e *entry, places []vgpu.Assignment) bool {
	for i, a := range places {
		n := t.node(a.Node)
		if !e.Worker.Request.Host.Within(n.Room()) || n.Add(a) != nil {
			for _, b := range places[:i] {
				t.remove(e, b)
			}
			return false
		}
		n.SetRoom(n.Room().Less(e.Worker.Request.Host))
	}
	return true
}

// sortByGain orders jobs that start or grow: those that start in the order of the pool, then the others by the progress
// that they gain for each GPU.
func (t *trial) sortByGain(list []int) {
	gain := func(i int) float64 {
		e := t.pool.entries[i]
		if e.waits() {
			return 0
		}
		return (e.rate(t.want[i]) - e.current) / e.base * float64(e.least()) / float64(max(1, t.want[i]-e.size))
	}
	slices.SortStableFunc(list, func(a, b int) int {
		x, y := t.pool.entries[a], t.pool.entries[b]
		switch {
		case x.waits() && y.waits():
			return 0
		case x.waits() != y.waits():
			return map[bool]int{true: -1, false: 1}[x.waits()]
		}
		return cmp.Or(cmp.Compare(gain(b), gain(a)), first(x, y))
	})
}

// extend places workers beside those that a job has, until it has a size, or the next smaller legal size for which there
// is room, and books them. It returns their places, none where there is no room.
func (t *trial) extend(e *entry, size int) ([]vgpu.Assignment, error) {
	g := &gang.Group{Name: e.Name, Placed: e.Placed, MinCount: max(e.least(), len(e.Placed)), Wishes: e.Wishes, Losses: e.Losses}
	for rank := len(e.Placed); rank < size; rank++ {
		m := e.Worker
		m.Rank = rank
		m.Request.Variants = variantsFor(&m.Request, t.pool.device.Model)
		m.Request.UID, m.Request.Pod = vgpu.UID(fmt.Sprintf("%s/new-%d", e.Name, rank)), fmt.Sprintf("%s-%d", e.Name, rank)
		m.Request.Priority = e.Priority
		g.Members = append(g.Members, m)
	}
	plan, err := gang.Place(t.view(), g, gang.Config{SkipExplanation: true})
	if err != nil || plan.Refused != nil {
		return nil, err
	}
	places := slices.DeleteFunc(plan.Places, func(a vgpu.Assignment) bool { return a.Node == "" })
	legal, some := e.sizeBelow(len(e.Placed) + len(places))
	if !some || legal <= len(e.Placed) {
		return nil, nil
	}
	places = places[:legal-len(e.Placed)]
	for _, a := range places {
		n := t.node(a.Node)
		if err := n.Add(a); err != nil {
			return nil, err
		}
		n.SetRoom(n.Room().Less(e.Worker.Request.Host))
	}
	return places, nil
}

// remove gives back what a worker has: its devices, and its part of the host.
func (t *trial) remove(e *entry, a vgpu.Assignment) {
	n := t.node(a.Node)
	n.Remove(a.UID)
	n.SetRoom(n.Room().Plus(e.Worker.Request.Host))
}

// variantsFor returns the variants of a request on one model only.
func variantsFor(r *vgpu.Request, model string) []vgpu.Variant {
	for _, v := range r.Variants {
		if v.Model == model {
			return []vgpu.Variant{v}
		}
	}
	return []vgpu.Variant{{Model: model}}
}

// hosts counts the nodes of places, at least 1.
func hosts(places []vgpu.Assignment) int {
	names := make([]string, 0, len(places))
	for i := range places {
		names = append(names, places[i].Node)
	}
	slices.SortFunc(names, strings.Compare)
	return max(1, len(slices.Compact(names)))
}

// explain fills in the targets, and the order of the changes.
func (t *trial) explain() {
	for i, e := range t.pool.entries {
		if t.want[i] < len(e.Placed) {
			t.smaller = append(t.smaller, e.at)
		}
	}
	for _, i := range t.larger {
		if e := t.pool.entries[i]; t.want[i] > len(e.Placed) {
			t.search.larger = append(t.search.larger, e.at)
		}
	}
	starts, faster := "", ""
	for i, e := range t.pool.entries {
		switch {
		case e.waits() && t.want[i] > 0 && starts == "":
			starts = e.Name
		case !e.waits() && t.want[i] > e.size && faster == "":
			faster = e.Name
		}
	}
	idle, left := t.pool.free, t.pool.capacity+t.pool.loans()
	for i, e := range t.pool.entries {
		left -= e.takes(t.want[i])
	}
	for i, e := range t.pool.entries {
		n := t.want[i]
		e.target = Target{
			Job: e.Name, Model: t.pool.device.Model, Now: len(e.Placed), Workers: max(n, e.least()), Before: e.current, After: t.after[i],
		}
		switch {
		case e.waits() && n == 0:
			e.target.Why = Waits
		case e.waits():
			e.target.Why = Starts
		case n > e.size && idle >= e.takes(n-e.size):
			e.target.Why = Idle
		case n > e.size && e.lentFor > 0:
			e.target.Why = Lent
		case n > e.size:
			e.target.Why = Faster
		case n < e.size && starts != "":
			e.target.Why, e.target.For = ForWaiting, starts
		case n < e.size && t.pool.free < 0:
			e.target.Why = ForReserved
		case n < e.size:
			e.target.Why, e.target.For = ForFaster, faster
		case n == e.most():
			e.target.Why = AtMost
		case t.settles(e):
			e.target.Why = Settling
		case e.limit <= n || e.takes(e.above(n)-n) > left:
			e.target.Why = NoRoom
		default:
			e.target.Why = Steady
		}
	}
}
