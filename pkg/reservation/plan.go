package reservation

import (
	"fmt"
	"maps"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// tried answers for a member that the scheduler tries.
func (m *move) tried(e *Tried) {
	g := m.group(e.Gang.Ref)
	if r := g.preempting(); r != nil && r.dryRun {
		m.giveInDryRun(r, e.UID)
		return
	}
	if m.vacates(g, &e.Gang) {
		m.refuse(about(g.Ref, "its members are being evicted, and it starts anew when they are gone"))
		return
	}
	f := m.afterStart(g, &e.Gang)
	if f.Problem != nil {
		m.refuse(about(g.Ref, f.Problem.Message))
		return
	}
	if _, missing := g.need.(*incomplete); missing {
		g.need = nil
	}
	g.grouped, g.priority, g.never = e.Grouped, e.Priority, e.Never
	if pause := g.memberPause(e.UID, m.now); pause > 0 {
		// The scheduler's own backoff is none where it has nothing else to try.
		m.refuse(fmt.Sprintf("gang %s: the place of the pod is kept, and it is tried again in %v", g.Ref, pause.Round(time.Second)))
		return
	}
	at, has := g.places()[e.UID]
	if has && e.Stands {
		m.do(Give{Place: at})
		return
	}
	r := g.refused()
	if r != nil && (e.Again || !e.Grouped && !f.Leads(e.UID) && len(g.places()) == 0) {
		r.notified[e.UID] = true
		m.do(Refuse{Why: r.Message, Turn: r.turn})
		return
	}
	m.askForPlan(g, f, e, has)
}

// giveInDryRun gives a member its place in the room that evictions make.
func (m *move) giveInDryRun(r *preempting, uid vgpu.UID) {
	if at, ok := r.Places[uid]; ok {
		m.do(Give{Place: at})
		return
	}
	m.refuse("no room is made for the pod: its gang may run without it")
}

// askForPlan requests places for the members that have none. lost: the tried member had one, which stands no more.
func (m *move) askForPlan(g *group, f *Facts, e *Tried, lost bool) {
	if pause := g.retry.Sub(m.now); pause > 0 {
		// The queue's own backoff is none where it has nothing else to try, and two gangs could have each other tried for ever.
		m.refuse(fmt.Sprintf("gang %s is planned again in %v: its last plan came to nothing", g.Ref, pause.Round(time.Second)))
		return
	}
	m.do(Count{What: Attempts})
	if lost {
		m.lose(g, f, e)
	}
	if g.arrived.IsZero() {
		g.arrived = m.now
	}
	maps.DeleteFunc(g.limits, func(_ string, l Limit) bool { return !m.now.Before(l.Until) })
	g.keepLeaving(e.Still)
	if len(g.leaving) > 0 {
		m.refuse("gang " + g.String() + " is planned anew when the members of its last plan are taken back")
		return
	}
	m.adopt(g, f)
	m.do(Plan{Version: g.version})
}

// keepLeaving drops the members of an ended plan that the scheduler does not count on their nodes any more.
func (g *group) keepLeaving(still []vgpu.UID) {
	stillLeaving := map[vgpu.UID]string{}
	for _, uid := range still {
		if node, leaves := g.leaving[uid]; leaves {
			stillLeaving[uid] = node
		}
	}
	g.leaving = stillLeaving
}

// lose drops the place of a member whose node or devices are gone: with the whole plan before the scheduler binds the members,
// alone after that.
func (m *move) lose(g *group, f *Facts, e *Tried) {
	if g.phase.phase() == Planned {
		m.cancel(g, f, "the room of pod "+e.Pod+" is lost: its node or its devices are gone")
		return
	}
	m.drop(g, e.UID)
	m.do(Count{What: RepairsMoved})
}

// current reports whether an answer is about the present state of a gang. If it is not, the scheduler tries the gang again.
func (m *move) current(g *group, v Version) bool {
	if g.version != v {
		m.planAgain(g)
	}
	return g.version == v
}

// planAgain refuses a member whose gang is no more as it was when the plan was sought.
func (m *move) planAgain(g *group) {
	if g.retry.IsZero() {
		g.retry = m.now
	}
	m.refuse("gang " + g.String() + " changed while it was planned: it is planned again")
}

// planFound keeps the places of a plan.
func (m *move) planFound(e *PlanFound) {
	g := m.group(e.Gang.Ref)
	if !m.current(g, e.Version) {
		return
	}
	m.endReservation(g)
	room := g.preempting()
	p := m.planOf(g)
	p.preempted = room != nil
	for _, at := range e.Places {
		at.Pinned = at.Held() || g.failures > 0
		if at.Held() {
			m.do(Hold{Hold: vgpu.Hold{Assignment: at.Assignment, Priority: g.priority}})
		}
		p.places[at.UID] = at
	}
	m.touch(g)
	m.endRoom(g)
	g.need, g.retry, g.inVain, g.noVictimsReason, g.fruitlessSearches = nil, time.Time{}, 0, "", 0
	clear(g.failed)
	at, has := p.places[e.UID]
	if !has {
		m.refuse(Surplus(g.Ref, e.Have, ""))
		return
	}
	m.do(Give{Place: at})
	if !g.grouped && len(e.Others) > 0 {
		m.do(Activate{Ref: g.Ref, UIDs: e.Others})
	}
}

// planOf returns the plan of a gang, a new one for an Unplaced gang.
func (m *move) planOf(g *group) *plan {
	if p := g.plan(); p != nil {
		return p
	}
	m.gates++
	next := &planned{plan: newPlan(), made: m.now, gate: m.gates}
	g.phase = next
	return &next.plan
}

// Surplus says that a gang may run without a member. Why says why the member has no place, "" for nothing.
func Surplus(ref Ref, placed int, why string) string {
	text := fmt.Sprintf("gang %s has places for %d members, enough to run, and none for this pod", ref, placed)
	if why != "" {
		text += ": it " + why
	}
	return text
}

// about names the gang that a message is about.
func about(ref Ref, message string) string { return "gang " + ref.String() + ": " + message }

// drop removes one place, with its hold.
func (m *move) drop(g *group, uid vgpu.UID) {
	p := g.plan()
	if at := p.places[uid]; at.Held() {
		m.do(Release{UID: uid})
	}
	m.touch(g)
	delete(p.places, uid)
	delete(p.reserved, uid)
}

// cancel ends the plan of a gang: it releases all holds, rejects members that wait, and has the scheduler try the gang later.
// Bound members stay.
func (m *move) cancel(g *group, f *Facts, why string) {
	p := g.plan()
	if p == nil || len(p.places) == 0 {
		return
	}
	why = g.rejection(why)
	for _, uid := range sorted(p.places) {
		if p.reserved[uid] {
			g.leaving[uid] = p.places[uid].Node
		}
		m.do(Reject{UID: uid, Why: why})
		m.drop(g, uid)
	}
	if made, ok := g.phase.(*planned); ok {
		m.do(Open{Gate: made.gate})
	}
	if g.phase.phase() == Planned || g.boundOf(f) == 0 {
		g.phase = unplaced{}
	}
	g.forgetNotified()
	g.fail(m.now)
	if p.preempted { // the room of these evictions came to nothing
		g.seekVictimsAt = m.now.Add(m.voidPause(g.voidRooms))
		g.voidRooms++
	}
	m.do(Count{What: Cancelled})
}

// rejection says why the scheduler rejects members that wait at their places, in other words than the last time. The
// scheduler's queue of Kubernetes 1.37 now and then loses a pod that comes back from Permit (kubernetes#139186). A change of
// the pod's condition brings it back.
func (g *group) rejection(why string) string {
	text := about(g.Ref, why)
	if g.failures > 0 {
		text += fmt.Sprintf(" (%d plans in a row came to nothing)", g.failures+1)
	}
	return text
}

// forgetNotified has all members get the reason anew why the gang has no plan.
func (g *group) forgetNotified() {
	if r := g.refused(); r != nil {
		clear(r.notified)
	}
}

// refuseAll notes why a gang has no plan, for its other members, and that the tried member gets a notice of it.
func (m *move) refuseAll(g *group, uid vgpu.UID, refusal Refusal) {
	r := g.refused()
	if r == nil {
		r = &refused{notified: map[vgpu.UID]bool{}}
		g.need = r
	}
	if r.Reason != refusal.Reason {
		clear(r.notified)
		m.do(Count{What: Refusals, Reason: refusal.Reason})
	}
	if r.Lacking == 0 && refusal.Lacking > 0 {
		r.lacks = m.now
	}
	r.Refusal, r.at, r.turn = refusal, m.now, Turn{}
	r.notified[uid] = true
}

// holdFailed gives up what GPUShare could not hold.
func (m *move) holdFailed(e *HoldFailed) {
	g := m.group(e.Gang.Ref)
	switch n := g.need.(type) {
	case *reserving:
		n.forget(e.Pod)
		return
	case *preempting:
		m.endRoom(g)
		return
	}
	m.cancel(g, &e.Gang, e.Why)
	m.refuseAll(g, e.UID, Refusal{Reason: gang.NoRoom, Message: e.Why})
	m.answerRefusal(g)
}

// answerRefusal answers with the refusal of a gang.
func (m *move) answerRefusal(g *group) {
	r, victims := g.refused(), 0
	if room := g.preempting(); room != nil {
		victims = len(room.Victims)
	}
	m.do(Refuse{Why: r.Message, Turn: r.turn, Victims: victims})
}
