package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Effect is something to do. The caller carries effects out in order.
type Effect interface{ effect() }

type (
	// Give answers Tried: the member goes to this place.
	Give struct{ Place Place }
	// Refuse answers an event with a plain no. Why is a message; where it is that of the gang's refusal, Turn follows it.
	Refuse struct {
		Why  string
		Turn Turn
		// Victims counts the pods that the scheduler evicts for the gang.
		Victims int
	}
	// Plan answers Tried: look for a plan for the gang, of this version.
	Plan struct{ Version Version }
	// SeekRoom requests room to keep for a gang while pods end, on other nodes than those in Avoid where possible.
	SeekRoom struct {
		Avoid map[string]bool
		// Since is when the gang began to wait.
		Since time.Time
	}
	// Wait answers Permitted: the member waits for others. Briefly says that it does so in Bind.
	Wait struct{ Briefly bool }
	// Hold keeps devices for a member, in place of an earlier hold.
	Hold struct{ Hold vgpu.Hold }
	// Release ends the hold of a member.
	Release struct{ UID vgpu.UID }
	// Open opens the gate of a plan: the scheduler may bind the members, or the plan has ended.
	Open struct{ Gate Gate }
	// Allow ends the waiting of a member in Permit with a yes.
	Allow struct{ UID vgpu.UID }
	// Reject ends the waiting with a no.
	Reject struct {
		UID vgpu.UID
		Why string
	}
	// Activate has the scheduler try pods of a gang again.
	Activate struct {
		Ref  Ref
		UIDs []vgpu.UID
	}
	// Denominate ends the nomination of a member for a node where it has no place any more.
	Denominate struct {
		UID       vgpu.UID
		Pod, Node string
	}
	// Evict evicts the bound members of a gang of which the scheduler bound too few in time. Released answers it.
	Evict struct {
		Ref  Ref
		UIDs []vgpu.UID
	}
	// StillLeaving answers PodRefused: State keeps room for the pod on a node, and pods in it have not left yet.
	StillLeaving struct{ Node, Why string }
	// CameToNothing answers PodRefused: State has given up the room of the pod.
	CameToNothing struct{ Why string }
	// SeekOthers requests the other pods that leave a node: once they are gone, the pod may fit.
	SeekOthers struct{ Node string }
	// Defer says that the evictions have to wait for the turn of the preemptor: the allowance is used up.
	Defer struct{ Wait time.Duration }
	// BeginEvictions has the caller evict the victims that the event names. EvictionsEnded answers it.
	BeginEvictions struct{ Number Evictions }
	// StopEvictions has the caller evict no further pods.
	StopEvictions struct{ Number Evictions }
	// ActivatePods has the scheduler try pods again that belong to no gang.
	ActivatePods struct{ Pods []PodRef }
	// Missing has the scheduler write events on members: other members are missing.
	Missing struct {
		Ref  Ref
		UIDs []vgpu.UID
		Why  string
	}
	// Start says that all members that must run have a place, Waited after the first try. Nodes are those of the members that
	// have one in the plan, one entry a member.
	Start struct {
		Ref    Ref
		Known  bool
		Waited time.Duration
		Nodes  []string
	}
	// Count adds one to a counter; Reason is that of refusals.
	Count struct {
		What   Counter
		Reason gang.Reason
	}
)

// Counter names what Count counts.
type Counter uint8

// The counters.
const (
	// Attempts are requests for a plan.
	Attempts Counter = iota
	// Cancelled are plans that ended.
	Cancelled
	// Reservations are rooms that State keeps while pods end.
	Reservations
	// Refusals are refusals for another reason than before.
	Refusals
	// Releases are gangs whose members the scheduler evicted, since it had bound too few.
	Releases
	// RepairsKept and RepairsMoved are members that failed during the binds: they keep their place, or lose it.
	RepairsKept
	RepairsMoved
	// Deferrals are preemptors that wait for the allowance.
	Deferrals
)

// String returns the name of the counter.
func (c Counter) String() string {
	return [...]string{"attempts", "cancelled", "reservations", "refusals", "releases", "repairs kept", "repairs moved", "deferrals"}[c]
}

func (Give) effect()           {}
func (Refuse) effect()         {}
func (Plan) effect()           {}
func (SeekRoom) effect()       {}
func (Wait) effect()           {}
func (Hold) effect()           {}
func (Release) effect()        {}
func (Open) effect()           {}
func (Allow) effect()          {}
func (Reject) effect()         {}
func (Activate) effect()       {}
func (Denominate) effect()     {}
func (Evict) effect()          {}
func (Missing) effect()        {}
func (Start) effect()          {}
func (Count) effect()          {}
func (StillLeaving) effect()   {}
func (CameToNothing) effect()  {}
func (SeekOthers) effect()     {}
func (Defer) effect()          {}
func (BeginEvictions) effect() {}
func (StopEvictions) effect()  {}
func (ActivatePods) effect()   {}
