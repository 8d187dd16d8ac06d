package sim

import "slices"

// wait puts a job behind all that wait and are of no lower priority.
func (e *engine) wait(job int) {
	i := len(e.waiting)
	for i > 0 && e.rank(e.waiting[i-1]) < e.rank(job) {
		i--
	}
	e.waiting = slices.Insert(e.waiting, i, job)
	e.sample.Waiting += len(e.unit(job))
	if g := e.history.groupOf[job]; g != nil {
		e.late = append(e.late, g)
	}
}

// served notes that those who waited do so no longer.
func (e *engine) served(job int) {
	e.sample.Waiting -= len(e.unit(job))
	if i := slices.Index(e.late, e.history.groupOf[job]); i >= 0 {
		e.late = slices.Delete(e.late, i, i+1)
	}
}

// retry tries those that wait, after others have ended. The start of a gang for which room was kept lets go of that room, and
// those who are evicted leave some, so all are tried again then.
func (e *engine) retry() error {
	for again := true; again; {
		var err error
		if again, err = e.pass(); err != nil {
			return err
		}
		e.rejoin()
	}
	return nil
}

// pass tries those that wait until there is more room than before, and reports whether there is.
func (e *engine) pass() (again bool, err error) {
	full, helpless := map[int]bool{}, map[int]bool{} // kinds of requests that have no room, and no victims: see serve
	still, drain := e.waiting[:0], e.drain
	e.freed = false
	for i, job := range e.waiting {
		placed, err := e.serve(job, full, helpless)
		if err != nil {
			return false, err
		}
		if placed {
			e.served(job)
		} else {
			still = append(still, job)
		}
		again = drain != nil && e.drain == nil || e.freed
		if again || !placed && e.setup.Queue == FIFO {
			still = append(still, e.waiting[i+1:]...)
			break
		}
	}
	e.waiting = still
	return again, nil
}

// serve places a job that waits, or a gang, and has others evicted for it where it finds no room. What is placed makes no
// room, so kinds that found none, or no victims, are not tried again.
func (e *engine) serve(job int, full, helpless map[int]bool) (placed bool, err error) {
	kind := e.kinds[job]
	if !full[kind] || e.passes(job) {
		if placed, err = e.try(job); placed || err != nil {
			return placed, err
		}
		full[kind] = true
	}
	if helpless[kind] || e.nominated(job) {
		return false, nil
	}
	before := len(e.history.Preemptions)
	placed, err = e.preempt(job)
	helpless[kind] = len(e.history.Preemptions) == before
	return placed, err
}

// rejoin puts those who came back into the queue.
func (e *engine) rejoin() {
	for _, job := range e.back {
		e.wait(job)
	}
	e.back = e.back[:0]
}
