package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// changed notes that a gang, its object or its members changed. State gives up the places of pods that are gone, and has the
// scheduler try the members that may have a place.
func (m *move) changed(e *Changed) {
	f := &e.Gang
	g := m.gangs[f.Ref]
	if len(f.Members) == 0 {
		m.end(g)
		return
	}
	if g != nil {
		m.prune(g, f)
		m.settle(g, f)
		m.mend(g, f)
		if n := g.reserving(); n != nil && g.lacking(f) != n.lacking {
			m.endReservation(g)
		}
		if m.otherMembers(g, f) {
			m.endRoom(g)
		}
	}
	if f.Problem != nil {
		g = m.group(f.Ref)
		m.impede(g, f)
		m.correct(g, f)
		return
	}
	if g == nil || len(g.places()) == 0 && !g.retry.After(m.now) { // ticked activates a gang that pauses when its time has come
		m.activate(g, f)
	}
}

// impede notes that the scheduler cannot place a gang now: members that must run are missing, or something is wrong with it.
// Enqueued does not come for the gangs that the scheduler's own plugin gates.
func (m *move) impede(g *group, f *Facts) {
	m.endReservation(g)
	if !f.Problem.Waits || !g.started() { // evictions make room for the rest of a running gang all the same
		m.endRoom(g)
	}
	if r := g.refused(); r != nil {
		r.wait = nil
	}
	switch {
	case !f.Problem.Waits && g.Name == "" && f.Queued: // its pods never come out of the scheduler's queue
		m.lack(g, f.Problem.Message)
	case !f.Problem.Waits:
		m.cancel(g, f, f.Problem.Message)
	case !g.started():
		m.lack(g, about(g.Ref, f.Problem.Message))
	}
}

// lack notes that a gang waits for members or for its PodGroup.
func (m *move) lack(g *group, why string) {
	if n, ok := g.need.(*incomplete); ok && n.why == why {
		return
	}
	g.need = &incomplete{why: why, since: m.now}
}

// correct activates the members that Enqueued kept out because others were missing, once something else is wrong with the gang.
// Otherwise their messages would say for ever that members are missing. Tried says what is wrong.
func (m *move) correct(g *group, f *Facts) {
	if _, missing := g.need.(*incomplete); !missing || f.Problem.Waits || f.Queued {
		return
	}
	g.need = nil
	m.activate(g, f)
}

// enqueued keeps members out of the queue until as many exist as must run, and those of a refused gang while the scheduler
// tries its leader. Another problem of a gang is no reason to stay out: Tried says it.
func (m *move) enqueued(e *Enqueued) {
	g := m.group(e.Gang.Ref)
	f := m.afterStart(g, &e.Gang)
	if f.Problem != nil && f.Problem.Waits {
		why := about(g.Ref, f.Problem.Message)
		m.endReservation(g)
		m.endRoom(g)
		m.lack(g, why)
		m.refuse(why)
		return
	}
	r := g.refused()
	if r == nil || !r.notified[e.UID] || f.Leads(e.UID) {
		return
	}
	if _, planned := g.places()[e.UID]; !planned {
		m.do(Refuse{Why: r.Message, Turn: r.turn})
	}
}

// activate has the scheduler try the members of a gang. If the gang is refused, these are the first member that waits, and the
// members that do not know of the refusal.
func (m *move) activate(g *group, f *Facts) {
	var r *refused
	if g != nil {
		r = g.refused()
	}
	var some []vgpu.UID
	leader := true
	for i := range f.Members {
		p := &f.Members[i]
		if !p.Waits() {
			continue
		}
		if leader || r == nil || !r.notified[p.UID] {
			some = append(some, p.UID)
		}
		leader = false
	}
	if len(some) > 0 {
		m.do(Activate{Ref: f.Ref, UIDs: some})
	}
}

// prune gives up the places of members that are gone: with the whole plan where the others are too few.
func (m *move) prune(g *group, f *Facts) {
	m.forgetGone(g, f)
	phase, count := g.phase.phase(), g.boundOf(f)
	switch {
	case (phase == Binding || phase == Running) && len(g.reserves()) == 0 && count == 0:
		m.cancel(g, f, "those that ran have ended") // the others start anew, as a whole
		g.phase = unplaced{}
	case phase == Planned && len(g.places()) == 0:
		m.abandon(g)
	case phase == Planned && len(g.places())+count < f.MinCount:
		m.cancel(g, f, "a member is gone, and those that are left are too few")
	}
}

// abandon ends a plan without places.
func (m *move) abandon(g *group) {
	m.do(Open{Gate: g.phase.(*planned).gate})
	g.phase = unplaced{}
}

// forgetGone removes what State remembers of members that are gone, and the places of those that have a node.
func (m *move) forgetGone(g *group, f *Facts) {
	exists := make(map[vgpu.UID]bool, len(f.Members))
	p := g.plan()
	for i := range f.Members {
		pod := &f.Members[i]
		exists[pod.UID] = !pod.Deleted || pod.Node != ""
		if p == nil || pod.Node == "" {
			continue
		}
		if _, has := p.places[pod.UID]; has {
			m.touch(g)
		}
		delete(p.places, pod.UID) // the hold ends once the informer shows the assignment
		delete(p.reserved, pod.UID)
	}
	for _, uid := range sorted(g.places()) {
		if !exists[uid] {
			m.drop(g, uid)
		}
	}
	for uid := range g.repairs {
		if !exists[uid] {
			delete(g.repairs, uid)
		}
	}
	for uid := range g.bound {
		if !exists[uid] {
			delete(g.bound, uid)
			m.touch(g)
		}
	}
}

// end removes a gang that has no members any more.
func (m *move) end(g *group) {
	if g == nil {
		return
	}
	for _, uid := range sorted(g.places()) {
		m.drop(g, uid)
	}
	if made, ok := g.phase.(*planned); ok {
		m.do(Open{Gate: made.gate})
	}
	m.endReservation(g)
	m.endRoom(g)
	delete(m.gangs, g.Ref)
}

// ticked does what is due for a gang.
func (m *move) ticked(e *Ticked) {
	f := &e.Gang
	if len(f.Members) == 0 {
		m.end(m.gangs[f.Ref])
		return
	}
	g := m.group(f.Ref)
	m.prune(g, f)
	m.settle(g, f)
	m.mend(g, f)
	m.sendBack(g, e.InPermit)
	m.lookAtRoom(g, e)
	switch p := g.phase.(type) {
	case *planned:
		if m.now.Sub(p.made) > m.cfg.Deadline {
			m.cancel(g, f, "its members did not come within "+m.cfg.Deadline.String())
		}
	case *binding:
		if m.now.Sub(p.since) > m.cfg.Deadline {
			m.evictBound(g, f)
			return
		}
	}
	if f.Problem != nil {
		m.notifyMissing(g, f)
		return
	}
	if n := g.reserving(); n != nil && m.now.Sub(n.since) >= m.cfg.Timeout {
		m.endInVain(g, e.Blocked)
	}
	m.repair(g, f)
	if m.due(g) {
		g.retry = time.Time{}
		m.activate(g, f)
	}
}

// sendBack ends the waiting of members in Permit whose plan ended before the framework knew that they wait.
func (m *move) sendBack(g *group, inPermit []vgpu.UID) {
	for _, uid := range inPermit {
		if !g.reserves()[uid] {
			m.do(Reject{UID: uid, Why: g.rejection("its plan was given up meanwhile")})
		}
	}
}

// evictBound has the caller evict the bound members of a gang of which the scheduler bound too few in time.
func (m *move) evictBound(g *group, f *Facts) {
	effect := Evict{Ref: g.Ref}
	for i := range f.Members {
		if g.onNode(&f.Members[i]) {
			effect.UIDs = append(effect.UIDs, f.Members[i].UID)
		}
	}
	m.do(effect)
}

// notifyAfter is how long a gang lacks members, or its PodGroup, before its members get a notice: controllers create them one by
// one.
const notifyAfter = 10 * time.Second

// maxNotified bounds how many members get a notice of what their gang lacks.
const maxNotified = 20

// notifyMissing gives the members of a gang a notice of what it lacks, once for each thing. The scheduler gives notices only to
// pods in its queue, where these are not.
func (m *move) notifyMissing(g *group, f *Facts) {
	n, ok := g.need.(*incomplete)
	if !ok || n.notified || m.now.Sub(n.since) < notifyAfter {
		return
	}
	n.notified = true
	effect := Missing{Ref: g.Ref, Why: n.why}
	for i := range f.Members {
		if f.Members[i].Waits() && len(effect.UIDs) < maxNotified {
			effect.UIDs = append(effect.UIDs, f.Members[i].UID)
		}
	}
	m.do(effect)
}

// repair activates the members whose pause after a failure is over.
func (m *move) repair(g *group, f *Facts) {
	for i := range f.Members {
		uid := f.Members[i].UID
		if r := g.repairs[uid]; !r.At.IsZero() && !m.now.Before(r.At) {
			r.At = time.Time{}
			g.repairs[uid] = r
			m.do(Activate{Ref: g.Ref, UIDs: []vgpu.UID{uid}})
		}
	}
}

// due reports whether the scheduler is to try a gang again although nothing changed: after a failure, and when the time has
// come to keep room for it.
func (m *move) due(g *group) bool {
	if !g.retry.IsZero() {
		return !m.now.Before(g.retry)
	}
	if !g.unlimit.IsZero() && !m.now.Before(g.unlimit) {
		g.unlimit = time.Time{}
		return true
	}
	if g.retriesToSeek && !m.now.Before(g.seekVictimsAt) {
		g.retriesToSeek = false
		return len(g.places()) == 0
	}
	if at, some := m.yieldedAt(g); some && !m.now.Before(at) {
		g.refused().wait.asked = m.now
		return true
	}
	if m.cfg.Drains == gang.NoDrains || !g.seeksRoom(m.now) || m.next(m.now) != g {
		return false
	}
	w := g.refused().wait
	if w.woken.IsZero() {
		w.woken = m.now
	} else if m.now.Sub(w.woken) >= lookPause { // the scheduler cannot try it: others have their turn
		w.look, w.woken = m.now.Add(max(lookPause, m.now.Sub(w.since)/passes)), time.Time{}
		return false
	}
	return true
}
