package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Phase is the state of the members of a gang that have a place.
type Phase uint8

// The phases of a gang.
const (
	// Unplaced: no member has a place.
	Unplaced Phase = iota
	// Planned: all members that must run have a place, which State keeps. The members wait for each other in Permit or Bind. A
	// failure of any of them ends the plan.
	Planned
	// Binding: all members that must run were at their places, and the scheduler binds them. A member whose bind fails keeps
	// its place, and the scheduler tries the bind again. If it has bound too few by the placement deadline, it evicts those.
	Binding
	// Running: as many members as must run got a node. The scheduler plans and binds members that come later, or again, one by
	// one.
	Running
)

// String returns the name of the phase.
func (p Phase) String() string { return [...]string{"Unplaced", "Planned", "Binding", "Running"}[p] }

// Need is what the members of a gang wait for that must run and have no place.
type Need uint8

// The needs of a gang.
const (
	// Satisfied: State knows of nothing that is missing.
	Satisfied Need = iota
	// Incomplete: fewer members exist without scheduling gates than must run, or the PodGroup does not.
	Incomplete
	// Refused: the scheduler found no plan.
	Refused
	// Reserving: the scheduler found no plan, and State keeps room for the gang while the pods in its way end.
	Reserving
	// Preempting: the scheduler found no plan, and State keeps room for the gang while its victims end.
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
		// made is when the plan began. State opens gate when the scheduler may bind the members, and when the plan ends.
		made time.Time
		gate Gate
	}
	binding struct {
		plan
		// since is when the scheduler began to bind the members.
		since time.Time
	}
	running struct{ plan }
)

func (unplaced) phase() Phase { return Unplaced }
func (*planned) phase() Phase { return Planned }
func (*binding) phase() Phase { return Binding }
func (*running) phase() Phase { return Running }

// Gate numbers what the members of one plan wait for before their binds.
type Gate uint64

// plan has the places of members before their binds.
type plan struct {
	places map[vgpu.UID]Place
	// reserved are the members that passed Reserve at their places.
	reserved map[vgpu.UID]bool
	// preempted: the scheduler evicted pods to make room for the plan.
	preempted bool
}

func newPlan() plan { return plan{places: map[vgpu.UID]Place{}, reserved: map[vgpu.UID]bool{}} }

// Place is where a member goes.
type Place struct {
	vgpu.Assignment
	// Pinned: the member goes to this node and no other. A member without vGPUs goes anywhere in the required domains, until a
	// plan came to nothing: the member may have taken the CPU that its siblings were to have.
	Pinned bool
	// Within are the labels that its node must have: the required domains of the gang.
	Within map[string]string
	// Host is what the member takes of the node beside devices.
	Host vgpu.Room
}

// Held reports whether GPUShare holds devices for the member.
func (p *Place) Held() bool { return len(p.Containers) > 0 }

// need holds what exists in a need; nil means Satisfied.
type need interface{ need() Need }

type (
	incomplete struct {
		why string
		// since is when State saw that members were missing. notified: the members have got a notice of it.
		since    time.Time
		notified bool
	}
	refused struct {
		Refusal
		// notified are the members that State refused since the kind of the refusal changed.
		notified map[vgpu.UID]bool
		// turn follows the message: which room State keeps for the gang, or which gang comes before it.
		turn Turn
		// at is when the scheduler found the reason.
		at time.Time
		// wait is since when the gang waits for room, nil where free room would not help.
		wait *wait
		// lacks is since when the gang lacks members that must run, of those for which it was refused.
		lacks time.Time
	}
	reserving struct {
		refused
		// holds keep the devices. room has the places of all members and the pods in the way.
		holds []vgpu.Hold
		room  gang.Kept
		// lacking is for how many members that must run State keeps the room.
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
	// since is when the gang began to wait, look when State next seeks room to keep for it, and later why there was none the
	// last time.
	since, look time.Time
	later       string
	// woken is when State activated the gang for that, zero where it did not. asked is when State last activated it for another
	// gang that gives way.
	woken, asked time.Time
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

// Made is the room that evictions make for a gang.
type Made struct {
	// Places of the members.
	Places map[vgpu.UID]Place
	// Victims are the pods that the scheduler evicts.
	Victims map[vgpu.UID]Victim
	// Lacking and Unbound count the members that had to find a place: those of the plan, and those without a node. The counts
	// differ while State does not know whether a bind happened.
	Lacking, Unbound int
	// Until is when the victims must be gone.
	Until time.Time
}

// Victim is a pod that the scheduler evicts: "namespace/name", and its node.
type Victim struct{ Pod, Node string }

// TurnKind says what a Turn describes.
type TurnKind uint8

// The kinds of a Turn.
const (
	// NoTurn: there is nothing to say.
	NoTurn TurnKind = iota
	// Kept: State keeps room for the gang on Nodes; its owners end within Left, 0 for unknown.
	Kept
	// Behind: gang Ahead comes first.
	Behind
	// NotYet: Text says why State keeps no room.
	NotYet
	// InVain: the room of the gang is free, and the gang does not fit: Nodes lack CPU or memory, or something else is missing.
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
