package gpugang

import (
	"cmp"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// state is what the plugin remembers of gangs between scheduling cycles. What the API knows is asked anew each time.
type state struct {
	// since is when the plugin was made: what happened before it was seen by another scheduler.
	since time.Time

	mu    sync.Mutex
	gangs map[podgroup.Ref]*group
	// drain is the gang that room is kept for while others end, the zero Ref for none.
	drain podgroup.Ref
}

// group is what is remembered of one gang. state.mu guards it.
type group struct {
	podgroup.Ref
	// places of the members that have one in the plan, until they are bound, and when the plan was made.
	places map[vgpu.UID]place
	made   time.Time
	// reserved are the members of the plan that passed Reserve and wait in Permit, or are being bound.
	reserved map[vgpu.UID]bool
	// leaving are members of a plan that was cancelled, with their nodes. Until the scheduler's snapshot does not have them
	// there any more, nodes would refuse members because of their own siblings, or of themselves.
	leaving map[vgpu.UID]string
	// repairs are the members that failed after they were let go.
	repairs map[vgpu.UID]repair
	// bound are the members whose Binding succeeded, before the informer tells.
	bound map[vgpu.UID]bool
	// letGo is when the members were let go, zero before that; started: the gang had its least number of members bound.
	letGo   time.Time
	started bool
	// gate is closed when the members are let go, and when their plan is cancelled.
	gate chan struct{}

	// refusal is why the gang has no plan, "" for no reason yet, with the numbers where core gave it.
	refusal *refused
	// told are the members that were refused since the last time that the kind of refusal changed.
	told map[vgpu.UID]bool
	// capped are nodes that other plugins refused for a planned member, and uncap when the gang is tried again without the
	// first of these limits; zero where they do not matter.
	capped map[string]limit
	uncap  time.Time
	// arrived is when the gang was tried first, and short since when it waits for room, zero where it does not.
	arrived, short time.Time
	// retry is when the leader is tried again, zero for when something changes; failures counts plans that came to nothing in
	// a row.
	retry    time.Time
	failures int
	// look is when it is looked next whether room is kept for the gang, and later what was found the last time. woken is since
	// when it is tried for that.
	look, woken time.Time
	later       string
	// kept is the room that the drain keeps for so many members that must run, since when, and until when the present owners end,
	// 0 for nobody knows; drain has the places of all members.
	kept    []vgpu.Hold
	drain   gang.Kept
	keptFor int
	drained time.Time
	until   int64
	// dryTimes is how many drains in a row came to nothing, and failed on which nodes.
	dryTimes int
	failed   map[string]bool
	// room is what preemption makes for the gang, nil for none; preempted: the plan has it. unhelped is why nobody was evicted,
	// and ask when the gang may be preempted for again: it is tried then where askAgain says so. voids counts the preemptions in
	// a row that came to nothing, asked those that were sought in vain.
	room         *room
	preempted    bool
	unhelped     string
	ask          time.Time
	askAgain     bool
	voids, asked int
	// doomed are members that are about to be evicted with all others that have a place, unless that has not begun by a time.
	doomed      []*v1.Pod
	doomedUntil time.Time
	// grouped: the scheduler tried all members in one cycle, the last time.
	grouped bool
	// priority of the members.
	priority int32
	// incomplete is since when and why members are missing.
	incomplete string
	missing    time.Time
}

// place is where a member goes.
type place struct {
	vgpu.Assignment
	// pinned: the member goes to this node and no other. A member without vGPUs is held to the required domains only, until a
	// plan came to nothing: it may have taken the CPU that its siblings were to have.
	pinned bool
	// within are the labels that its node must have: the required domains of the gang.
	within map[string]string
	// host is what the member takes of the node beside devices.
	host vgpu.Room
}

// held reports whether devices are held for the member.
func (p *place) held() bool { return len(p.Containers) > 0 }

// repair is how often a member failed after it was let go, and when it is tried again; zero once it may be.
type repair struct {
	failures int
	at       time.Time
}

// limit is how many members a node takes at most, until when: so many were accepted when it refused one more.
type limit struct {
	most  int
	until time.Time
}

// refused is why a gang has no plan.
type refused struct {
	kind    gang.Reason
	message string
	// turn follows the message: which room is kept for the gang, or which gang waits before it. It changes while the reason stays.
	turn string
	host bool
	// lacking are the members that must run and had no place.
	lacking int
	// at is when that was found.
	at time.Time
}

func newState(now time.Time) *state {
	return &state{since: now, gangs: map[podgroup.Ref]*group{}}
}

// group returns what is remembered of a gang, making it if need be. The caller holds the mutex.
func (s *state) group(ref podgroup.Ref) *group {
	g := s.gangs[ref]
	if g == nil {
		g = &group{Ref: ref}
		g.forget()
		g.leaving, g.repairs = map[vgpu.UID]string{}, map[vgpu.UID]repair{}
		g.bound, g.capped, g.failed = map[vgpu.UID]bool{}, map[string]limit{}, map[string]bool{}
		s.gangs[ref] = g
	}
	return g
}

// forget drops the plan, without its holds.
func (g *group) forget() {
	g.places, g.reserved, g.told = map[vgpu.UID]place{}, map[vgpu.UID]bool{}, map[vgpu.UID]bool{}
	g.made, g.letGo, g.gate = zero, zero, make(chan struct{})
}

// planned reports whether the gang has a plan.
func (g *group) planned() bool { return len(g.places) > 0 }

// first orders the gangs that wait for room: the highest priority first, then the one that waits longest, then by name.
func first(a, b *group) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.short.Compare(b.short), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source))
}

// head returns the gang for which it is looked next whether room is kept, nil for none: gangs that preemption makes room for have
// theirs, and while a gang drains only one of a higher priority takes its turn. The caller holds the mutex.
func (s *state) head(now time.Time) *group {
	var head *group
	draining := s.gangs[s.drain]
	for _, g := range s.gangs {
		if !g.seeksRoom(now) || draining != nil && g.priority <= draining.priority {
			continue
		}
		if head == nil || first(g, head) < 0 {
			head = g
		}
	}
	return head
}

// seeksRoom reports whether it may be looked now whether room is kept for the gang.
func (g *group) seeksRoom(now time.Time) bool {
	return !g.short.IsZero() && !now.Before(g.look) && g.room == nil
}
