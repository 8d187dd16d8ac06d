package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
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
	learner  *learner // nil where the usual requests are given
	policy   placement.Policy
	ranking  *placement.Ranking
	places   map[*vgpu.Node]int // of the nodes in the cluster's list
	states   []placement.State  // per node, for the ranking
	history  *History
	arrivals []int       // jobs in the order of arrival that are still to come
	running  []departure // pods that will end, the first to end last
	waiting  []int       // jobs in the order of arrival
	kinds    []int       // per job, equal for requests that are alike
	sample   Sample      // the present
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
	e := &engine{setup: &h.setup, cluster: c, policy: s.Policy, history: h, kinds: kindsOf(s.Jobs)}
	h.Capacity = Capacity(c.Nodes())
	h.Samples = make([]Sample, 0, len(s.Jobs)+1)
	e.states, e.places = make([]placement.State, len(c.Nodes())), make(map[*vgpu.Node]int, len(c.Nodes()))
	for i, n := range c.Nodes() {
		e.places[n] = i
	}
	e.measure = newMeasure(c)
	if err := e.expect(); err != nil {
		return nil, err
	}
	for i := range s.Jobs {
		r := &s.Jobs[i].Request
		h.Outcomes[i] = Outcome{UID: r.UID, Pod: r.Pod, Arrived: s.Jobs[i].Arrive, Asked: e.measure.asked(r)}
		e.arrivals = append(e.arrivals, i)
	}
	slices.SortStableFunc(e.arrivals, func(a, b int) int { return cmp.Compare(s.Jobs[a].Arrive, s.Jobs[b].Arrive) })
	h.initial = allocatedOn(c.Nodes()...)
	e.sample.Allocated = h.initial
	return e, nil
}

// expect sets the usual requests: those of the setup, else none yet.
func (e *engine) expect() error {
	all := e.setup.Mix
	if all == nil {
		e.learner = &learner{}
		var err error
		if all, err = fragmentation.NewMix(nil); err != nil {
			return err
		}
	}
	e.use(all)
	return nil
}

// use makes all decisions and measurements go by the usual requests, from now on.
func (e *engine) use(all *fragmentation.Mix) {
	e.policy = e.setup.Policy.With(all, e.setup.Seed)
	e.ranking = placement.NewRanking(e.policy)
	clear(e.states)
	e.measure.use(all)
}

// learn notes a pod that arrives.
func (e *engine) learn(r *vgpu.Request) error {
	if e.learner == nil {
		return nil
	}
	all, err := e.learner.observe(r, e.sample.At)
	if err == nil && all != nil {
		e.use(all)
	}
	return err
}

// next returns the time of the next instant, and whether there is one.
func (e *engine) next() (time.Duration, bool) {
	switch {
	case len(e.arrivals) == 0 && len(e.running) == 0:
		return 0, false
	case len(e.arrivals) == 0:
		return e.running[len(e.running)-1].at, true
	case len(e.running) == 0:
		return e.setup.Jobs[e.arrivals[0]].Arrive, true
	}
	return min(e.setup.Jobs[e.arrivals[0]].Arrive, e.running[len(e.running)-1].at), true
}

// instant plays all that happens at one time: ends, then those that wait, then arrivals.
func (e *engine) instant(at time.Duration) error {
	e.sample.At = at
	if e.endDue(at) {
		if err := e.retry(); err != nil {
			return err
		}
		e.note()
	}
	for len(e.arrivals) > 0 && e.setup.Jobs[e.arrivals[0]].Arrive == at {
		job := e.arrivals[0]
		e.arrivals = e.arrivals[1:]
		if err := e.arrive(job); err != nil {
			return err
		}
		e.note()
		e.progress()
	}
	return nil
}

// note adds the present to the history.
func (e *engine) note() {
	e.sample.Waiting = len(e.waiting)
	e.sample.Fragmentation = e.measure.lost()
	e.history.Samples = append(e.history.Samples, e.sample)
}

func (e *engine) progress() {
	total := len(e.setup.Jobs)
	done := total - len(e.arrivals)
	if e.setup.Progress != nil && (done == total || done%max(1, total/100) == 0) {
		e.setup.Progress(done, total)
	}
}

// endDue ends the pods whose time is over, and reports whether there are any.
func (e *engine) endDue(at time.Duration) bool {
	ended := false
	for len(e.running) > 0 && e.running[len(e.running)-1].at == at {
		job := e.running[len(e.running)-1].job
		e.running = e.running[:len(e.running)-1]
		o, r := &e.history.Outcomes[job], &e.setup.Jobs[job].Request
		n := e.cluster.Node(o.Assignment.Node)
		before := allocatedOn(n)
		leave(e.cluster, o, r)
		o.State = Finished
		e.sample.Allocated -= before - allocatedOn(n)
		e.sample.Running--
		e.changed(n)
		e.history.log = append(e.history.log, entry{job, ends, at})
		ended = true
	}
	return ended
}

// arrive tries a pod for the first time.
func (e *engine) arrive(job int) error {
	r := &e.setup.Jobs[job].Request
	e.sample.Arrived += e.history.Outcomes[job].Asked
	if err := e.learn(r); err != nil {
		return err
	}
	if e.setup.Queue == FIFO && len(e.waiting) > 0 {
		e.waiting = append(e.waiting, job)
		e.history.log = append(e.history.log, entry{job, queued, e.sample.At})
		return nil
	}
	placed, err := e.try(job)
	switch {
	case err != nil || placed:
		return err
	case e.setup.Queue == Drop:
		e.history.Outcomes[job].State = Dropped
		e.sample.Dropped++
	default:
		e.waiting = append(e.waiting, job)
	}
	e.history.log = append(e.history.log, entry{job, refused, e.sample.At})
	return nil
}

// retry tries the pods that wait, after others have ended.
func (e *engine) retry() error {
	hopeless := map[int]bool{} // kinds of requests that did not fit: what is placed since makes no room
	still := e.waiting[:0]
	for i, job := range e.waiting {
		if !hopeless[e.kinds[job]] {
			placed, err := e.try(job)
			if err != nil {
				return err
			}
			if placed {
				continue
			}
			if e.setup.Queue == FIFO {
				still = append(still, e.waiting[i:]...)
				break
			}
			hopeless[e.kinds[job]] = true
		}
		still = append(still, job)
	}
	e.waiting = still
	return nil
}
