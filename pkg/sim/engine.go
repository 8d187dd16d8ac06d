package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Run plays the jobs until the last of them has arrived and the last that ends has ended. Pods that wait for room then
// wait for ever. The error is a broken setup, or a broken ledger.
func Run(s Setup) (*History, error) {
	e, err := newEngine(s)
	if err != nil {
		return nil, fmt.Errorf("run simulation: %w", err)
	}
	for {
		at, more := e.next()
		if !more {
			return e.history, nil
		}
		if err := e.instant(at); err != nil {
			return nil, fmt.Errorf("run simulation: at %v: %w", at, err)
		}
	}
}

// engine is the state of a run.
type engine struct {
	setup    *Setup
	cluster  *vgpu.Cluster
	measure  *measure
	learner  *fragmentation.Learner // nil with given usual requests
	usual    *fragmentation.Mix     // the usual requests that decisions go by
	policy   placement.Policy
	ranking  *placement.Ranking
	places   map[*vgpu.Node]int  // of the nodes in the cluster's list
	entrants []placement.Entrant // the nodes with their states, for the ranking
	history  *History
	arrivals []int       // jobs in the order of arrival that are still to come; of a gang the first member
	running  []departure // pods that will end, or leave, the first last
	live     []int       // jobs that have places, in no order that matters
	// followers are the jobs that come after others, by the UIDs of these.
	followers map[vgpu.UID][]int
	waiting   []int        // jobs by priority, then in the order in which they came; of a gang the first member
	late      []*group     // the gangs among those that wait
	elastic   []*group     // the elastic gangs that have arrived and have not ended, by priority, then as they came
	levels    []gang.Level // all that gangs wish for, for the sizes of elastic ones
	machine   machine      // the rooms of gangs
	kinds     []int        // per job, equal for requests that are alike, and for gangs that are
	came      int          // jobs so far
	sample    Sample       // the present
	self      [1]int       // what unit returns for a single pod

	kept    []time.Duration // per job, the work that it need not do again
	since   []time.Duration // per job, when it began to wait
	leaving map[int]bool    // evicted jobs that still have their places
	back    []int           // those that come back to the queue next
	freed   bool            // whether room came free since the last try of those that wait: an evicted pod left, or a drain began
	// nominations in the order of their decisions.
	nominations []*nomination

	decided time.Duration    // the last decision on sizes
	lengths *elastic.Lengths // how long elastic gangs take, nil where the policy of sizes does not go by that
	stirred time.Duration    // the last arrival, start or end of a pod, changes of sizes aside

	changes  int         // of nodes so far
	releases int         // how often room came free so far
	lastly   []int       // per node, the number of its last change
	helpless map[int]int // by kind, the number of changes at which single pods had no possible victims
}

// departure is the end of a running pod.
type departure struct {
	at  time.Duration
	job int
}

func newEngine(s Setup) (*engine, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	h := &History{setup: s, Outcomes: make([]Outcome, len(s.Jobs))}
	c, err := h.start()
	if err != nil {
		return nil, err
	}
	h.assemble(c)
	h.setup.Elastic = s.Elastic.withDefaults()
	e := &engine{levels: levelsOfAll(h.groups), setup: &h.setup, cluster: c, policy: s.Policy, history: h, kinds: kindsOf(h)}
	e.machine = newMachine(e.setup, h.groups)
	if s.Elastic.NeedsRemaining() {
		if e.lengths, err = elastic.NewLengths(); err != nil {
			return nil, err
		}
	}
	h.Capacity = Capacity(c.Nodes())
	h.Samples = make([]Sample, 0, len(s.Jobs)+1)
	e.kept, e.since, e.leaving = make([]time.Duration, len(s.Jobs)), make([]time.Duration, len(s.Jobs)), map[int]bool{}
	e.lastly, e.helpless = make([]int, len(c.Nodes())), map[int]int{}
	e.entrants, e.places = make([]placement.Entrant, len(c.Nodes())), make(map[*vgpu.Node]int, len(c.Nodes()))
	for i, n := range c.Nodes() {
		e.entrants[i].Node, e.places[n] = n, i
	}
	e.measure = newMeasure(c)
	e.expect()
	for i := range s.Jobs {
		r := &s.Jobs[i].Request
		e.since[i] = s.Jobs[i].Arrive
		h.Outcomes[i] = Outcome{UID: r.UID, Pod: r.Pod, Priority: r.Priority, Arrived: s.Jobs[i].Arrive, Asked: e.measure.asked(r)}
		if g := h.groupOf[i]; s.Jobs[i].At == nil && (g == nil || g.jobs[0] == i) {
			e.arrivals = append(e.arrivals, i)
		}
	}
	slices.SortStableFunc(e.arrivals, func(a, b int) int { return cmp.Compare(s.Jobs[a].Arrive, s.Jobs[b].Arrive) })
	e.holdFollowers()
	h.initial = allocatedOn(c.Nodes()...)
	e.sample.Allocated = h.initial
	return e, e.populate()
}

// halfLife is the time after which a pod that arrived counts half among the usual ones: the default of the scheduler.
const halfLife = 24 * time.Hour

// expect sets the usual requests: those of the setup, else those of the pods that arrived, none yet.
func (e *engine) expect() {
	all := e.setup.Mix
	if all == nil {
		e.learner = fragmentation.NewLearner(int64(halfLife / time.Second))
		if e.setup.RenewMix > 0 {
			e.learner.RenewEvery(int64(e.setup.RenewMix / time.Second))
		}
		all = e.learner.Usual(0)
	}
	e.use(all)
}

// use makes all decisions and measurements go by the usual requests, from now on.
func (e *engine) use(all *fragmentation.Mix) {
	e.usual = all
	e.policy = e.setup.Policy.With(all, e.setup.Seed)
	e.ranking = placement.NewRanking(e.policy)
	for i := range e.entrants {
		e.entrants[i].State = placement.State{}
	}
	e.measure.use(all)
}

// namespaceOf returns the namespace of a pod, "" where its name has none.
func namespaceOf(r *vgpu.Request) string { return r.Pod[:max(0, strings.IndexByte(r.Pod, '/'))] }

// learn notes a pod that arrives.
func (e *engine) learn(r *vgpu.Request) {
	if e.learner == nil {
		return
	}
	now := int64(e.sample.At / time.Second)
	e.learner.Observe(namespaceOf(r), fragmentation.KindOf(r), now)
	if all := e.learner.Usual(now); all != e.usual {
		e.use(all)
	}
}

// unit returns the jobs of a placement: an arriving job itself, or the members of its gang. The slice is valid until
// the next call.
func (e *engine) unit(job int) []int {
	if g := e.history.groupOf[job]; g != nil {
		return g.jobs
	}
	e.self[0] = job
	return e.self[:]
}

// next returns the time of the next instant, and whether there is one.
func (e *engine) next() (time.Duration, bool) {
	at, more := never, false
	if len(e.arrivals) > 0 {
		at, more = e.setup.Jobs[e.arrivals[0]].Arrive, true
	}
	if len(e.running) > 0 {
		at, more = min(at, e.running[len(e.running)-1].at), true
	}
	if decision, some := e.nextDecision(); some {
		at, more = min(at, decision), true
	}
	if due := e.nextDue(); due.first != nil && (more || e.asking()) { // else what is due changes nothing
		at, more = min(at, due.look), true
	}
	return at, more
}

// log notes what happens to a job now.
func (e *engine) log(job int, w what) {
	e.history.log = append(e.history.log, entry{job, w, e.sample.At})
}

// instant plays all that happens at one time: ends, then those for whom others have left, then those that wait, then gangs for
// which something is due, then arrivals.
func (e *engine) instant(at time.Duration) error {
	e.sample.At = at
	before := len(e.history.log)
	ended, err := e.endDue(at)
	if err != nil {
		return err
	}
	e.rejoin()
	settled, err := e.settle()
	if err != nil {
		return err
	}
	if ended || settled {
		if err := e.retry(); err != nil {
			return err
		}
	}
	if err := e.turn(); err != nil {
		return err
	}
	if len(e.history.log) > before {
		e.note()
	}
	for len(e.arrivals) > 0 && e.setup.Jobs[e.arrivals[0]].Arrive == at {
		job := e.arrivals[0]
		e.arrivals = e.arrivals[1:]
		if err := e.arrive(job); err != nil {
			return err
		}
		if err := e.turn(); err != nil {
			return err
		}
		e.note()
		e.progress(len(e.unit(job)))
	}
	return e.adjust()
}

// turn does what is due for gangs, and tries those for which it was, or all that wait at the end of a kept room.
func (e *engine) turn() error {
	for {
		if err := e.tick(); err != nil {
			return err
		}
		switch {
		case e.freed:
			if err := e.retry(); err != nil {
				return err
			}
		case len(e.machine.woken) > 0:
			if _, err := e.pass(false); err != nil {
				return err
			}
			e.rejoin()
		default:
			return nil
		}
	}
}

// note adds the present to the history.
func (e *engine) note() {
	e.sample.Fragmentation = e.measure.lost()
	e.sample.WaitingGangs = len(e.late)
	e.history.Samples = append(e.history.Samples, e.sample)
}

// progress counts and reports jobs that arrived.
func (e *engine) progress(jobs int) {
	total := len(e.setup.Jobs)
	step := max(1, total/100)
	before := e.came
	e.came += jobs
	if e.setup.Progress != nil && (e.came == total || e.came/step > before/step) {
		e.setup.Progress(e.came, total)
	}
}

// endDue ends the pods whose time is over, and reports whether there are any.
func (e *engine) endDue(at time.Duration) (ended bool, err error) {
	for len(e.running) > 0 && e.running[len(e.running)-1].at == at {
		job := e.running[len(e.running)-1].job
		e.running = e.running[:len(e.running)-1]
		ended = true
		if e.leaving[job] {
			if err := e.leave(job); err != nil {
				return ended, err
			}
			continue
		}
		e.vacate(job)
		e.awaitNoMore(job)
		e.stirred = at
		e.history.Outcomes[job].State = Finished
		if g := e.history.groupOf[job]; g != nil && e.history.Gangs[g.number].State != Finished {
			e.history.Gangs[g.number].State = Finished // all members end now
			if g.sizing != nil {
				e.leaveElastic(g)
				if err := e.learnLength(g); err != nil {
					return ended, err
				}
			}
			if err := e.forget(g); err != nil {
				return ended, err
			}
		}
		e.log(job, ends)
		e.releaseFollowers(job)
	}
	return ended, nil
}

// vacate takes a pod off its node.
func (e *engine) vacate(job int) {
	o, r := &e.history.Outcomes[job], &e.setup.Jobs[job].Request
	n := e.cluster.Node(o.Assignment.Node)
	before := allocatedOn(n)
	leave(e.cluster, &o.Assignment, r)
	e.releases++
	e.sample.Allocated -= before - allocatedOn(n)
	e.sample.Running--
	e.changed(n)
	i := slices.Index(e.live, job)
	e.live[i] = e.live[len(e.live)-1]
	e.live = e.live[:len(e.live)-1]
}

// arrive tries a pod, or a gang, for the first time.
func (e *engine) arrive(job int) error {
	if g := e.history.groupOf[job]; g != nil && g.sizing != nil {
		e.joinElastic(g)
	}
	e.stirred = e.sample.At
	for _, member := range e.unit(job) {
		e.sample.Arrived += e.history.Outcomes[member].Asked
		e.learn(&e.setup.Jobs[member].Request)
	}
	if e.setup.Queue == FIFO && len(e.waiting) > 0 && e.rank(e.waiting[0]) >= e.rank(job) {
		e.wait(job)
		e.log(job, queued)
		return nil
	}
	placed, err := e.try(job)
	switch {
	case err != nil || placed:
		return err
	case e.setup.Queue == Drop:
		err = e.drop(job)
	default:
		e.wait(job)
	}
	e.log(job, refused)
	if err != nil {
		return err
	}
	if placed, err = e.preempt(job); err != nil {
		return err
	}
	if placed {
		e.waiting = slices.DeleteFunc(e.waiting, func(other int) bool { return other == job })
		e.served(job)
	}
	e.rejoin()
	if e.freed {
		return e.retry()
	}
	return nil
}
