package reservation

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// planRefused notes why a gang has no plan. On the gang's turn, planRefused requests room to keep for it while pods end.
func (m *move) planRefused(e *PlanRefused) {
	g := m.group(e.Gang.Ref)
	if !m.current(g, e.Version) {
		return
	}
	if e.Void != "" {
		m.voidRoom(g, e.Void)
	}
	if e.Refusal.Reason == Malformed { // there may be room
		m.refuseAll(g, e.UID, e.Refusal)
		m.answerRefusal(g)
		return
	}
	switch r := g.refused(); {
	case e.SkipExplanation && r == nil: // members left meanwhile, and took the reason with them
		m.planAgain(g)
		return
	case e.SkipExplanation:
		r.notified[e.UID] = true
	case e.Surplus != "": // members beyond the least wait by themselves
		m.do(Refuse{Why: e.Surplus, Victims: g.victims()})
		return
	default:
		m.refuseFor(g, e)
	}
	if m.seek(g, e) {
		return
	}
	m.answerRefusal(g)
}

func (g *group) victims() int {
	if r := g.preempting(); r != nil {
		return len(r.Victims)
	}
	return 0
}

// refuseFor notes a new refusal of a gang.
func (m *move) refuseFor(g *group, e *PlanRefused) {
	if e.Refusal.Reason != gang.NoRoom {
		m.endReservation(g)
	}
	m.refuseAll(g, e.UID, e.Refusal)
	r := g.refused()
	switch {
	case e.Refusal.Reason != gang.NoRoom:
		r.wait = nil
	case r.wait == nil:
		r.wait = &wait{since: m.now, look: m.now.Add(m.cfg.After)}
	}
	g.unlimit = time.Time{}
	for _, l := range g.limits {
		if g.unlimit.IsZero() || l.Until.Before(g.unlimit) {
			g.unlimit = l.Until
		}
	}
}

// seek describes the room that State keeps for a gang, and reports whether it requests room.
func (m *move) seek(g *group, e *PlanRefused) bool {
	r := g.refused()
	r.turn = Turn{}
	if g.preempting() != nil || r.wait == nil || m.cfg.Drains == gang.NoDrains {
		return false
	}
	if n := g.reserving(); n != nil && (!e.Kept.Stands || n.lacking != e.Refusal.Lacking) {
		m.endReservation(g)
		r = g.refused()
	}
	if n := g.reserving(); n != nil {
		n.turn = m.turnOf(g, n, &e.Kept)
		return false
	}
	if ahead := m.before(g); ahead != nil {
		r.turn = Turn{Kind: Behind, Ahead: ahead.Ref}
		return false
	}
	if m.now.Before(r.wait.look) {
		r.turn = notYet(r.wait.later)
		return false
	}
	r.wait.woken = time.Time{}
	avoid := map[string]bool{}
	for node := range g.failed {
		avoid[node] = true
	}
	m.do(SeekRoom{Avoid: avoid, Since: r.wait.since})
	return true
}

func notYet(text string) Turn {
	if text == "" {
		return Turn{}
	}
	return Turn{Kind: NotYet, Text: text}
}

// turnOf describes the room that State keeps for a gang, and ends it where State keeps it in vain. In that case the devices are
// free, the blockers are gone, and the gang still does not fit.
func (m *move) turnOf(g *group, n *reserving, kept *KeptRoom) Turn {
	if len(kept.Taken) > 0 {
		return n.kept(m.now)
	}
	nodes := kept.Short
	if len(nodes) == 0 {
		nodes = n.room.Nodes()
	}
	m.endInVain(g, nodes)
	turn := Turn{Kind: InVain, Nodes: kept.Short}
	g.refused().turn = turn
	return turn
}

// kept describes the room.
func (n *reserving) kept(now time.Time) Turn {
	t := Turn{Kind: Kept}
	for i := range n.holds {
		t.Nodes = append(t.Nodes, n.holds[i].Node)
	}
	slices.Sort(t.Nodes)
	t.Nodes = slices.Compact(t.Nodes)
	t.Left = max(0, time.Unix(n.until, 0).Sub(now))
	return t
}

// forget drops the hold of a member that failed.
func (n *reserving) forget(uid vgpu.UID) {
	n.holds = slices.DeleteFunc(n.holds, func(h vgpu.Hold) bool { return h.UID == uid })
}

// before returns the gang that has room kept, or whose turn it is, before another, nil for none.
func (m *move) before(g *group) *group {
	if other := m.gangs[m.reserving]; other != nil && g.priority <= other.priority {
		return other
	}
	if next := m.next(m.now); next != g && !m.now.Before(g.refused().wait.look) {
		return next
	}
	return nil
}

// roomSought keeps room for a gang while pods end, or notes why there is none to keep.
func (m *move) roomSought(e *RoomSought) {
	g := m.group(e.Ref)
	r := g.refused()
	if r == nil || r.wait == nil || g.preempting() != nil {
		m.refuse("gang " + g.String() + " changed while room was sought for it: it is planned again")
		return
	}
	if e.Anywhere {
		clear(g.failed)
	}
	if e.Found == nil {
		r.wait.look = m.now.Add(max(lookPause, m.now.Sub(r.wait.since)/passes))
		r.wait.later = e.Later
		r.turn = notYet(e.Later)
		m.answerRefusal(g)
		return
	}
	m.endReservation(m.gangs[m.reserving])
	n := &reserving{refused: *r, holds: slices.Clone(e.Holds), since: m.now, until: e.Found.Until, lacking: r.Lacking}
	n.room = gang.Kept{Places: e.Found.Places, Blockers: e.Found.Blockers}
	g.need, m.reserving = n, g.Ref
	for _, h := range e.Holds {
		m.do(Hold{Hold: h})
	}
	n.turn = n.kept(m.now)
	m.do(Count{What: Reservations})
	m.answerRefusal(g)
}

// endInVain ends a reservation that came to nothing on some nodes, and lets the next gang have its turn: the gang itself waits, each
// time twice as long.
func (m *move) endInVain(g *group, nodes []string) {
	m.endReservation(g)
	g.refused().wait.look = m.now.Add(m.voidPause(g.inVain))
	g.inVain++
	for _, name := range nodes {
		g.failed[name] = true
	}
}

// endReservation gives up the room that State keeps for a gang while pods end.
func (m *move) endReservation(g *group) {
	if g == nil {
		return
	}
	n := g.reserving()
	if n == nil {
		return
	}
	for i := range n.holds {
		m.do(Release{UID: n.holds[i].UID})
	}
	refusal := n.refused
	g.need, m.reserving = &refusal, Ref{}
	m.retryRefused()
}

// retryRefused has the scheduler try all gangs that wait for room: some may be free now.
func (m *move) retryRefused() {
	for _, g := range m.gangs {
		if g.refused().lacksRoom() && g.retry.IsZero() {
			g.retry = m.now
		}
	}
}
