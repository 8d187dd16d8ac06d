package reservation

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Evictions numbers the evictions that State began together for one preemptor, 0 for none.
type Evictions uint64

// Chosen is a pod that the scheduler is to evict.
type Chosen struct {
	UID vgpu.UID
	// Until is when the pod is gone at the latest.
	Until time.Time
	// Budgets are those that the pod counts against, as they were at the choice.
	Budgets []Stamp
}

// Stamp is one state of a PodDisruptionBudget. The disruption controller writes what a budget allows a moment after a pod
// leaves. Another preemptor may come before that, and would see that as many may go as before. So State charges victims to
// their budgets for as long as these are as they were.
//
// A controller that writes a budget for another reason, before it has seen the victim leave, ends the charge too early.
type Stamp struct{ Name, Version string }

// preemptions is what State remembers of evictions, for pods and for gangs.
type preemptions struct {
	// pods are the single pods for which the scheduler evicts pods, or wanted to.
	pods map[vgpu.UID]*preemptor
	// evictions are under way, by preemptor. begun counts them.
	evictions map[Preemptor]Evictions
	begun     Evictions
	// chosen are the victims, until they are gone, or stay.
	chosen    map[vgpu.UID]Chosen
	allowance allowance
}

func newPreemptions(perMinute int) preemptions {
	return preemptions{
		pods: map[vgpu.UID]*preemptor{}, evictions: map[Preemptor]Evictions{}, chosen: map[vgpu.UID]Chosen{},
		allowance: newAllowance(perMinute),
	}
}

// PodPreemptor names a pod as preemptor.
func PodPreemptor(uid vgpu.UID) Preemptor { return Preemptor{Pod: uid} }

// GangPreemptor names a gang as preemptor.
func GangPreemptor(ref Ref) Preemptor { return Preemptor{Gang: ref} }

// evicts reports whether evictions for a preemptor are under way.
func (s *State) evicts(id Preemptor) bool { return s.evictions[id] != 0 }

// affords takes so many evictions out of the allowance and returns 0, or has the preemptor wait for its turn.
func (m *move) affords(id Preemptor, priority int32, count int) time.Duration {
	wait, isNew := m.allowance.request(id, priority, count, m.now)
	if isNew {
		m.do(Count{What: Deferrals})
	}
	if wait > 0 {
		m.do(Defer{Wait: wait})
	}
	return wait
}

// evictionsWanted begins the evictions for a gang, where they are within the allowance.
func (m *move) evictionsWanted(e *EvictionsWanted) {
	id := GangPreemptor(e.Ref)
	g := m.gangs[e.Ref]
	if g == nil || g.preempting() == nil {
		m.refuse("the room that was made for it is given up")
		return
	}
	if m.affords(id, e.Priority, len(e.Evict)) == 0 && len(e.Evict) > 0 {
		g.preempting().evictions = m.beginEvictions(id, e.Evict)
	}
}

// beginEvictions has the caller evict pods. The evictions replace stopped ones for the same preemptor that are not over yet: a
// gang may come again under its name.
func (m *move) beginEvictions(id Preemptor, evict []Chosen) Evictions {
	m.begun++
	m.evictions[id] = m.begun
	for _, c := range evict {
		m.chosen[c.UID] = c
	}
	m.do(BeginEvictions{Number: m.begun})
	return m.begun
}

// stopEvictions has the caller evict no further pods for a preemptor. The caller finishes sent requests, so the evictions end
// later.
func (m *move) stopEvictions(id Preemptor) {
	if number := m.evictions[id]; number != 0 {
		m.do(StopEvictions{Number: number})
	}
}

// evictionsEnded notes that evictions are over. After a failure those pods stay chosen whose eviction the caller requested.
// State gives up the room that the evictions were to make, and that of other pods which wait for a pod that stays.
func (m *move) evictionsEnded(e *EvictionsEnded) {
	isLast := m.evictions[e.Preemptor] == e.Number
	if isLast {
		delete(m.evictions, e.Preemptor)
	}
	p := m.pods[e.Preemptor.Pod]
	hasRoom := p.room() != nil && p.room().evictions == e.Number
	if e.Preemptor.Pod != "" && isLast && (e.Why == "" || !hasRoom) {
		m.do(ActivatePods{Pods: []PodRef{e.Pod}}) // Enqueued may have kept it out
	}
	if e.Why == "" {
		return
	}
	before := len(m.chosen)
	for _, uid := range e.Evict {
		if !slices.Contains(e.Asked, uid) {
			delete(m.chosen, uid)
		}
	}
	if len(m.chosen) < before {
		m.budgetsEased()
	}
	if hasRoom {
		m.endPodRoom(p, e.Why)
	}
	if g := m.gangs[e.Preemptor.Gang]; g != nil && g.preempting() != nil && g.preempting().evictions == e.Number {
		m.giveUp(g, "an eviction failed: "+e.Why, evictionsFailedPause)
	}
	m.endHopeless(e.Stay)
}

// endHopeless ends the room of pods that wait for another preemptor's victim that stays.
func (m *move) endHopeless(stay []vgpu.UID) {
	stays := func(v PodRef) bool {
		_, isChosen := m.chosen[v.UID]
		return !isChosen && slices.Contains(stay, v.UID)
	}
	for _, uid := range sorted(m.pods) {
		if r := m.pods[uid].room(); r != nil && slices.ContainsFunc(r.Victims, stays) {
			m.endPodRoom(m.pods[uid], "")
		}
	}
}

// victimWithdrawn notes that a victim lost its place before its bind: it exists on, and may get another place.
func (m *move) victimWithdrawn(e *VictimWithdrawn) {
	if _, isChosen := m.chosen[e.UID]; isChosen {
		delete(m.chosen, e.UID)
		m.budgetsEased()
	}
	if r := m.pods[e.Preemptor.Pod].room(); r != nil {
		r.withdrawn[e.UID] = m.now
	}
}

// victimGone notes that a pod is gone, whether it was a victim or not.
func (m *move) victimGone(e *VictimGone) { delete(m.chosen, e.UID) }

// budgetsEased activates the pods that wait for a PodDisruptionBudget to allow more.
func (m *move) budgetsEased() {
	m.retryPods(func(p *preemptor) bool { return p.OnBudgets })
}

// secondPassed activates the pods whose time has come, and drops victims that are overdue, which budgets are then not charged with.
func (m *move) secondPassed() {
	m.retryPods(func(p *preemptor) bool { return !p.Retry.IsZero() && !m.now.Before(p.Retry) })
	before := len(m.chosen)
	maps.DeleteFunc(m.chosen, func(_ vgpu.UID, c Chosen) bool { return m.now.After(c.Until) })
	if len(m.chosen) < before {
		m.budgetsEased()
	}
}

// retryPods activates the pods that are due.
func (m *move) retryPods(due func(*preemptor) bool) {
	retried := make([]PodRef, 0, len(m.pods))
	for _, uid := range sorted(m.pods) {
		p := m.pods[uid]
		if !due(p) {
			continue
		}
		retried = append(retried, p.PodRef)
		p.Retry, p.OnBudgets = time.Time{}, false
		m.forgetIdle(p)
	}
	if len(retried) > 0 {
		m.do(ActivatePods{Pods: retried})
	}
}

// Evicts reports whether evictions for a preemptor are under way: the scheduler would try it in vain meanwhile.
func (s *State) Evicts(id Preemptor) bool { return s.evicts(id) }

// IsChosen reports whether a pod is a victim that is not overdue.
func (s *State) IsChosen(uid vgpu.UID, now time.Time) bool {
	return !now.After(s.chosen[uid].Until) // the zero time of any other pod is over
}

// Victims returns the victims that are not overdue, with the time by which they are gone.
func (s *State) Victims(now time.Time) map[vgpu.UID]time.Time {
	all := make(map[vgpu.UID]time.Time, len(s.chosen))
	for uid, c := range s.chosen {
		if !now.After(c.Until) {
			all[uid] = c.Until
		}
	}
	return all
}

// EvictionDelay returns how long the eviction rate limit makes a preemptor wait for one eviction.
func (s *State) EvictionDelay(id Preemptor, priority int32, now time.Time) time.Duration {
	return s.allowance.wait(id, claim{count: 1, priority: priority, since: now}, now)
}

// Charges counts the victims that State charges to each state of a budget.
func (s *State) Charges() map[Stamp]int {
	counts := map[Stamp]int{}
	for _, c := range s.chosen {
		for _, at := range c.Budgets {
			counts[at]++
		}
	}
	return counts
}

// PodRooms returns the pods for which State keeps room while victims leave, in order.
func (s *State) PodRooms() []PodRef {
	var all []PodRef
	for _, uid := range sorted(s.pods) {
		if s.pods[uid].room() != nil {
			all = append(all, s.pods[uid].PodRef)
		}
	}
	return all
}

// PodRoom returns the phase of a pod and the room that State keeps for it, nil for none.
func (s *State) PodRoom(uid vgpu.UID) (PodPhase, *PodRoom) {
	p := s.pods[uid]
	if p.room() == nil {
		return Roomless, nil
	}
	return p.phase.phase(), p.room()
}

// PodPauses returns when the scheduler tries a pod again, and what failed before.
func (s *State) PodPauses(uid vgpu.UID) PodPauses {
	if p := s.pods[uid]; p != nil {
		return p.PodPauses
	}
	return PodPauses{}
}

// PassedOver returns the pods of a lower priority whose room on a node a place takes, in order. The ledger is that of the node
// without all holds; nil says that the place does not fit there.
func (s *State) PassedOver(place *vgpu.Assignment, priority int32, ledger *vgpu.Node) []vgpu.UID {
	if ledger == nil || ledger.Add(*place) != nil {
		return nil
	}
	var all []vgpu.UID
	for _, uid := range sorted(s.pods) {
		r := s.pods[uid].room()
		if r != nil && uid != place.UID && r.Place.Node == place.Node && r.Priority < priority && ledger.Clone().Add(r.Place) != nil {
			all = append(all, uid)
		}
	}
	return all
}
