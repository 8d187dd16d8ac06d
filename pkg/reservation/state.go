package reservation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Config has the rules of a State.
type Config struct {
	// Deadline is how long State waits for the members of a plan, and for evicted pods.
	Deadline time.Duration
	// Drains says for which gangs State keeps room while pods end: After they have waited so long, for Timeout at most.
	Drains         gang.Drains
	After, Timeout time.Duration
	// Began is when the scheduler began: another one saw what happened before.
	Began time.Time
	// EvictionsPerMinute bounds the evictions for preemptors, 0 for no bound.
	EvictionsPerMinute int
}

// State is what the scheduler remembers of gangs and of preemptions between scheduling cycles. Each event brings what the API
// knows.
type State struct {
	cfg   Config
	gangs map[Ref]*group
	// reserving is the gang for which State keeps room while pods end, the zero Ref for none. Only one has: two could each keep
	// what the other needs.
	reserving Ref
	// gates and versions are the last numbers that State gave out.
	gates    Gate
	versions Version
	preemptions
}

// Version numbers the states of a gang: while it stays the same, nothing that a plan depends on has changed.
type Version uint64

// group is what State remembers of one gang.
type group struct {
	Ref
	version  Version
	priority int32
	// never: its members evict no others.
	never bool
	// grouped: the scheduler tried all members in one cycle, the last time.
	grouped bool
	// arrived is when the scheduler first tried the gang, zero once it may bind the members.
	arrived time.Time
	phase   phase
	need    need
	members
	pauses
	// vacating: the scheduler is about to evict all members that have a place, nil where it is not.
	vacating *vacating
}

// members is what State remembers of single members.
type members struct {
	// bound are those whose Binding succeeded, before the informer shows it.
	bound map[vgpu.UID]bool
	// leaving are members of a plan that has ended, with their nodes. Until the scheduler's snapshot has them there no longer,
	// nodes would refuse members because of their own siblings, or of themselves.
	leaving map[vgpu.UID]string
	// repairs are members that failed during the binds.
	repairs map[vgpu.UID]Repair
}

// Repair is how often in a row a member failed during the binds, and when the scheduler tries it again, zero once it may.
type Repair struct {
	Failures int
	At       time.Time
}

// vacating are members that the scheduler is about to evict, unless their evictions have not begun by a time.
type vacating struct {
	members []vgpu.UID
	until   time.Time
}

// New returns a State that remembers nothing.
func New(cfg Config) *State {
	return &State{cfg: cfg, gangs: map[Ref]*group{}, preemptions: newPreemptions(cfg.EvictionsPerMinute)}
}

// Step takes one event and returns what to do.
func (s *State) Step(e Event, now time.Time) []Effect {
	m := &move{State: s, now: now}
	m.take(e)
	return m.effects
}

// move is one Step.
type move struct {
	*State
	now     time.Time
	effects []Effect
}

func (m *move) do(effects ...Effect) { m.effects = append(m.effects, effects...) }

func (m *move) refuse(why string) { m.do(Refuse{Why: why}) }

// take takes one event.
func (m *move) take(e Event) {
	switch e := e.(type) {
	case Changed:
		m.changed(&e)
	case Enqueued:
		m.enqueued(&e)
	case Tried:
		m.tried(&e)
	case PlanFound:
		m.planFound(&e)
	case PlanRefused:
		m.planRefused(&e)
	case RoomSought:
		m.roomSought(&e)
	case HoldFailed:
		m.holdFailed(&e)
	case RoomWanted:
		m.roomWanted(&e)
	case RoomMade:
		m.roomMade(&e)
	case RoomTried:
		m.roomTried(&e)
	case RoomGivenUp:
		m.roomGivenUp(&e)
	case DoubtsEnded:
		m.retryRefused()
	case Ticked:
		m.ticked(&e)
	default:
		m.takeOfMember(e)
		m.takeOfPod(e)
		m.takeOfEvictions(e)
	}
}

// takeOfMember takes an event on the way of members to their nodes, or off them.
func (m *move) takeOfMember(e Event) {
	switch e := e.(type) {
	case Reserved:
		m.reserved(&e)
	case Permitted:
		m.permitted(&e)
	case Unreserved:
		m.unreserved(&e)
	case Bound:
		m.bound(&e)
	case NodeRefused:
		m.nodeRefused(&e)
	case GroupRefused:
		m.groupRefused(&e)
	case Vacated:
		m.vacated(&e)
	case Withdrawn:
		m.withdrawn(&e)
	case Released:
		m.released(&e)
	}
}

// takeOfPod takes an event about a single pod for which the scheduler evicts pods, or is to.
func (m *move) takeOfPod(e Event) {
	switch e := e.(type) {
	case PodRefused:
		m.podRefused(&e)
	case OthersSought:
		m.othersSought(&e)
	case PodRoomWanted:
		m.podRoomWanted(&e)
	case PodRoomMade:
		m.podRoomMade(&e)
	case PodHoldFailed:
		m.podHoldFailed(&e)
	case PodRetried:
		m.podRetried(&e)
	case PodEnded:
		m.podEnded(&e)
	case PodTicked:
		m.podTicked(&e)
	}
}

// takeOfEvictions takes an event about evictions and their victims.
func (m *move) takeOfEvictions(e Event) {
	switch e := e.(type) {
	case EvictionsWanted:
		m.evictionsWanted(&e)
	case EvictionsEnded:
		m.evictionsEnded(&e)
	case VictimWithdrawn:
		m.victimWithdrawn(&e)
	case PlainEvicted:
		m.allowance.spend(1, m.now)
	case VictimGone:
		m.victimGone(&e)
	case BudgetsEased:
		m.budgetsEased()
	case SecondPassed:
		m.secondPassed()
	}
}

// group returns what State remembers of a gang, making it if need be.
func (m *move) group(ref Ref) *group {
	g := m.gangs[ref]
	if g == nil {
		g = &group{Ref: ref, phase: unplaced{}, pauses: newPauses()}
		g.members = members{bound: map[vgpu.UID]bool{}, leaving: map[vgpu.UID]string{}, repairs: map[vgpu.UID]Repair{}}
		m.gangs[ref] = g
		m.touch(g)
	}
	return g
}

// touch gives a gang a new version: something that a plan for it depends on has changed.
func (m *move) touch(g *group) {
	m.versions++
	g.version = m.versions
}

// plan returns the places of members before their binds, nil for an Unplaced gang.
func (g *group) plan() *plan {
	switch p := g.phase.(type) {
	case *planned:
		return &p.plan
	case *binding:
		return &p.plan
	case *running:
		return &p.plan
	}
	return nil
}

// places and reserves are empty where there is no plan.
func (g *group) places() map[vgpu.UID]Place {
	if p := g.plan(); p != nil {
		return p.places
	}
	return nil
}

func (g *group) reserves() map[vgpu.UID]bool {
	if p := g.plan(); p != nil {
		return p.reserved
	}
	return nil
}

// started reports whether as many members as must run got a node.
func (g *group) started() bool { return g.phase.phase() == Running }

// refused returns why the gang has no plan, nil without a refusal.
func (g *group) refused() *refused {
	switch n := g.need.(type) {
	case *refused:
		return n
	case *reserving:
		return &n.refused
	case *preempting:
		return &n.refused
	}
	return nil
}

func (g *group) reserving() *reserving {
	n, _ := g.need.(*reserving)
	return n
}

func (g *group) preempting() *preempting {
	n, _ := g.need.(*preempting)
	return n
}

// lacksRoom reports whether the gang waits for room.
func (r *refused) lacksRoom() bool { return r != nil && r.Reason == gang.NoRoom }

// onNode reports whether a member has a node, by the API or its own Binding, and no deletion timestamp.
func (g *group) onNode(m *Member) bool {
	return !m.Deleted && (m.Node != "" || g != nil && g.bound[m.UID])
}

// boundOf counts the members for which onNode is true.
func (g *group) boundOf(f *Facts) int {
	count := 0
	for i := range f.Members {
		if g.onNode(&f.Members[i]) {
			count++
		}
	}
	return count
}

// lacking counts the members that must run and have no place.
func (g *group) lacking(f *Facts) int { return max(0, f.MinCount-g.boundOf(f)-len(g.places())) }

// refs returns the gangs in a fixed order.
func (s *State) refs() []Ref { return slices.SortedFunc(maps.Keys(s.gangs), Ref.Compare) }

// compareWaiting orders gangs that wait for room: the highest priority first, then the one that waits longest, then by name.
func compareWaiting(a, b *group) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.refused().wait.since.Compare(b.refused().wait.since),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source))
}

// next returns the gang for which the scheduler next seeks room to keep, nil for none. Gangs for which the scheduler evicts
// pods have room. While State keeps room for a gang, only a gang of a higher priority takes its turn.
func (s *State) next(now time.Time) *group {
	var next *group
	holder := s.gangs[s.reserving]
	for _, g := range s.gangs {
		if !g.seeksRoom(now) || holder != nil && g.priority <= holder.priority {
			continue
		}
		if next == nil || compareWaiting(g, next) < 0 {
			next = g
		}
	}
	return next
}

// seeksRoom reports whether State may now seek room to keep for the gang.
func (g *group) seeksRoom(now time.Time) bool {
	r := g.refused()
	return r != nil && r.wait != nil && !now.Before(r.wait.look) && g.preempting() == nil
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[vgpu.UID]V) []vgpu.UID { return slices.Sorted(maps.Keys(m)) }

// Configure changes the rules of the state, before the first event.
func (s *State) Configure(change func(*Config)) {
	change(&s.cfg)
	s.allowance = newAllowance(s.cfg.EvictionsPerMinute)
}
