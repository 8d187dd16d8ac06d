package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Phase is what the members of a gang are in that have a place.
type Phase uint8

// The phases of a gang.
const (
	// Unplaced: no member has a place.
	Unplaced Phase = iota
	// Planned: all members that must run have a place, which is kept. They wait for each other in Permit or Bind. What goes
	// wrong for one of them ends the plan.
	Planned
	// Binding: all members that must run were at their places, and they are being bound. The place of a member whose bind
	// fails is kept, and the bind is tried again. Where too few are bound by the placement deadline, those are evicted.
	Binding
	// Running: as many members as must run were bound. Members that come later, or again, are planned and bound one by one.
	Running
)

// String returns the name of the phase.
func (p Phase) String() string { return [...]string{"Unplaced", "Planned", "Binding", "Running"}[p] }

// Need is what those members of a gang wait for that must run and have no place.
type Need uint8

// The needs of a gang.
const (
	// Satisfied: nothing is known to be missing.
	Satisfied Need = iota
	// Incomplete: fewer members exist than must run, or the PodGroup does not.
	Incomplete
	// Refused: no plan was found.
	Refused
	// Reserving: no plan was found, and room is kept for the gang while the pods in its way end.
	Reserving
	// Preempting: no plan was found, and room is kept for the gang while pods that are evicted for it end.
	Preempting
)

// String returns the name of the need.
func (n Need) String() string {
	return [...]string{"Satisfied", "Incomplete", "Refused", "Reserving", "Preempting"}[n]
}

// phase holds what exists in a phase.
type phase interface{ phase() Phase }

type (
	unplaced struct{}
	planned  struct {
		plan
		// made is when the plan was made. gate is opened when the members may be bound, and when the plan ends.
		made time.Time
		gate Gate
	}
	binding struct {
		plan
		// since is when the members were allowed to be bound.
		since time.Time
	}
	running struct{ plan }
)

func (unplaced) phase() Phase { return Unplaced }
func (*planned) phase() Phase { return Planned }
func (*binding) phase() Phase { return Binding }
func (*running) phase() Phase { return Running }

// Gate numbers what the members of one plan wait for before they are bound.
type Gate uint64

// plan are the places of members that are not bound yet.
type plan struct {
	places map[vgpu.UID]Place
	// reserved are the members that passed Reserve at their places.
	reserved map[vgpu.UID]bool
	// preempted: pods were evicted to make room for the plan.
	preempted bool
}

func newPlan() plan { return plan{places: map[vgpu.UID]Place{}, reserved: map[vgpu.UID]bool{}} }

// Place is where a member goes.
type Place struct {
	vgpu.Assignment
	// Pinned: the member goes to this node and no other. A member without vGPUs is held to the required domains only, until a
	// plan came to nothing: it may have taken the CPU that its siblings were to have.
	Pinned bool
	// Within are the labels that its node must have: the required domains of the gang.
	Within map[string]string
	// Host is what the member takes of the node beside devices.
	Host vgpu.Room
}

// Held reports whether devices are held for the member.
func (p *Place) Held() bool { return len(p.Containers) > 0 }

// need holds what exists in a need; nil is Satisfied.
type need interface{ need() Need }

type (
	incomplete struct {
		why string
		// since is when members were seen to be missing. notified: the members have got a notice of it.
		since    time.Time
		notified bool
	}
	refused struct {
		Refusal
		// notified are the members that were refused since the kind of the refusal changed.
		notified map[vgpu.UID]bool
		// turn follows the message: which room is kept for the gang, or which gang comes before it.
		turn Turn
		// at is when the reason was found.
		at time.Time
		// wait is since when the gang waits for room, nil where free room would not help.
		wait *wait
	}
	reserving struct {
		refused
		// holds keep the devices. room has the places of all members and the pods in the way.
		holds []vgpu.Hold
		room  gang.Kept
		// lacking is for how many members that must run the room is kept.
		lacking int
		// since is when it began, until when the present owners of the devices end, in Unix seconds, 0 for not known.
		since time.Time
		until int64
	}
	preempting struct {
		refused
		Made
		// evictions make the room, 0 for none.
		evictions Evictions
		// dryRun: each member gets its place in the room, so that the scheduler's plugins say whether it fits.
		dryRun bool
	}
)

func (*incomplete) need() Need { return Incomplete }
func (*refused) need() Need    { return Refused }
func (*reserving) need() Need  { return Reserving }
func (*preempting) need() Need { return Preempting }

// wait is the place of a gang among those that wait for room.
type wait struct {
	// since is when the gang began to wait, look when it is seen next whether room is kept for it, and later what was said of
	// that the last time.
	since, look time.Time
	later       string
	// woken is when it was tried for that, zero where it was not.
	woken time.Time
}

// Refusal is why a gang has no plan.
type Refusal struct {
	Reason  gang.Reason
	Message string
	// Host says that CPU or memory of nodes are short, too.
	Host bool
	// Lacking is the number of members that must run and had no place.
	Lacking int
}

// Malformed is the reason of refusals that only a change of the gang's objects helps.
const Malformed gang.Reason = "Malformed"

// Made is the room that is made for a gang by evictions.
type Made struct {
	// Places of the members.
	Places map[vgpu.UID]Place
	// Victims are the pods that are evicted.
	Victims map[vgpu.UID]Victim
	// Lacking and Unbound are the members that had to find a place: those of the plan, and those that were not bound. They
	// differ while it is not known whether a bind happened.
	Lacking, Unbound int
	// Until is when the victims must be gone.
	Until time.Time
}

// Victim is a pod that is evicted: "namespace/name", and its node.
type Victim struct{ Pod, Node string }

// TurnKind says what a Turn describes.
type TurnKind uint8

// The kinds of a Turn.
const (
	// NoTurn: there is nothing to say.
	NoTurn TurnKind = iota
	// Kept: room is kept for the gang on Nodes; its owners end within Left, 0 where that is not known.
	Kept
	// Behind: gang Ahead comes first.
	Behind
	// NotYet: Text says why no room is kept.
	NotYet
	// InVain: the room that was kept is free, and the gang does not fit: Nodes lack CPU or memory, or something else is missing.
	InVain
)

// Turn describes the room of a gang that waits.
type Turn struct {
	Kind  TurnKind
	Nodes []string
	Left  time.Duration
	Ahead Ref
	Text  string
}
