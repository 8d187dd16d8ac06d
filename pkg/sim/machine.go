package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// deadline is how long evicted pods may take beyond their grace. The simulator's never do: they leave when it is over.
	deadline = time.Minute
	// step is the time between two looks at what is due for gangs, as in the scheduler.
	step = time.Second
)

// machine is the state of all gangs, which package reservation keeps, and what the run remembers beside it.
type machine struct {
	state *reservation.State
	byRef map[reservation.Ref]*group
	// held are the nodes where devices are kept, by pod.
	held map[vgpu.UID]*vgpu.Node
	// drain is the gang with a drain, nil for none.
	drain *group
	// woken are gangs to try: something was due for them.
	woken map[*group]bool
	// due is the next due event at the last look; stale says that the state has changed since.
	due   due
	stale bool
}

// due is what is due next for gangs.
type due struct {
	// first is the gang for which something is due first, at a time; nil for none.
	first *group
	at    time.Duration
	// look is the first look at or after that.
	look time.Duration
	// turn is the gang that may get a drain after its next refusal, nil for none.
	turn *group
}

func newMachine(s *Setup, groups []*group) machine {
	cfg := reservation.Config{
		Deadline: deadline, Drains: s.Gangs.Drains, After: s.Gangs.DrainAfter, Timeout: s.Gangs.DrainTimeout, Began: clock(0),
	}
	if s.Queue == Drop { // no pod waits for room
		cfg.Drains = gang.NoDrains
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = never
	}
	m := machine{
		state: reservation.New(cfg), byRef: map[reservation.Ref]*group{}, held: map[vgpu.UID]*vgpu.Node{}, woken: map[*group]bool{},
	}
	for _, g := range groups {
		m.byRef[g.ref] = g
	}
	return m
}

// refOf returns how the machine names a gang.
func refOf(g *Gang) reservation.Ref {
	if namespace, name, ok := strings.Cut(g.Name, "/"); ok {
		return reservation.Ref{Namespace: namespace, Name: name}
	}
	return reservation.Ref{Name: g.Name}
}

// clock returns a time of a run as the machine has it. A run begins one second after 1970, since a Unix time of 0 stands for no time
// at all.
func clock(at time.Duration) time.Time { return time.Unix(1, 0).Add(at) }

// sinceStart undoes clock. The latest time of a run stands for all that are later.
func sinceStart(at time.Time) time.Duration { return at.Sub(clock(0)) }

// unix returns a time of a run as a Unix time in whole seconds, rounded down.
func unix(at time.Duration) int64 { return clock(at).Unix() }

// answer is what effects say to the caller of step.
type answer struct {
	plan  *reservation.Plan
	seek  *reservation.SeekRoom
	holds []vgpu.Hold
	// refused says that the answer is no.
	refused bool
}

// step has the machine take one event, and carries the effects out. Effects for people, or for the framework of the
// scheduler, mean nothing here.
func (e *engine) step(event reservation.Event) (answer, error) {
	var a answer
	e.machine.stale = true
	for _, effect := range e.machine.state.Step(event, clock(e.sample.At)) {
		switch x := effect.(type) {
		case reservation.Plan:
			a.plan = &x
		case reservation.SeekRoom:
			a.seek = &x
		case reservation.Refuse:
			a.refused = true
		case reservation.Hold:
			if err := e.hold(x.Hold); err != nil {
				return a, err
			}
			a.holds = append(a.holds, x.Hold)
		case reservation.Release:
			e.release(x.UID)
		case reservation.Activate:
			e.machine.woken[e.machine.byRef[x.Ref]] = true
		}
	}
	e.lookAtDrain()
	e.lookAtNominations()
	return a, nil
}

// hold keeps devices for a pod, in place of its earlier ones.
func (e *engine) hold(h vgpu.Hold) error {
	e.release(h.UID)
	if err := e.cluster.Hold(h); err != nil {
		return fmt.Errorf("keep room for pod %s: %w", h.Pod, err)
	}
	n := e.cluster.Node(h.Node)
	e.machine.held[h.UID] = n
	e.changed(n)
	return nil
}

// release ends the hold of the pod, if any.
func (e *engine) release(uid vgpu.UID) {
	if n := e.machine.held[uid]; n != nil {
		n.Release(uid)
		delete(e.machine.held, uid)
		e.releases++
		e.changed(n)
	}
}

// facts says what there is of a gang now. The facts are valid until the next call for the same gang.
func (e *engine) facts(g *group) reservation.Facts {
	g.members = g.members[:0]
	for rank, job := range g.jobs {
		o := &e.history.Outcomes[job]
		heldBack := o.State == Held && (rank >= g.sizing.target || e.history.Gangs[g.number].State == Finished)
		if o.State != Dropped && o.State != Finished && !heldBack {
			g.members = append(g.members, reservation.Member{UID: o.UID, Pod: o.Pod, Node: o.Assignment.Node, Deleted: e.leaving[job]})
		}
	}
	return reservation.Facts{Ref: g.ref, MinCount: g.want.MinCount, Members: g.members}
}

// tell informs the machine that members of a gang came, ended or are gone.
func (e *engine) tell(g *group) error {
	_, err := e.step(reservation.Changed{Gang: e.facts(g)})
	return err
}

// forget informs the machine that a gang is over, or that all of its pods are gone and new ones come.
func (e *engine) forget(g *group) error {
	_, err := e.step(reservation.Changed{Gang: reservation.Facts{Ref: g.ref}})
	return err
}

// nextDue returns what is due next for gangs.
func (e *engine) nextDue() *due {
	m := &e.machine
	if !m.stale && (m.due.first == nil || m.due.at > e.sample.At) {
		return &m.due
	}
	now := clock(e.sample.At)
	m.due, m.stale = due{}, false
	if ref, at, some := m.state.NextDue(now); some {
		m.due.first, m.due.at = m.byRef[ref], sinceStart(at)
		m.due.look = never
		if m.due.at <= never-step {
			m.due.look = (m.due.at + step - 1) / step * step
		}
	}
	if ref, some := m.state.Turn(now); some {
		m.due.turn = m.byRef[ref]
	}
	return &m.due
}

// isTurn reports whether a gang may get a drain after its next refusal.
func (e *engine) isTurn(g *group) bool { return e.nextDue().turn == g }

// tick does what is due for gangs by now: it ends what took too long, and notes which gangs are to be tried.
func (e *engine) tick() error {
	for {
		next := e.nextDue()
		if next.first == nil || next.look > e.sample.At {
			return nil
		}
		g := next.first
		if _, err := e.step(reservation.Ticked{Gang: e.facts(g), VictimsLeft: true, Blocked: e.blocked(g)}); err != nil {
			return err
		}
	}
}
