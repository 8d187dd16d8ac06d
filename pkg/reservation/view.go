package reservation

import (
	"maps"
	"math"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The methods below answer questions and change nothing. Their results stay as they are: the next steps make new maps, or the
// caller gets a copy.

// Refs returns the gangs that State remembers, in order.
func (s *State) Refs() []Ref { return s.refs() }

// Phase returns the phase and the need of a gang.
func (s *State) Phase(ref Ref) (Phase, Need) {
	g := s.gangs[ref]
	switch {
	case g == nil:
		return Unplaced, Satisfied
	case g.need == nil:
		return g.phase.phase(), Satisfied
	}
	return g.phase.phase(), g.need.need()
}

// Watchful reports whether the state of a gang depends on the very latest facts of its members.
func (s *State) Watchful(ref Ref) bool {
	g := s.gangs[ref]
	return g != nil && (g.reserving() != nil || g.preempting() != nil || g.vacating != nil)
}

// Place returns the place of a member in the plan of its gang, and whether it has one.
func (s *State) Place(ref Ref, uid vgpu.UID) (Place, bool) {
	g := s.gangs[ref]
	if g == nil {
		return Place{}, false
	}
	at, ok := g.places()[uid]
	return at, ok
}

// Expected reports whether a member has a place on a node, or evictions make room for it there.
func (s *State) Expected(ref Ref, uid vgpu.UID, node string) bool {
	g := s.gangs[ref]
	if g == nil {
		return false
	}
	if g.places()[uid].Node == node {
		return true
	}
	r := g.preempting()
	return r != nil && r.Places[uid].Node == node
}

// Planned calls a function for each member that has a place in the plan of a gang, in order.
func (s *State) Planned(ref Ref, each func(Place)) {
	if g := s.gangs[ref]; g != nil {
		for _, uid := range sorted(g.places()) {
			each(g.places()[uid])
		}
	}
}

// Leaving returns the members that the scheduler may count on nodes although they will have no place there, with those nodes.
// Leaving has members of an ended plan, and reserved members, whose plan may end when the scheduler tries a member.
func (s *State) Leaving(ref Ref) map[vgpu.UID]string {
	g := s.gangs[ref]
	if g == nil {
		return nil
	}
	all := maps.Clone(g.leaving)
	for uid := range g.reserves() {
		all[uid] = g.places()[uid].Node
	}
	return all
}

// OnNode reports whether a member has a node, by the API or its own Binding, and no deletion timestamp.
func (s *State) OnNode(ref Ref, m *Member) bool { return s.gangs[ref].onNode(m) }

// Bound counts the members of a gang for which OnNode is true.
func (s *State) Bound(f *Facts) int { return s.gangs[f.Ref].boundOf(f) }

// Gate returns what a member waits for before its bind, 0 for nothing, and whether the member has a reservation.
func (s *State) Gate(ref Ref, uid vgpu.UID) (gate Gate, isReserved bool) {
	g := s.gangs[ref]
	if g == nil {
		return 0, false
	}
	if made, ok := g.phase.(*planned); ok {
		gate = made.gate
	}
	return gate, g.reserves()[uid]
}

// Refusal returns why a gang has no plan, and whether there is a refusal.
func (s *State) Refusal(ref Ref) (Refuse, bool) {
	g := s.gangs[ref]
	if g == nil || g.refused() == nil {
		return Refuse{}, false
	}
	r := g.refused()
	return Refuse{Why: r.Message, Turn: r.turn}, true
}

// ShortOfHosts reports whether CPU or memory of nodes are short for a gang, too.
func (s *State) ShortOfHosts(ref Ref) bool {
	r := s.gangs[ref].refused()
	return r != nil && r.Host
}

// MadeRoom returns the room that evictions make for a gang, nil for none.
func (s *State) MadeRoom(ref Ref) *Made {
	if g := s.gangs[ref]; g != nil && g.preempting() != nil {
		return &g.preempting().Made
	}
	return nil
}

// Reservation returns the room that State keeps for a gang while pods end, and its holds; nil for none.
func (s *State) Reservation(ref Ref) (*gang.Kept, []vgpu.Hold) {
	if g := s.gangs[ref]; g != nil && g.reserving() != nil {
		return &g.reserving().room, g.reserving().holds
	}
	return nil, nil
}

// Since returns when a gang began to wait for room, zero where it does not.
func (s *State) Since(ref Ref) time.Time {
	if r := s.gangs[ref].refused(); r != nil && r.wait != nil {
		return r.wait.since
	}
	return time.Time{}
}

// Priority returns the priority of a gang's members at the last try.
func (s *State) Priority(ref Ref) int32 {
	if g := s.gangs[ref]; g != nil {
		return g.priority
	}
	return 0
}

// Limits returns the most members for each node that another plugin refused shortly before the last try of the gang.
func (s *State) Limits(ref Ref) map[string]int {
	most := map[string]int{}
	if g := s.gangs[ref]; g != nil {
		for name, l := range g.limits {
			most[name] = l.Most
		}
	}
	return most
}

// RetriedIn returns how long a member pauses after its bind failed, and whether its gang pauses after its plan did.
func (s *State) RetriedIn(ref Ref, uid vgpu.UID, now time.Time) (member time.Duration, gangPauses bool) {
	g := s.gangs[ref]
	if g == nil {
		return 0, false
	}
	return g.memberPause(uid, now), g.retry.After(now)
}

// memberPause returns how long a member that failed waits for another try at its place. A member without a place does not wait:
// its gang is planned anew, and without the first member nobody plans it. If the scheduler tries all members in one cycle, any
// of them plans the gang.
func (g *group) memberPause(uid vgpu.UID, now time.Time) time.Duration {
	if _, has := g.places()[uid]; !has && !g.grouped {
		return 0
	}
	return g.repairs[uid].At.Sub(now)
}

// explainAgain is how long the scheduler repeats why a gang waits for room before it seeks the reason anew. Finding the nearest
// miss takes longer than finding that there is no room, and a hundred gangs may wait.
const explainAgain = 30 * time.Second

// Explained reports whether it is enough to know that a gang has no room. In that case the scheduler found the reason a moment
// ago for as many members, State keeps no room for the gang, and it is not its turn.
func (s *State) Explained(ref Ref, lacking int, now time.Time) bool {
	g := s.gangs[ref]
	if g == nil {
		return false
	}
	r := g.refused()
	if !r.lacksRoom() || r.Lacking != lacking || now.Sub(r.at) >= explainAgain {
		return false
	}
	return r.wait != nil && g.reserving() == nil && s.next(now) != g
}

// Beside returns, by node, what pods that are not there yet will take of the hosts, which holds do not keep. The pods are
// members with a place, and the pods and members of other gangs that evictions make room for, unless their priority is lower.
// The function isThere reports whether a node already counts a pod, as it does once the pod has the node.
func (s *State) Beside(ref Ref, isThere func(node string, pod vgpu.UID) bool) map[string]vgpu.Room {
	rooms := map[string]vgpu.Room{}
	for other, g := range s.gangs {
		for uid, at := range g.places() {
			if !g.reserves()[uid] && !g.bound[uid] {
				rooms[at.Node] = rooms[at.Node].Plus(at.Host)
			}
		}
		r := g.preempting()
		if r == nil || other == ref || g.priority < s.Priority(ref) {
			continue
		}
		for _, at := range r.Places {
			rooms[at.Node] = rooms[at.Node].Plus(at.Host)
		}
	}
	for _, p := range s.pods {
		if r := p.room(); r != nil && r.Priority >= s.Priority(ref) && !isThere(r.Place.Node, p.UID) {
			rooms[r.Place.Node] = rooms[r.Place.Node].Plus(r.Host)
		}
	}
	return rooms
}

// OnlyWhole is more members than a gang has: none of them may go without the others.
const OnlyWhole = math.MaxInt32

// Least returns how many of the members with a place must stay unless all of them go. Least does not count on members whose
// bind is under way. A malformed gang, one that the scheduler may not bind yet, and one without a known least number goes whole
// or not at all.
func (s *State) Least(f *Facts) int {
	if f.MinCount == 0 || f.Problem != nil && !f.Problem.Waits {
		return OnlyWhole
	}
	g := s.gangs[f.Ref]
	switch {
	case g == nil || len(g.reserves()) == 0:
		return f.MinCount
	case g.phase.phase() == Planned:
		return OnlyWhole
	}
	return f.MinCount + len(g.reserves())
}

// Torn reports whether some members of a gang stay bound, and fewer than must run, once the members that end or leave are gone.
// If the least number is unknown, all must leave.
func (s *State) Torn(f *Facts, leaves func(vgpu.UID) bool) bool {
	stay := 0
	for i := range f.Members {
		if m := &f.Members[i]; s.gangs[f.Ref].onNode(m) && !leaves(m.UID) {
			stay++
		}
	}
	return stay > 0 && (f.MinCount == 0 || stay < f.MinCount)
}

// Withdrawable reports whether a member can lose its place without an eviction: the scheduler has not bound it, and does not
// bind it now.
func (s *State) Withdrawable(ref Ref, uid vgpu.UID) bool {
	g := s.gangs[ref]
	return g != nil && !g.bound[uid] && (!g.reserves()[uid] || g.phase.phase() == Planned)
}

// Counts returns the number of gangs with members that wait, by what they wait for.
func (s *State) Counts() map[string]int {
	counts := map[string]int{"incomplete": 0, "refused": 0, "draining": 0, "planned": 0, "binding": 0}
	for _, g := range s.gangs {
		_, missing := g.need.(*incomplete)
		switch {
		case g.reserving() != nil:
			counts["draining"]++
		case len(g.places()) > 0 && g.phase.phase() != Planned:
			counts["binding"]++
		case len(g.places()) > 0:
			counts["planned"]++
		case g.refused() != nil:
			counts["refused"]++
		case missing:
			counts["incomplete"]++
		}
	}
	return counts
}

// AfterStart lowers the number of members that must run, for a gang that has started and of which members have ended or are
// gone. The new number is that of the existing members: they run on. Other gangs stay as they are.
func (s *State) AfterStart(f Facts) Facts {
	g := s.gangs[f.Ref]
	if g == nil || f.Problem == nil || !f.Problem.Waits || f.MinCount == 0 || !g.started() || g.boundOf(&f) == 0 {
		return f
	}
	f.Problem, f.MinCount = nil, f.there()
	return f
}

// there counts the members that have a node or may get one.
func (f *Facts) there() int {
	count := 0
	for i := range f.Members {
		if m := &f.Members[i]; m.Waits() || m.Node != "" && !m.Deleted {
			count++
		}
	}
	return count
}

// Wants reports whether preemption may evict pods for a gang: the gang has no plan, and no evictions make room for it.
func (s *State) Wants(ref Ref) bool {
	g := s.gangs[ref]
	return g != nil && len(g.places()) == 0 && g.preempting() == nil
}

// Retries reports whether a pod that left may help a member: one that used GPUs, or any where hosts are short. The scheduler
// tries members that pause when their time has come: to its queue, a failed bind is a pod that left. A change of the gang has
// the scheduler try it where something is missing or wrong; the rest of a started gang runs.
func (s *State) Retries(f Facts, uid vgpu.UID, hostOnly bool, now time.Time) bool {
	g := s.gangs[f.Ref]
	switch {
	case g == nil:
		return true
	case s.AfterStart(f).Problem != nil, g.memberPause(uid, now) > 0, g.retry.After(now):
		return false
	}
	r := g.refused()
	return !hostOnly || r == nil || r.Host || g.preempting() != nil
}
