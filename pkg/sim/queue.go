package sim

import "slices"

// wait puts a job behind all that wait and are of no lower priority.
func (e *engine) wait(job int) {
	i := len(e.waiting)
	for i > 0 && e.rank(e.waiting[i-1]) < e.rank(job) {
		i--
	}
	e.waiting = slices.Insert(e.waiting, i, job)
	e.sample.Waiting += e.waitsFor(job)
	if g := e.history.groupOf[job]; g != nil {
		e.late = append(e.late, g)
	}
}

// served notes that a job does not wait any longer.
func (e *engine) served(job int) {
	e.stirred = e.sample.At
	e.sample.Waiting -= e.waitsFor(job)
	if i := slices.Index(e.late, e.history.groupOf[job]); i >= 0 {
		e.late = slices.Delete(e.late, i, i+1)
	}
}

// waitsFor counts the pods that wait with a job.
func (e *engine) waitsFor(job int) int {
	if g := e.history.groupOf[job]; g != nil {
		return len(g.askers())
	}
	return 1
}

// retry tries those that wait, after others have ended. The start of a gang ends its drain, and victims leave room too,
// so retry tries all again then.
func (e *engine) retry() error {
	for again := true; again; {
		var err error
		if again, err = e.pass(true); err != nil {
			return err
		}
		e.rejoin()
	}
	return nil
}

// pass tries those that wait, or only the gangs that are woken, until there is more room than before. The result says
// whether there is.
func (e *engine) pass(all bool) (again bool, err error) {
	p := pass{engine: e, full: map[int]bool{}, helpless: map[int]bool{}, woken: e.machine.woken}
	still := e.waiting[:0]
	e.freed, e.machine.woken = false, map[*group]bool{}
	for i, job := range e.waiting {
		placed := false
		if all || p.woken[e.history.groupOf[job]] {
			if placed, err = p.serve(job); err != nil {
				return false, err
			}
		}
		if placed {
			e.served(job)
		} else {
			still = append(still, job)
		}
		if e.freed || !placed && e.setup.Queue == FIFO {
			still = append(still, e.waiting[i+1:]...)
			break
		}
	}
	e.waiting = still
	return e.freed, nil
}

// pass is one pass over those that wait.
type pass struct {
	*engine
	// full and helpless are kinds of requests that have no room, and no victims. Placements make no room, so these get
	// no further try.
	full, helpless map[int]bool
	// woken are gangs that get a try all the same.
	woken map[*group]bool
}

// serve places a job that waits, or a gang, and has others evicted for it where it finds no room.
func (p *pass) serve(job int) (placed bool, err error) {
	kind := p.kinds[job]
	if placed, err = p.attempt(job, p.full[kind] && !p.passes(job)); placed || err != nil {
		return placed, err
	}
	p.full[kind] = true
	if p.helpless[kind] || p.nominationOf(job) != nil {
		return false, nil
	}
	before := len(p.history.Preemptions)
	placed, err = p.preempt(job)
	p.helpless[kind] = len(p.history.Preemptions) == before
	return placed, err
}

// attempt tries a job, or a gang. A hopeless one has no room. The machine gets the refusal of a gang where that makes a
// difference: at the first refusal, and where a drain may begin.
func (p *pass) attempt(job int, hopeless bool) (placed bool, err error) {
	if !hopeless {
		return p.try(job)
	}
	g := p.history.groupOf[job]
	if g == nil {
		return false, nil
	}
	if _, refused := p.machine.state.Refusal(g.ref); refused && !p.woken[g] && !p.isTurn(g) {
		return false, nil
	}
	return p.tryGroup(g, true)
}

// rejoin puts the jobs that came back into the queue.
func (e *engine) rejoin() {
	for _, job := range e.back {
		e.wait(job)
	}
	e.back = e.back[:0]
}
