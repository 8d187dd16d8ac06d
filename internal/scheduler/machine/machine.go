package machine

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Shares keeps devices for pods: the plugin GPUShare.
type Shares interface {
	// Hold keeps room for a pod, in place of an earlier hold of the pod.
	Hold(h vgpu.Hold) error
	// Release ends the hold of a pod.
	Release(uid vgpu.UID) bool
}

// Gangs knows which pods form a gang: a *podgroup.Set.
type Gangs interface {
	// Of returns the gang that a pod names, and whether it names one: always the same for one object of the pod.
	Of(pod *v1.Pod) (podgroup.Ref, bool)
	// Gang returns what the API says of a gang. The error is a *podgroup.Problem.
	Gang(ref podgroup.Ref) (*podgroup.Gang, error)
	// Queues reports whether the scheduler's queue knows the gangs of a source itself.
	Queues(source podgroup.Source) bool
}

// Metrics counts what the machine did.
type Metrics interface{ Count(e *reservation.Count) }

// Machine is the state machine behind its lock.
type Machine struct {
	shares func() Shares

	mu      sync.Mutex
	state   *reservation.State
	handle  fwk.Handle
	gangs   Gangs
	now     func() time.Time
	started func(*reservation.Start)
	metrics []Metrics
	// gates are the channels on which members wait in Bind.
	gates map[reservation.Gate]chan struct{}
	// stops ends evictions that are under way.
	stops map[reservation.Evictions]context.CancelFunc
	// known are the last facts of gangs.
	known       map[podgroup.Ref]cachedFacts
	activations activations
}

// New returns a machine without reservations. shares returns the plugin GPUShare, nil where the scheduler has none: the
// framework makes the plugins of a profile in no fixed order.
func New(shares func() Shares) *Machine {
	return &Machine{
		shares: shares, state: reservation.New(reservation.Config{}), now: time.Now, gates: map[reservation.Gate]chan struct{}{},
		stops: map[reservation.Evictions]context.CancelFunc{}, known: map[podgroup.Ref]cachedFacts{},
	}
}

// Joined is the part of a plugin in the machine.
type Joined struct {
	// Handle is the framework's, Now the clock, nil for the real one.
	Handle  fwk.Handle
	Now     func() time.Time
	Metrics Metrics
	// Gangs knows which pods form a gang. The machine calls Started when all required members have a place, with the
	// lock held. Both are nil where the plugin knows nothing of gangs.
	Gangs   Gangs
	Started func(*reservation.Start)
	// Configure sets what the plugin's arguments say.
	Configure func(*reservation.Config)
}

// Join adds the part of a plugin at its start.
func (m *Machine) Join(j Joined) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == nil { // another plugin may use the handle by now
		m.handle = j.Handle
	}
	if j.Now != nil {
		m.now = j.Now
	}
	if j.Gangs != nil {
		m.gangs, m.started = j.Gangs, j.Started
	}
	m.metrics = append(m.metrics, j.Metrics)
	m.state.Configure(j.Configure)
}

// Gangs returns which pods form a gang, nil where no plugin knows: pods belong to no gang then.
func (m *Machine) Gangs() Gangs {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gangs
}

// GangOf returns the gang that a pod names, and whether it names one.
func (m *Machine) GangOf(pod *v1.Pod) (podgroup.Ref, bool) {
	if gangs := m.Gangs(); gangs != nil {
		return gangs.Of(pod)
	}
	return podgroup.Ref{}, false
}

// Locked is the machine under its lock. The value is valid until the function that got it returns.
type Locked struct {
	m *Machine
	// State answers questions.
	State *reservation.State
}

// Lock runs a function with the lock held.
func (m *Machine) Lock(do func(Locked)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do(Locked{m, m.state})
}

// Step takes one event, which build returns, and carries out its effects.
func (m *Machine) Step(build func(Locked) reservation.Event) (a Answer) {
	m.Lock(func(l Locked) { a = l.Step(build(l)) })
	return a
}

// Answer is what effects say to the caller of Step.
type Answer struct {
	Place  *reservation.Place
	Refuse *reservation.Refuse
	Plan   *reservation.Plan
	Seek   *reservation.SeekRoom
	Wait   *reservation.Wait
	Evict  []reservation.Evict
	Unheld []Unheld
	// The fields below answer events about single pods and evictions.
	Leaving *reservation.StillLeaving
	Nothing *reservation.CameToNothing
	Others  *reservation.SeekOthers
	Defer   *reservation.Defer
	Begin   *reservation.BeginEvictions
}

// Unheld is a pod for which the machine could not hold devices.
type Unheld struct {
	UID vgpu.UID
	Err error
}

// Step takes one event and carries out its effects.
func (l Locked) Step(e reservation.Event) Answer {
	var a Answer
	for _, effect := range l.State.Step(e, l.m.now()) {
		if !a.take(effect) && !l.m.hold(effect, &a) {
			l.m.carryOut(effect)
		}
	}
	return a
}

// Settle takes an event about a member that has devices held, and reports to the state those that the machine could not
// hold.
func (l Locked) Settle(ref podgroup.Ref, uid vgpu.UID, e reservation.Event) Answer {
	a := l.Step(e)
	for _, lost := range a.Unheld {
		b := l.Step(reservation.HoldFailed{Gang: l.Facts(ref), UID: uid, Pod: lost.UID, Why: lost.Err.Error()})
		if b.Refuse != nil {
			a.Place, a.Refuse = nil, b.Refuse
		}
	}
	return a
}

// take takes an effect that is an answer, and reports whether it is one.
func (a *Answer) take(effect reservation.Effect) bool {
	switch e := effect.(type) {
	case reservation.Give:
		a.Place = &e.Place
	case reservation.Refuse:
		a.Refuse = &e
	case reservation.Plan:
		a.Plan = &e
	case reservation.SeekRoom:
		a.Seek = &e
	case reservation.Wait:
		a.Wait = &e
	case reservation.Evict:
		a.Evict = append(a.Evict, e)
	case reservation.StillLeaving:
		a.Leaving = &e
	case reservation.CameToNothing:
		a.Nothing = &e
	case reservation.SeekOthers:
		a.Others = &e
	case reservation.Defer:
		a.Defer = &e
	case reservation.BeginEvictions:
		a.Begin = &e
	default:
		return false
	}
	return true
}

// hold carries out an effect on devices, and reports whether it is one.
func (m *Machine) hold(effect reservation.Effect, a *Answer) bool {
	switch e := effect.(type) {
	case reservation.Hold:
		if err := m.shares().Hold(e.Hold); err != nil {
			a.Unheld = append(a.Unheld, Unheld{e.Hold.UID, err})
		}
	case reservation.Release:
		m.shares().Release(e.UID)
	default:
		return false
	}
	return true
}

// carryOut carries out an effect on the framework, on events for users or on counters.
func (m *Machine) carryOut(effect reservation.Effect) {
	switch e := effect.(type) {
	case reservation.Open:
		if gate := m.gates[e.Gate]; gate != nil {
			close(gate)
			delete(m.gates, e.Gate)
		}
	case reservation.StopEvictions:
		if stop := m.stops[e.Number]; stop != nil {
			stop()
		}
	case reservation.Allow:
		if waiting := m.handle.GetWaitingPod(types.UID(e.UID)); waiting != nil {
			waiting.Allow(gangPlugin)
		}
	case reservation.Reject:
		if waiting := m.handle.GetWaitingPod(types.UID(e.UID)); waiting != nil {
			waiting.Reject(gangPlugin, e.Why)
		}
	case reservation.Activate:
		m.activations.add(m.members(e.Ref, e.UIDs)...)
	case reservation.ActivatePods:
		for _, ref := range e.Pods {
			if pod := m.Seen(ref.UID, ref.Pod); pod != nil {
				m.activations.add(pod)
			}
		}
	case reservation.Denominate:
		m.activations.addStale(nomination{e.UID, e.Pod, e.Node})
	case reservation.Missing:
		for _, pod := range m.members(e.Ref, e.UIDs) {
			m.event(pod, v1.EventTypeWarning, "FailedScheduling", e.Why)
		}
	case reservation.Start:
		m.started(&e)
	case reservation.Count:
		for _, counter := range m.metrics {
			counter.Count(&e)
		}
	}
}

// gangPlugin is the plugin on whose behalf members wait in Permit.
const gangPlugin = "GPUGang"

// Gate returns the channel on which a reserved member waits before its bind, nil for none, and whether the member has a
// reservation.
func (m *Machine) Gate(ref podgroup.Ref, uid vgpu.UID) (gate chan struct{}, isReserved bool) {
	m.Lock(func(l Locked) {
		var number reservation.Gate
		if number, isReserved = l.State.Gate(ref, uid); number == 0 || !isReserved {
			return
		}
		if gate = m.gates[number]; gate == nil {
			gate = make(chan struct{})
			m.gates[number] = gate
		}
	})
	return gate, isReserved
}

// Evictions returns a context that ends when the state stops evictions, or with the returned function, which also drops
// them.
func (l Locked) Evictions(ctx context.Context, number reservation.Evictions) (context.Context, func()) {
	ctx, stop := context.WithCancel(ctx)
	l.m.stops[number] = stop
	return ctx, func() {
		stop()
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.stops, number)
	}
}

// Pods returns members of a gang.
func (m *Machine) Pods(ref podgroup.Ref, uids []vgpu.UID) (pods []*v1.Pod) {
	m.Lock(func(Locked) { pods = m.members(ref, uids) })
	return pods
}

// members returns members of a gang. The caller holds the lock.
func (m *Machine) members(ref podgroup.Ref, uids []vgpu.UID) []*v1.Pod {
	pg, _ := m.gangs.Gang(ref)
	if pg == nil {
		return nil
	}
	wanted := make(map[vgpu.UID]bool, len(uids))
	for _, uid := range uids {
		wanted[uid] = true
	}
	return slices.DeleteFunc(slices.Clone(pg.Members), func(p *v1.Pod) bool { return !wanted[vgpu.UID(p.UID)] })
}

// event writes an event about a pod.
func (m *Machine) event(about *v1.Pod, kind, reason, message string) {
	if recorder := m.handle.EventRecorder(); recorder != nil {
		recorder.Eventf(about, nil, kind, reason, kube.EventAction(message), "%s", message)
	}
}
