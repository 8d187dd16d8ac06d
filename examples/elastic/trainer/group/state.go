package group

import (
	"fmt"
	"slices"
)

// Config is what does not change in a training.
type Config struct {
	// Steps is the number of steps of the training, Slices that of slices of each step. Both are at least 1.
	Steps, Slices int
	// Params is the number of parameters, at least the number of servers.
	Params int
	// MinWorkers is how many workers there must be for the first step to begin. Later steps need one.
	MinWorkers int
}

// phase is what State waits for.
type phase int

const (
	computing phase = iota // for workers
	applying               // for all servers to apply a step
	fetching               // for the servers of the next layout to have their parameters
	adopting               // for them to adopt it
	over                   // for nothing: the last step is done
	broken                 // for nothing: parameters are lost
)

// worker is what State knows of a worker.
type worker struct {
	id      WorkerID
	leaving bool
	task    *Task // nil while it has nothing to do
}

// server is what State knows of a server.
type server struct {
	id      ServerID
	leaving bool
}

// finished is a task that is done.
type finished struct {
	id     TaskID
	worker WorkerID
	slices []int
	loss   int64
}

// State is the state of a training.
type State struct {
	cfg     Config
	phase   phase
	step    int // the number of steps that all servers have applied
	begun   bool
	workers []*worker // by their numbers
	servers []*server // by their numbers

	// open are the slices of the step that are in no task, ascending; done are the tasks that are done.
	open   []int
	done   []finished
	tasks  TaskID // how many there were
	redone int

	layout   Layout
	next     Layout // while the phase is fetching or adopting
	versions int    // how many layouts there were
	awaited  []ServerID
	effects  []Effect
}

// New returns the State of a training whose server 0 holds all parameters.
func New(cfg Config) *State {
	s := &State{cfg: cfg, servers: []*server{{id: 0}}, versions: 1}
	s.layout = even(1, cfg.Params, []ServerID{0})
	s.reopen()
	return s
}

// Step takes one event and returns what to do.
func (s *State) Step(e Event) []Effect {
	s.effects = nil
	if s.phase == broken {
		return nil
	}
	s.take(e)
	for s.advance() {
	}
	s.dismiss()
	return s.effects
}

func (s *State) do(e Effect) { s.effects = append(s.effects, e) }

// take takes one event.
func (s *State) take(e Event) {
	switch e := e.(type) {
	case WorkerJoined:
		s.workers = append(s.workers, &worker{id: e.Worker})
	case WorkerLeaves:
		if w := s.worker(e.Worker); w != nil {
			w.leaving = true
		}
	case WorkerLost:
		s.workerLost(e.Worker)
	case TaskDone:
		s.taskDone(e)
	case ServerJoined:
		s.servers = append(s.servers, &server{id: e.Server})
	case ServerLeaves:
		if i := s.server(e.Server); i >= 0 {
			s.servers[i].leaving = true
		}
	case ServerLost:
		s.serverLost(e.Server)
	case Applied:
		s.answered(applying, e.Server, e.Step == s.step)
	case Fetched:
		s.answered(fetching, e.Server, e.Version == s.next.Version)
	case Adopted:
		s.answered(adopting, e.Server, e.Version == s.next.Version)
	}
}

// answered notes the answer of a server, if it is the one that State waits for.
func (s *State) answered(in phase, id ServerID, expected bool) {
	if s.phase == in && expected {
		s.awaited = slices.DeleteFunc(s.awaited, func(a ServerID) bool { return a == id })
	}
}

// taskDone notes a task that is done.
func (s *State) taskDone(e TaskDone) {
	w := s.worker(e.Worker)
	if w == nil || w.task == nil || w.task.ID != e.Task {
		return
	}
	s.done = append(s.done, finished{id: e.Task, worker: w.id, slices: w.task.Slices, loss: e.Loss})
	w.task = nil
}

// workerLost frees the slices of a worker that is gone.
func (s *State) workerLost(id WorkerID) {
	w := s.worker(id)
	if w == nil {
		return
	}
	s.workers = slices.DeleteFunc(s.workers, func(o *worker) bool { return o == w })
	if w.task != nil {
		s.open = append(s.open, w.task.Slices...)
		slices.Sort(s.open)
		s.redone += len(w.task.Slices)
	}
}

// serverLost breaks the training where the server was needed, and gives a move up that it was a part of.
func (s *State) serverLost(id ServerID) {
	i := s.server(id)
	if i < 0 {
		return
	}
	s.servers = slices.Delete(s.servers, i, i+1)
	holds := s.layout
	if s.phase == adopting {
		holds = s.next // the others have all that is not in it
	}
	switch {
	case s.phase == over:
	case holds.has(id):
		part := holds.Parts[slices.Index(holds.servers(), id)]
		s.do(Broken{Reason: fmt.Sprintf("server %d was lost with the parameters %v", id, part.Range)})
		s.phase = broken
	case s.phase == fetching && s.next.has(id):
		s.phase = computing
	}
}

// worker returns a worker, nil where it is not there.
func (s *State) worker(id WorkerID) *worker {
	i := slices.IndexFunc(s.workers, func(w *worker) bool { return w.id == id })
	if i < 0 {
		return nil
	}
	return s.workers[i]
}

// server returns the index of a server, -1 where it is not there.
func (s *State) server(id ServerID) int {
	return slices.IndexFunc(s.servers, func(o *server) bool { return o.id == id })
}
