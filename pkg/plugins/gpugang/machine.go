package gpugang

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// machine is the state of all gangs behind its lock: whoever steps it or asks it holds mu, and step carries the effects out before
// mu is released. What takes the lock of the scheduler's queue, or asks the API server, is noted and done after that: see flush.
type machine struct {
	mu    sync.Mutex
	state *reservation.State
	// gates are what members wait for in Bind, each until it is opened.
	gates map[reservation.Gate]chan struct{}
	// ended is told when the room that evictions make for a gang ends.
	ended map[podgroup.Ref]func()
	// known are the facts of gangs as they were built last.
	known map[podgroup.Ref]cached
}

// cached are the facts of one gang, and what they were built from.
type cached struct {
	gang  *podgroup.Gang
	err   error
	facts reservation.Facts
}

func newMachine(cfg reservation.Config) machine {
	return machine{
		state: reservation.New(cfg), gates: map[reservation.Gate]chan struct{}{}, ended: map[podgroup.Ref]func(){},
		known: map[podgroup.Ref]cached{},
	}
}

// answer is what effects say to the caller of step.
type answer struct {
	place  *reservation.Place
	refuse *reservation.Refuse
	plan   *reservation.Plan
	seek   *reservation.SeekRoom
	wait   *reservation.Wait
	evict  []reservation.Evict
	unheld []unheld
}

// unheld is a member for which devices could not be held.
type unheld struct {
	uid vgpu.UID
	err error
}

// with takes one event, which make builds, and carries out what must be done.
func (p *Plugin) with(build func(*reservation.State) reservation.Event) answer {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return p.step(build(p.machine.state))
}

// read asks the machine something.
func (p *Plugin) read(ask func(*reservation.State)) {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	ask(p.machine.state)
}

// step takes one event and carries out what must be done. The caller holds the lock of the machine, like that of apply, of facts
// and of all that build events.
func (p *Plugin) step(e reservation.Event) answer {
	var a answer
	for _, effect := range p.machine.state.Step(e, p.now()) {
		p.apply(effect, &a)
	}
	return a
}

// settled steps an event about a member after which devices are held, and tells the machine of those that could not be.
func (p *Plugin) settled(ref podgroup.Ref, uid vgpu.UID, e reservation.Event) answer {
	a := p.step(e)
	for _, lost := range a.unheld {
		b := p.step(reservation.HoldFailed{Gang: p.facts(ref), UID: uid, Pod: lost.uid, Why: lost.err.Error()})
		if b.refuse != nil {
			a.place, a.refuse = nil, b.refuse
		}
	}
	return a
}

// apply carries out one effect.
func (p *Plugin) apply(effect reservation.Effect, a *answer) {
	switch e := effect.(type) {
	case reservation.Give:
		a.place = &e.Place
	case reservation.Refuse:
		a.refuse = &e
	case reservation.Plan:
		a.plan = &e
	case reservation.SeekRoom:
		a.seek = &e
	case reservation.Wait:
		a.wait = &e
	case reservation.Evict:
		a.evict = append(a.evict, e)
	case reservation.Hold:
		if err := p.shares().Hold(e.Hold); err != nil {
			a.unheld = append(a.unheld, unheld{e.Hold.UID, err})
		}
	case reservation.Release:
		p.shares().Release(e.UID)
	default:
		p.tell(effect)
	}
}

// tell carries out an effect on the framework, on people or on counters.
func (p *Plugin) tell(effect reservation.Effect) {
	switch e := effect.(type) {
	case reservation.Open:
		if gate := p.machine.gates[e.Gate]; gate != nil {
			close(gate)
			delete(p.machine.gates, e.Gate)
		}
	case reservation.Allow:
		if waiting := p.handle.GetWaitingPod(uidForFramework(e.UID)); waiting != nil {
			waiting.Allow(Name)
		}
	case reservation.Reject:
		if waiting := p.handle.GetWaitingPod(uidForFramework(e.UID)); waiting != nil {
			waiting.Reject(Name, e.Why)
		}
	case reservation.Activate:
		p.woken.add(p.pods(e.Ref, e.UIDs)...)
	case reservation.Denominate:
		p.woken.addStale(nomination{e.UID, e.Pod, e.Node})
	case reservation.RoomEnded:
		p.machine.ended[e.Ref]()
		delete(p.machine.ended, e.Ref)
	case reservation.Missing:
		for _, pod := range p.pods(e.Ref, e.UIDs) {
			p.event(pod, v1.EventTypeWarning, "FailedScheduling", e.Why)
		}
	case reservation.Start:
		p.started(&e)
	case reservation.Count:
		p.metrics.count(&e)
	}
}

// gate returns what the members of a plan wait for.
func (m *machine) gate(number reservation.Gate) chan struct{} {
	gate := m.gates[number]
	if gate == nil {
		gate = make(chan struct{})
		m.gates[number] = gate
	}
	return gate
}

// pods returns members of a gang.
func (p *Plugin) pods(ref podgroup.Ref, uids []vgpu.UID) []*v1.Pod {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		return nil
	}
	wanted := make(map[vgpu.UID]bool, len(uids))
	for _, uid := range uids {
		wanted[uid] = true
	}
	return slices.DeleteFunc(slices.Clone(pg.Members), func(m *v1.Pod) bool { return !wanted[uidOf(m)] })
}

// facts returns what the API says of a gang: as the informer's store has its members, where the machine goes by the latest, for the
// gang's copy of a member may be behind it.
func (p *Plugin) facts(ref podgroup.Ref) reservation.Facts {
	pg, err := p.gangs.Gang(ref)
	if p.machine.state.Watchful(ref) {
		return p.fresh(ref, pg, err)
	}
	if pg == nil {
		delete(p.machine.known, ref)
		return p.factsOf(ref, nil, err)
	}
	if k, ok := p.machine.known[ref]; ok && k.gang == pg && k.err == err { //nolint:errorlint // the very same
		return k.facts
	}
	f := p.factsOf(ref, pg, err)
	p.machine.known[ref] = cached{pg, err, f}
	return f
}

// fresh returns the facts of a gang by the informer's store.
func (p *Plugin) fresh(ref podgroup.Ref, pg *podgroup.Gang, err error) reservation.Facts {
	if pg == nil {
		return p.factsOf(ref, nil, err)
	}
	latest := *pg
	latest.Members = nil
	for _, m := range pg.Members {
		if m = p.seen(uidOf(m), pathOf(m)); m != nil {
			latest.Members = append(latest.Members, m)
		}
	}
	return p.factsOf(ref, &latest, err)
}

func (p *Plugin) factsOf(ref podgroup.Ref, pg *podgroup.Gang, err error) reservation.Facts {
	f := reservation.Facts{Ref: ref, Queued: p.gangs.Queues(ref.Source)}
	if problem, ok := err.(*podgroup.Problem); ok { //nolint:errorlint // Gang returns it as it is
		f.Problem = &reservation.Problem{Message: problem.Message, Waits: problem.Waits}
	}
	if pg == nil {
		return f
	}
	f.MinCount, f.Members = pg.MinCount, make([]reservation.Member, 0, len(pg.Members))
	for _, m := range pg.Members {
		f.Members = append(f.Members, memberOf(m))
	}
	return f
}

func memberOf(pod *v1.Pod) reservation.Member {
	m := reservation.Member{
		UID: uidOf(pod), Pod: pathOf(pod), Node: pod.Spec.NodeName, Deleted: pod.DeletionTimestamp != nil,
		Gated: len(pod.Spec.SchedulingGates) > 0, Created: pod.CreationTimestamp.Unix(),
	}
	if at := scheduledAt(pod); !at.IsZero() {
		m.Scheduled = at.Unix()
	}
	return m
}

// scheduledAt returns when a pod got its node, zero where it has none.
func scheduledAt(pod *v1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// started tells that all members that must run have a place.
func (p *Plugin) started(e *reservation.Start) {
	if e.Known {
		p.metrics.waited.Observe(e.Waited.Seconds())
	}
	pg, _ := p.gangs.Gang(e.Ref)
	if pg == nil || p.gangs.Queues(e.Ref.Source) {
		return // the condition of a PodGroup that the queue knows says it
	}
	nodes := map[string]bool{}
	for _, node := range e.Nodes {
		nodes[node] = true
	}
	names := slices.Sorted(maps.Keys(nodes))
	p.say(pg, "GangPlaced", "all that must run have a place: "+plural(len(e.Nodes), "member")+" on "+plural(len(names), "node")+": "+few(names))
}
