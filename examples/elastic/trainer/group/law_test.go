package group

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHistories plays trainings in which workers join, leave, die and fall silent, and servers join, leave and die before they
// hold anything, at any moment and with messages that arrive at any time. It holds them to these laws: each step is applied
// once by all servers, with each slice once; the numbers that a worker reads and sends fit its task; the training ends with
// the parameters of an undisturbed one.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 120).Draw(t, "actions") {
			w.act(w.disturbances(), w.progress())
		}
		w.workerJoins() // whoever was there may be gone
		for range 100_000 {
			if !w.act(nil, w.progress()) {
				break
			}
		}
		w.checkEnd()
	})
}

// world is a training with simulated members. Parameters are whole numbers.
type world struct {
	*rapid.T
	cfg     Config
	state   *State
	workers []*simWorker // those that still do something
	servers map[ServerID]*simServer
	lastW   WorkerID
	lastS   ServerID
	layout  Layout
	slices  map[TaskID][]int
	applied map[int][]TaskID // by step
	stepped int
	// leaving are the workers of which the state knows that they want to leave.
	leaving map[WorkerID]bool
	over    bool
	// adopting: servers have been told to adopt a layout that is not in force yet.
	adopting bool
}

// simWorker is a worker. Its messages arrive later, in their order.
type simWorker struct {
	id      WorkerID
	todo    []Assign
	read    []Part // what it has read, of its first task
	params  []int64
	added   []Part
	out     []Event
	leaving bool
	// zombie: the coordinator takes it for lost, and it does not know.
	zombie bool
}

// simServer is a server.
type simServer struct {
	id      ServerID
	step    int
	held    Range
	values  []int64
	sums    map[TaskID][]int64
	version int
	next    Range
	ready   []int64
	todo    []Effect
	out     []Event
	leaving bool
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, cfg: Config{
		Steps: rapid.IntRange(1, 6).Draw(t, "steps"), Slices: rapid.IntRange(1, 5).Draw(t, "slices"),
		Params: rapid.IntRange(5, 11).Draw(t, "parameters"), MinWorkers: rapid.IntRange(1, 2).Draw(t, "least workers"),
	}, servers: map[ServerID]*simServer{}, slices: map[TaskID][]int{}, applied: map[int][]TaskID{}, leaving: map[WorkerID]bool{}}
	w.state = New(w.cfg)
	w.layout = w.state.layout
	w.servers[0] = &simServer{held: Range{To: w.cfg.Params}, values: make([]int64, w.cfg.Params), sums: map[TaskID][]int64{}}
	for range w.cfg.MinWorkers {
		w.workerJoins()
	}
	return w
}

// gradient is a number that depends on the step, the slice, the parameter and its value.
func gradient(step, slice, index int, value int64) int64 {
	return (value*31 + int64(step*7919+slice*104729+index*1299709+1)) * 2654435761 % 1_000_003
}

// act does one of the disturbances or, four times as likely, of the progress. It reports whether there was anything to do.
func (w *world) act(disturbances, progress []func()) bool {
	all := disturbances
	if len(progress) > 0 && (len(all) == 0 || rapid.IntRange(0, 4).Draw(w.T, "kind") > 0) {
		all = progress
	}
	if len(all) == 0 {
		return false
	}
	all[rapid.IntRange(0, len(all)-1).Draw(w.T, "action")]()
	return true
}

func (w *world) disturbances() []func() {
	all := []func(){w.workerJoins}
	if w.lastS < 5 {
		all = append(all, w.serverJoins)
	}
	for _, sim := range w.workers {
		if sim.zombie {
			continue
		}
		all = append(all,
			func() { sim.leaving, sim.out = true, append(sim.out, WorkerLeaves{sim.id}) },
			func() { // what it has sent arrives
				w.happen(sim.out...)
				w.remove(sim)
				w.happen(WorkerLost{sim.id})
			},
			func() { sim.zombie = true; w.happen(WorkerLost{sim.id}) })
	}
	for _, id := range w.serverIDs() {
		sim := w.servers[id]
		if id > 0 {
			all = append(all, func() { sim.leaving, sim.out = true, append(sim.out, ServerLeaves{id}) })
		}
		if holds := w.layout.has(id) || w.adopting && w.state.next.has(id); !holds {
			all = append(all, func() { delete(w.servers, id); w.happen(ServerLost{id}) }) // what it has sent does not arrive
		}
	}
	return all
}

func (w *world) serverIDs() []ServerID {
	var all []ServerID
	for id := range w.lastS + 1 {
		if w.servers[id] != nil {
			all = append(all, id)
		}
	}
	return all
}

func (w *world) workerJoins() {
	w.lastW++
	w.workers = append(w.workers, &simWorker{id: w.lastW, params: make([]int64, w.cfg.Params)})
	w.happen(WorkerJoined{w.lastW})
}

func (w *world) serverJoins() {
	w.lastS++
	w.servers[w.lastS] = &simServer{id: w.lastS, sums: map[TaskID][]int64{}}
	w.happen(ServerJoined{w.lastS})
}

func (w *world) remove(sim *simWorker) {
	w.workers = slices.DeleteFunc(w.workers, func(o *simWorker) bool { return o == sim })
}

// progress returns what members may do next: take a message to the coordinator, or go on with their work.
func (w *world) progress() []func() {
	var all []func()
	for _, sim := range w.workers {
		if len(sim.out) > 0 && !sim.zombie {
			all = append(all, func() { e := sim.out[0]; sim.out = sim.out[1:]; w.happen(e) })
		}
		if len(sim.todo) > 0 {
			all = append(all, func() { w.work(sim) })
		}
	}
	for _, id := range w.serverIDs() {
		sim := w.servers[id]
		if len(sim.out) > 0 {
			all = append(all, func() { e := sim.out[0]; sim.out = sim.out[1:]; w.happen(e) })
		}
		if len(sim.todo) > 0 {
			all = append(all, func() { w.serve(sim) })
		}
	}
	return all
}

// happen gives events to the state and carries the effects out.
func (w *world) happen(events ...Event) {
	for _, e := range events {
		if leaves, ok := e.(WorkerLeaves); ok {
			w.leaving[leaves.Worker] = true
		}
		for _, effect := range w.state.Step(e) {
			w.do(effect)
		}
	}
}

func (w *world) do(effect Effect) {
	switch e := effect.(type) {
	case Assign:
		w.assigned(e)
	case Apply:
		w.toApply(e)
	case Fetch:
		w.servers[e.Server].todo = append(w.servers[e.Server].todo, e)
	case Adopt:
		w.adopting = true
		w.servers[e.Server].todo = append(w.servers[e.Server].todo, e)
	case Moved:
		w.layout, w.adopting = e.Layout, false
	case Stepped:
		if w.stepped++; e.Step != w.stepped {
			w.Fatalf("step %d is done after %d steps", e.Step, w.stepped-1)
		}
	case DismissWorker:
		i := slices.IndexFunc(w.workers, func(o *simWorker) bool { return o.id == e.Worker && !o.zombie })
		if i < 0 || len(w.workers[i].todo) > 0 || !e.Over && !w.workers[i].leaving {
			w.Fatalf("%+v: the worker is not there, or works, or does not want to leave", e)
		}
		w.workers = slices.Delete(w.workers, i, i+1)
	case DismissServer:
		if w.state.next.has(e.Server) && (w.adopting || w.state.phase == fetching) && !e.Over {
			w.Fatalf("%+v: the server is about to get parameters", e)
		}
		if sim := w.servers[e.Server]; !e.Over && (!sim.leaving || w.layout.has(e.Server)) {
			w.Fatalf("%+v: the server holds parameters, or does not want to leave", e)
		} else if !e.Over {
			delete(w.servers, e.Server)
		}
	case Finished:
		w.over = true
	case Broken:
		w.Fatalf("the training is broken: %s", e.Reason)
	}
}

// assigned checks a task: it is of the present step, and its worker wants to stay.
func (w *world) assigned(e Assign) {
	i := slices.IndexFunc(w.workers, func(o *simWorker) bool { return o.id == e.Worker })
	if i < 0 || w.leaving[e.Worker] || w.workers[i].zombie || len(w.workers[i].todo) > 0 || e.Task.Step != w.stepped || w.slices[e.Task.ID] != nil {
		w.Fatalf("%+v: the worker is not there, wants to leave or has a task, the step is not %d, or the task had been given before", e, w.stepped)
	}
	w.slices[e.Task.ID] = e.Task.Slices
	w.workers[i].todo = []Assign{e}
}

// toApply checks that the tasks have each slice once, and that all servers get the same ones.
func (w *world) toApply(e Apply) {
	if before, ok := w.applied[e.Step]; ok && !slices.Equal(before, e.Tasks) {
		w.Fatalf("step %d is to be applied with tasks %v and with %v", e.Step, before, e.Tasks)
	}
	w.applied[e.Step] = e.Tasks
	var all []int
	for _, id := range e.Tasks {
		all = append(all, w.slices[id]...)
	}
	slices.Sort(all)
	for i := range max(len(all), w.cfg.Slices) {
		if len(all) != w.cfg.Slices || all[i] != i {
			w.Fatalf("step %d is applied with the slices %v, want each of %d once", e.Step, all, w.cfg.Slices)
		}
	}
	w.servers[e.Server].todo = append(w.servers[e.Server].todo, e)
}

// work does the next piece of the worker's task: it reads from one server or sends to one, and reports at last.
func (w *world) work(sim *simWorker) {
	a := sim.todo[0]
	parts := a.Layout.Parts
	fits := func(p Part) bool {
		s := w.servers[p.Server]
		return s != nil && s.step == a.Task.Step && s.held == p.Range
	}
	switch {
	case len(sim.read) < len(parts):
		p := parts[len(sim.read)]
		if !fits(p) {
			w.refused(sim, p)
			return
		}
		copy(sim.params[p.Range.From:], w.servers[p.Server].values)
		sim.read = append(sim.read, p)
	case len(sim.added) < len(parts):
		p := parts[len(sim.added)]
		if !fits(p) {
			w.refused(sim, p)
			return
		}
		sum := make([]int64, p.Range.Len())
		for i := range sum {
			at := p.Range.From + i
			for _, slice := range a.Task.Slices {
				sum[i] += gradient(a.Task.Step, slice, at, sim.params[at])
			}
		}
		w.servers[p.Server].sums[a.Task.ID] = sum
		sim.added = append(sim.added, p)
	default:
		sim.todo, sim.read, sim.added = nil, nil, nil
		sim.out = append(sim.out, TaskDone{Worker: sim.id, Task: a.Task.ID, Loss: int64(len(a.Task.Slices))})
	}
}

// refused ends a zombie, whose time is over; nobody else is refused.
func (w *world) refused(sim *simWorker, p Part) {
	if !sim.zombie {
		w.Fatalf("worker %d has a task of step %d, and server %d does not hold %v at that step", sim.id, sim.todo[0].Task.Step, p.Server, p.Range)
	}
	w.remove(sim)
}

// serve carries the next order of a server out.
func (w *world) serve(sim *simServer) {
	order := sim.todo[0]
	sim.todo = sim.todo[1:]
	switch e := order.(type) {
	case Apply:
		for _, id := range e.Tasks {
			sum, ok := sim.sums[id]
			if !ok || e.Step != sim.step {
				w.Fatalf("server %d at step %d cannot apply task %d of step %d", sim.id, sim.step, id, e.Step)
			}
			for i := range sum {
				sim.values[i] += sum[i]
			}
		}
		sim.step++
		clear(sim.sums)
		sim.out = append(sim.out, Applied{Server: sim.id, Step: e.Step})
	case Fetch:
		ready := make([]int64, e.Range.Len())
		if own := e.Range.And(sim.held); own.Len() > 0 {
			copy(ready[own.From-e.Range.From:], sim.values[own.From-sim.held.From:own.To-sim.held.From])
		}
		for _, p := range e.Pieces {
			from := w.servers[p.Server]
			if from == nil || from.step != e.Step || !from.held.Holds(p.Range) {
				if e.Version == w.state.next.Version && w.state.phase == fetching {
					w.Fatalf("server %d cannot fetch %v of step %d from server %d", sim.id, p.Range, e.Step, p.Server)
				}
				return // the layout was given up meanwhile
			}
			copy(ready[p.Range.From-e.Range.From:], from.values[p.Range.From-from.held.From:p.Range.To-from.held.From])
		}
		sim.version, sim.next, sim.ready = e.Version, e.Range, ready
		sim.out = append(sim.out, Fetched{Server: sim.id, Version: e.Version})
	case Adopt:
		switch {
		case sim.version == e.Version && sim.next == e.Range:
			sim.values = sim.ready
		case sim.held.Holds(e.Range):
			sim.values = slices.Clone(sim.values[e.Range.From-sim.held.From : e.Range.To-sim.held.From])
		default:
			w.Fatalf("server %d is to adopt %v and has %v", sim.id, e.Range, sim.held)
		}
		sim.held, sim.step = e.Range, e.Step
		clear(sim.sums)
		sim.out = append(sim.out, Adopted{Server: sim.id, Version: e.Version})
	}
}

// checkEnd checks that the training is over, with the parameters of an undisturbed one.
func (w *world) checkEnd() {
	if !w.over || w.stepped != w.cfg.Steps {
		w.Fatalf("the training rests after %d of %d steps: %s", w.stepped, w.cfg.Steps, w.state.dump())
	}
	want := make([]int64, w.cfg.Params)
	for step := range w.cfg.Steps {
		for i, value := range want {
			for slice := range w.cfg.Slices {
				want[i] += gradient(step, slice, i, value)
			}
		}
	}
	var got []int64
	for _, p := range w.layout.Parts {
		got = append(got, w.servers[p.Server].values...)
	}
	if !slices.Equal(got, want) {
		w.Fatalf("the parameters are %v, want %v", got, want)
	}
}

// dump says what a state waits for.
func (s *State) dump() string {
	return fmt.Sprintf("phase %d, open %v, done %v, awaited %v, layout %v, next %v", s.phase, s.open, s.done, s.awaited, s.layout, s.next)
}
