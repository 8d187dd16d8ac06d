package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// reserved notes that a member is at its place.
func (m *move) reserved(e *Reserved) {
	g := m.group(e.Ref)
	if _, has := g.places()[e.UID]; !has {
		m.refuse(GivenUp)
		return
	}
	g.plan().reserved[e.UID] = true
}

// GivenUp says that the plan of a gang ended while a member was on its way.
const GivenUp = "the plan of the gang was given up meanwhile"

// permitted lets a member wait until as many as must run are at their places, and then has all of them bound.
func (m *move) permitted(e *Permitted) {
	g := m.group(e.Gang.Ref)
	if p := g.phase.phase(); p == Binding || p == Running {
		return
	}
	if len(e.Gang.Members) == 0 {
		m.refuse("the gang is gone")
		return
	}
	if g.boundOf(&e.Gang)+len(g.reserves()) < e.Gang.MinCount {
		m.do(Wait{Briefly: g.grouped})
		return
	}
	m.bindAll(g, false)
}

// bindAll lets the scheduler bind all members that are at their places. isRunning: as many as must run have a node already.
func (m *move) bindAll(g *group, isRunning bool) {
	p := newPlan()
	if made, ok := g.phase.(*planned); ok {
		p = made.plan
		m.letGo(made)
	}
	g.failures = 0
	start := Start{Ref: g.Ref, Known: !g.arrived.IsZero()}
	if start.Known {
		start.Waited = m.now.Sub(g.arrived)
	}
	for _, uid := range sorted(p.places) {
		start.Nodes = append(start.Nodes, p.places[uid].Node)
	}
	g.arrived = time.Time{}
	if isRunning {
		g.phase = &running{plan: p}
	} else {
		g.phase = &binding{plan: p, since: m.now}
	}
	m.do(start)
}

// letGo lets the scheduler bind the members of a plan that are at their places.
func (m *move) letGo(p *planned) {
	m.do(Open{Gate: p.gate})
	for _, uid := range sorted(p.reserved) {
		m.do(Allow{UID: uid})
	}
}

// unreserved ends the plan when a member fails before the scheduler may bind the members: all or none. After that it keeps the
// place, and the member comes back to it.
func (m *move) unreserved(e *Unreserved) {
	g := m.gangs[e.Gang.Ref]
	if g == nil || !g.reserves()[e.UID] {
		return
	}
	if g.phase.phase() == Planned {
		m.cancel(g, &e.Gang, "member "+nameOf(e.Pod)+" could not be reserved, or its siblings did not come in time")
		return
	}
	delete(g.plan().reserved, e.UID)
	if len(g.reserves()) == 0 && g.boundOf(&e.Gang) == 0 {
		m.cancel(g, &e.Gang, "no member could be bound") // it starts over as a whole
		return
	}
	g.failMember(m, e)
}

// bound notes that the Binding of a member succeeded.
func (m *move) bound(e *Bound) {
	g := m.group(e.Gang.Ref)
	g.bound[e.UID] = true
	if p := g.plan(); p != nil {
		delete(p.reserved, e.UID)
	}
	delete(g.repairs, e.UID)
	m.touch(g)
	m.settle(g, &e.Gang)
}

// settle makes a gang Running once as many members as must run have a node.
func (m *move) settle(g *group, f *Facts) {
	if f.MinCount == 0 || g.boundOf(f) < f.MinCount {
		return
	}
	switch p := g.phase.(type) {
	case unplaced:
		g.phase = &running{plan: newPlan()}
	case *planned:
		m.bindAll(g, true)
	case *binding:
		g.phase = &running{plan: p.plan}
	}
	g.plan().preempted, g.voidRooms = false, 0
}

// nodeRefused ends the plan when no node takes a member, or the planned one does not. Once the scheduler binds the members, only this
// one loses its place, and so does one that no node takes and that the gang can run without.
func (m *move) nodeRefused(e *NodeRefused) {
	g := m.group(e.Gang.Ref)
	if e.Limited {
		g.limit(e.Node, g.reservedOn(e.Node), m.now)
	}
	spare := e.Node == "" && !g.reserves()[e.UID] && g.boundOf(&e.Gang)+len(g.places()) > e.Gang.MinCount
	if p := g.phase.phase(); p == Unplaced || p == Planned && !spare {
		m.cancel(g, &e.Gang, e.Why)
		return
	}
	m.drop(g, e.UID)
	g.fail(m.now)
}

// reservedOn counts the members with a reservation on a node.
func (g *group) reservedOn(node string) int {
	count := 0
	for uid := range g.reserves() {
		if g.places()[uid].Node == node {
			count++
		}
	}
	return count
}

// groupRefused ends a plan that other plugins refused in a group cycle.
func (m *move) groupRefused(e *GroupRefused) {
	g := m.gangs[e.Gang.Ref]
	if g == nil || g.phase.phase() != Planned {
		return
	}
	for node, most := range e.Nodes {
		g.limit(node, most, m.now)
	}
	m.cancel(g, &e.Gang, "other plugins refuse the planned nodes")
}

// adopt takes over a gang of which an earlier scheduler bound some members, and fewer than must run. A waiting member older
// than the first bind of a sibling has never had a place. A younger one replaces a member that ran. If the deadline had
// passed before this scheduler began, adopt makes the gang Running: members may have ended since, and the scheduler evicts no
// pod that may be at work.
func (m *move) adopt(g *group, f *Facts) {
	count := g.boundOf(f)
	if count == 0 || count >= f.MinCount {
		return
	}
	var p plan
	switch before := g.phase.(type) {
	case unplaced:
		p = newPlan()
	case *planned:
		p = before.plan
		m.letGo(before)
	default:
		return
	}
	at := f.firstBound()
	since := time.Unix(at, 0)
	if !f.waitedAt(at) || since.Add(m.cfg.Deadline).Before(m.cfg.Began) {
		g.phase = &running{plan: p}
		return
	}
	g.phase = &binding{plan: p, since: since}
}

// afterStart lowers the number of members that must run, for a gang that has started and of which members have ended or are
// gone. The new number is that of the existing members: they run on, and a member that comes back joins them. Other gangs stay
// as they are.
func (m *move) afterStart(g *group, f *Facts) *Facts {
	if f.Problem == nil || !f.Problem.Waits {
		return f
	}
	m.adopt(g, f)
	adjusted := m.AfterStart(*f)
	return &adjusted
}

// released ends a gang of which the scheduler bound too few members in time, once it has evicted all of them. The gang may have
// started anew meanwhile.
func (m *move) released(e *Released) {
	g := m.group(e.Gang.Ref)
	if e.Left > 0 {
		return
	}
	m.do(Count{What: Releases})
	switch g.phase.phase() {
	case Binding:
		for _, uid := range sorted(g.places()) {
			m.drop(g, uid)
		}
		g.phase = unplaced{}
		g.bound = map[vgpu.UID]bool{}
		g.forgetNotified()
		m.touch(g)
		g.fail(m.now)
	case Unplaced:
		if !g.retry.After(m.now) {
			g.fail(m.now)
		}
	}
}

// vacated keeps other members of a gang unplaced while the scheduler evicts all that have a place.
func (m *move) vacated(e *Vacated) {
	g := m.group(e.Ref)
	g.vacating = &vacating{members: e.Members, until: m.now.Add(evictionsBegin)}
}

// vacates reports whether the scheduler is about to evict all members of a gang that have a place. The answer is no once all of
// them are ending, and where an eviction has not begun in time.
func (m *move) vacates(g *group, f *Facts) bool {
	v := g.vacating
	if v == nil {
		return false
	}
	if m.now.Before(v.until) {
		for i := range f.Members {
			if p := &f.Members[i]; !p.Deleted && v.has(p.UID) && (g.onNode(p) || g.reserves()[p.UID]) {
				if g.unlimit.IsZero() {
					g.unlimit = v.until // the scheduler tries the gang then, if not before
				}
				return true
			}
		}
	}
	g.vacating = nil
	return false
}

func (v *vacating) has(uid vgpu.UID) bool {
	for _, m := range v.members {
		if m == uid {
			return true
		}
	}
	return false
}

// withdrawn takes back a member before its bind.
func (m *move) withdrawn(e *Withdrawn) {
	if g := m.gangs[e.Gang.Ref]; g != nil && g.reserves()[e.UID] {
		m.cancel(g, &e.Gang, "its room goes to pods of a higher priority")
	}
}

// nameOf returns the name of a pod of "namespace/name".
func nameOf(pod string) string {
	for i := range len(pod) {
		if pod[i] == '/' {
			return pod[i+1:]
		}
	}
	return pod
}
