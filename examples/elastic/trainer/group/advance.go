package group

import "slices"

// advance goes on to the next phase, and reports whether it did.
func (s *State) advance() bool {
	switch s.phase {
	case computing:
		return s.compute()
	case applying:
		return len(s.awaited) == 0 && s.applied()
	case fetching:
		return len(s.awaited) == 0 && s.adopt()
	case adopting:
		return len(s.awaited) == 0 && s.adopted()
	}
	return false
}

// compute applies a step whose slices are all done, changes the layout between two steps, or gives tasks to workers.
func (s *State) compute() bool {
	if s.complete() {
		s.apply()
		return true
	}
	if s.still() {
		if servers := s.wanted(); !slices.Equal(servers, s.layout.servers()) {
			s.move(servers)
			return true
		}
	}
	s.assign()
	return false
}

// complete reports whether the tasks that are done have all slices of the step.
func (s *State) complete() bool {
	n := 0
	for _, t := range s.done {
		n += len(t.slices)
	}
	return n == s.cfg.Slices
}

// still reports whether the parameters may move: no worker computes, and either the step has not begun, or no worker could go
// on with it. In the second case the tasks that are done are lost, since a server would wait for long otherwise.
func (s *State) still() bool {
	if slices.ContainsFunc(s.workers, func(w *worker) bool { return w.task != nil }) {
		return false
	}
	return len(s.done) == 0 || len(s.idle()) == 0
}

// wanted returns the servers that should hold parameters: those that do not want to leave. If all want to leave, those that
// hold parameters keep them.
func (s *State) wanted() []ServerID {
	var all []ServerID
	for _, o := range s.servers {
		if !o.leaving {
			all = append(all, o.id)
		}
	}
	if len(all) == 0 {
		return s.layout.servers()
	}
	return all
}

// idle returns the workers that could get a task now.
func (s *State) idle() []*worker {
	var all []*worker
	for _, w := range s.workers {
		if w.task == nil && !w.leaving {
			all = append(all, w)
		}
	}
	return all
}

// assign shares the open slices among the idle workers: each gets a run of as many as the others, or one more. With more
// workers than slices, the last ones get none.
func (s *State) assign() {
	idle := s.idle()
	s.begun = s.begun || len(idle) >= s.cfg.MinWorkers
	if !s.begun {
		return
	}
	for i, w := range idle {
		left := len(idle) - i
		n := (len(s.open) + left - 1) / left
		if n == 0 {
			return
		}
		s.tasks++
		w.task = &Task{ID: s.tasks, Step: s.step, Slices: slices.Clone(s.open[:n])}
		s.open = s.open[n:]
		s.do(Assign{Worker: w.id, Task: *w.task, Layout: s.layout})
	}
}

// apply makes all servers apply the step.
func (s *State) apply() {
	ids := make([]TaskID, len(s.done))
	for i, t := range s.done {
		ids[i] = t.id
	}
	slices.Sort(ids)
	s.phase, s.awaited = applying, s.layout.servers()
	for _, id := range s.awaited {
		s.do(Apply{Server: id, Step: s.step, Tasks: ids})
	}
}

// applied ends a step.
func (s *State) applied() bool {
	loss, workers := int64(0), map[WorkerID]bool{}
	for _, t := range s.done {
		loss += t.loss
		workers[t.worker] = true
	}
	s.step++
	s.do(Stepped{Step: s.step, Workers: len(workers), Servers: len(s.layout.Parts), Redone: s.redone, Loss: loss})
	s.redone = 0
	s.reopen()
	s.phase = computing
	if s.step == s.cfg.Steps {
		s.phase = over
		s.do(Finished{Layout: s.layout})
	}
	return true
}

// reopen frees all slices of the step.
func (s *State) reopen() {
	s.done = nil
	s.open = make([]int, s.cfg.Slices)
	for i := range s.open {
		s.open[i] = i
	}
}

// move makes the servers fetch what they lack in the next layout. The gradients that workers have sent for the step are lost
// by that.
func (s *State) move(servers []ServerID) {
	for _, t := range s.done {
		s.redone += len(t.slices)
	}
	s.reopen()
	s.versions++
	s.next = even(s.versions, s.cfg.Params, servers)
	s.phase, s.awaited = fetching, nil
	for _, p := range s.next.Parts {
		if pieces := s.layout.lacking(p); len(pieces) > 0 {
			s.awaited = append(s.awaited, p.Server)
			s.do(Fetch{Server: p.Server, Version: s.next.Version, Step: s.step, Range: p.Range, Pieces: pieces})
		}
	}
}

// adopt makes the servers change to the next layout.
func (s *State) adopt() bool {
	s.phase, s.awaited = adopting, s.next.servers()
	for _, p := range s.next.Parts {
		s.do(Adopt{Server: p.Server, Version: s.next.Version, Step: s.step, Range: p.Range})
	}
	return true
}

// adopted ends the change of the layout.
func (s *State) adopted() bool {
	s.phase, s.layout = computing, s.next
	s.do(Moved{Step: s.step, Layout: s.layout})
	return true
}

// dismiss lets members go that want to leave and have nothing to give, and all of them when the training is over.
func (s *State) dismiss() {
	if s.phase == broken {
		return
	}
	ended := s.phase == over
	s.workers = slices.DeleteFunc(s.workers, func(w *worker) bool {
		goes := ended || w.leaving && w.task == nil
		if goes {
			s.do(DismissWorker{Worker: w.id, Over: ended})
		}
		return goes
	})
	moving := s.phase == fetching || s.phase == adopting
	s.servers = slices.DeleteFunc(s.servers, func(o *server) bool {
		needed := s.layout.has(o.id) || moving && s.next.has(o.id)
		goes := ended || o.leaving && !needed
		if goes {
			s.do(DismissServer{Server: o.id, Over: ended})
		}
		return goes
	})
}
