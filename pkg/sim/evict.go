package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// rank returns the priority of a job, or of the gang that it is a member of.
func (e *engine) rank(job int) int32 { return e.setup.Jobs[job].Request.Priority }

// preempt evicts others for a refused job, or gang. The result says whether it has its place now: else it waits for
// them to leave, or there are no victims.
func (e *engine) preempt(job int) (bool, error) {
	if may, err := e.mayPreempt(job); err != nil || !may {
		return false, err
	}
	nodes := e.mayHelp(job)
	if len(nodes) == 0 {
		return false, nil
	}
	c := e.candidates(e.rank(job), nodes)
	least, err := e.leastLost(job, c) // before the in-tree plugin, which takes its victims out of the candidates
	if err != nil {
		return false, err
	}
	d, err := e.decide(job, c)
	if err != nil {
		return false, err
	}
	if d == nil {
		e.helpless[e.kinds[job]] = e.changes
		return false, e.giveUp(job)
	}
	delete(e.helpless, e.kinds[job])
	d.Job, d.At, d.Lost, d.Violations = job, e.sample.At, e.wouldLoseAll(d), e.violations(d.Evicted)
	d.LeastLost = least
	if e.setup.Preemption.Compare {
		if err := e.compare(job, c, d); err != nil {
			return false, err
		}
	}
	return e.execute(d)
}

// compare notes what others would have lost for a job.
func (e *engine) compare(job int, c *candidates, d *decision) (err error) {
	other := d
	if e.setup.Preemption.Policy != PreemptInTree {
		if other, err = e.decideInTree(job, c); err != nil {
			return err
		}
	}
	d.InTreeLost = -1
	if other != nil && other.Victims() > 0 {
		d.InTreeLost = e.wouldLoseAll(other)
	}
	return nil
}

// wouldLoseAll returns the work that a decision undoes.
func (e *engine) wouldLoseAll(d *decision) int64 {
	lost := int64(0)
	for _, unit := range append(slices.Clone(d.Evicted), d.Fallen) {
		for _, victim := range unit {
			if g := e.history.groupOf[victim]; g != nil && g.sizing != nil && !slices.Contains(d.broken, g) {
				continue // its gang goes on with its work
			}
			lost += e.wouldLose(victim)
		}
	}
	return lost
}

// mayPreempt reports whether a search for victims makes sense: there are pods of a lower priority, and for a gang the
// last search was not a moment ago.
func (e *engine) mayPreempt(job int) (bool, error) {
	g := e.history.groupOf[job]
	if g != nil {
		g.asks = false
	}
	if e.setup.Preemption.Policy == PreemptNobody {
		return false, nil
	}
	if !slices.ContainsFunc(e.live, func(other int) bool { return e.rank(other) < e.rank(job) }) {
		return false, nil
	}
	if g == nil || e.setup.Preemption.Policy != PreemptTandem { // the stock scheduler does not wait
		return true, nil
	}
	a, err := e.step(reservation.RoomWanted{Ref: g.ref})
	g.asks = a.refused && g.asked != e.changes
	return !a.refused, err
}

// asking reports whether the run searches victims for a gang again, and may find some.
func (e *engine) asking() bool {
	return slices.ContainsFunc(e.late, func(g *group) bool { return g.asks && (e.setup.Queue != FIFO || g.jobs[0] == e.waiting[0]) })
}

// giveUp notes that a job, or a gang, has no victims now.
func (e *engine) giveUp(job int) error {
	g := e.history.groupOf[job]
	if g == nil {
		return nil
	}
	g.asked = e.changes
	_, err := e.step(reservation.RoomGivenUp{Ref: g.ref})
	return err
}

// violations adds up, over the budgets, the victims beyond what each allows.
func (e *engine) violations(units [][]int) int {
	victims := map[*Budget]int{}
	for _, unit := range units {
		for _, job := range unit {
			if b := e.setup.Jobs[job].Budget; b != nil {
				victims[b]++
			}
		}
	}
	sum, missing := 0, e.missing()
	for b, count := range victims {
		sum += max(0, count-max(0, b.MaxUnavailable-missing[b]))
	}
	return sum
}

// execute evicts, and keeps the room for the preemptor until all have left. The result says whether the preemptor has
// its place.
func (e *engine) execute(d *decision) (bool, error) {
	if len(d.Waits) == 0 && d.Victims() == 0 { // a gang of unlike members whose places Place did not find
		return true, e.begin(d.Job, d.places)
	}
	e.history.Preemptions = append(e.history.Preemptions, d.Preemption)
	n := &nomination{preemption: len(e.history.Preemptions) - 1, job: d.Job, at: e.begun(d.Job), places: d.places}
	n.waits = slices.Clone(d.Waits)
	for _, unit := range append(slices.Clone(d.Evicted), d.Fallen) {
		n.waits = append(n.waits, unit...)
	}
	atOnce := e.setup.Preemption.Grace == 0 && len(d.Waits) == 0
	if !atOnce {
		if err := e.keep(n); err != nil {
			return false, err
		}
	}
	for _, g := range d.broken {
		g.broken = true
		e.history.Gangs[g.number].Evictions++
	}
	e.history.nominations = append(e.history.nominations, n)
	e.log(d.Job, preempts)
	for _, victim := range n.waits[len(d.Waits):] {
		e.evict(victim)
	}
	for _, g := range e.elastic {
		if slices.ContainsFunc(n.waits[len(d.Waits):], func(victim int) bool { return e.history.groupOf[victim] == g }) {
			if err := e.resized(g); err != nil {
				return false, err
			}
		}
	}
	if atOnce {
		return true, e.atOnce(n)
	}
	return false, nil
}

// atOnce lets the victims leave without grace, and gives their room to the preemptor.
func (e *engine) atOnce(n *nomination) error {
	for _, victim := range n.waits {
		e.undue(victim)
		if err := e.leave(victim); err != nil {
			return err
		}
	}
	n.waits = nil
	return e.begin(n.job, n.places)
}

// endsSoon reports whether a placed job ends by itself as soon as an eviction would end it, and says so. The stock
// scheduler takes no account of that.
func (e *engine) endsSoon(job int) bool {
	return e.setup.Preemption.Policy == PreemptTandem && e.setup.Jobs[job].DeclaresEnd && !e.leaving[job] &&
		e.history.Outcomes[job].Ended <= e.after(min(e.setup.Preemption.Grace, longestAwaited-e.setup.Preemption.Grace))
}

// longestAwaited is how long a preemptor waits at most for a pod that ends: kube.LeavingWithin.
const longestAwaited = 10 * time.Minute

// goes reports whether a job is about to leave its place, as a preemptor of a priority sees it. The room of a job of the
// same or a higher priority that ends soon goes to whoever is first then.
func (e *engine) goes(job int, priority int32) bool {
	return e.leaving[job] || e.rank(job) < priority && e.endsSoon(job)
}

// evict makes a pod leave.
func (e *engine) evict(job int) {
	o := &e.history.Outcomes[job]
	o.Evictions++
	if g := e.history.groupOf[job]; g == nil || g.sizing == nil {
		o.Lost += e.wouldLose(job)
		e.kept[job] = e.saved(job)
	} else if g.broken {
		o.Lost += e.wouldLose(job)
	}
	e.leaving[job] = true
	e.changed(e.cluster.Node(o.Assignment.Node))
	e.undue(job)
	o.Ended = e.after(e.setup.Preemption.Grace)
	e.due(departure{o.Ended, job})
	e.log(job, evicts)
}

// due notes when a pod leaves.
func (e *engine) due(d departure) {
	i, _ := slices.BinarySearchFunc(e.running, d, later)
	e.running = slices.Insert(e.running, i, d)
}

// undue takes a note of due back, if there is one.
func (e *engine) undue(job int) {
	if i, found := slices.BinarySearchFunc(e.running, departure{e.history.Outcomes[job].Ended, job}, later); found {
		e.running = slices.Delete(e.running, i, i+1)
	}
}

// after returns the time that is so much later than now, never beyond what a time can be.
func (e *engine) after(d time.Duration) time.Duration {
	if e.sample.At > never-d {
		return never
	}
	return e.sample.At + d
}

// later orders departures, the first to end last.
func later(have, want departure) int {
	return cmp.Or(cmp.Compare(want.at, have.at), cmp.Compare(want.job, have.job))
}

// leave takes an evicted pod off its node. The pod comes back to the queue; the pods of a whole gang come back with the
// last member.
func (e *engine) leave(job int) error {
	o := &e.history.Outcomes[job]
	e.vacate(job)
	delete(e.leaving, job)
	e.freed = true
	e.awaitNoMore(job)
	o.Started, o.Ended, o.Allocated, o.Assignment = 0, 0, 0, vgpu.Assignment{}
	e.log(job, leaves)
	g := e.history.groupOf[job]
	switch {
	case g == nil:
		o.State, e.since[job] = Waiting, e.sample.At
		e.comeBack(job)
	case !g.broken && g.sizing != nil:
		o.State = Held
		return e.tell(g)
	case !g.broken:
		o.State = Dropped
		e.sample.Dropped++
		return e.tell(g)
	case !slices.ContainsFunc(g.jobs, func(member int) bool { return slices.Contains(e.live, member) }):
		return e.regroup(g)
	default:
		o.State = Waiting
	}
	return nil
}

// awaitNoMore tells the nominations that a job has left.
func (e *engine) awaitNoMore(job int) {
	for _, n := range e.nominations {
		n.waits = slices.DeleteFunc(n.waits, func(other int) bool { return other == job })
	}
}

// regroup brings an evicted gang back to the queue, with the members that it did without.
func (e *engine) regroup(g *group) error {
	for rank, job := range g.jobs {
		if e.history.Outcomes[job].State == Dropped {
			e.sample.Dropped--
		}
		e.history.Outcomes[job].State, e.since[job] = Waiting, e.sample.At
		if rank >= len(g.askers()) {
			e.history.Outcomes[job].State = Held
		}
		e.kept[job] = e.kept[g.jobs[0]]
	}
	g.broken, g.since, g.seen = false, e.sample.At, -1
	if g.sizing != nil {
		g.sizing.restart(e.sample.At)
	}
	o := &e.history.Gangs[g.number]
	o.State, o.Started, o.Ended, o.Spread = Waiting, 0, 0, nil
	e.comeBack(g.jobs[0])
	return e.forget(g)
}

func (e *engine) comeBack(job int) {
	e.back = append(e.back, job)
	e.log(job, returns)
}
