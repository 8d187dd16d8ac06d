package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Event is something that happened. Where an event has a field Gang, that is what the API says of the gang just now.
type Event interface{ event() }

type (
	// Changed means that a gang, its object or one of its members changed. Without members the gang is over.
	Changed struct{ Gang Facts }
	// Enqueued means that a member is about to enter the scheduler's queue. Refuse keeps it out.
	Enqueued struct {
		Gang Facts
		UID  vgpu.UID
	}
	// Tried means that the scheduler tries a member. The answer is Give, Refuse or Plan.
	Tried struct {
		Gang     Facts
		UID      vgpu.UID
		Pod      string
		Priority int32
		// Grouped: the scheduler tries all members in this cycle. Again: it has asked for a plan in this cycle before.
		Grouped, Again bool
		// Stands: the node and the devices of the member's place are there.
		Stands bool
		// Still are members of an ended plan that the scheduler still counts on their nodes.
		Still []vgpu.UID
	}
	// PlanFound answers Plan: places for members. Have is the number of members with a place then.
	PlanFound struct {
		Gang    Facts
		UID     vgpu.UID
		Version Version
		Places  []Place
		Have    int
		// Others are the members that may be tried now.
		Others []vgpu.UID
	}
	// PlanRefused answers Plan: there is none.
	PlanRefused struct {
		Gang    Facts
		UID     vgpu.UID
		Version Version
		Refusal Refusal
		// SkipExplanation says that the reason is that of the last refusal.
		SkipExplanation bool
		// Surplus is what to tell a member that the gang may run without, "" where the members that must run have no place.
		Surplus string
		// Void is why the room that evictions make came to nothing, "" where it did not.
		Void string
		// Kept tells of the room that is kept while pods end, where some is.
		Kept KeptRoom
	}
	// RoomSought answers SeekRoom. Without Found no room is kept now; Later says why.
	RoomSought struct {
		Ref   Ref
		UID   vgpu.UID
		Found *gang.Plan
		// Holds keep the devices of Found.
		Holds []vgpu.Hold
		Later string
		// Anywhere: only with the nodes on which room was kept in vain there would be room, so these are forgotten.
		Anywhere bool
	}
	// HoldFailed means that devices could not be held.
	HoldFailed struct {
		Gang Facts
		UID  vgpu.UID
		Pod  vgpu.UID
		Why  string
	}
	// Reserved means that a member passed Reserve at its place. Refuse says that its plan has ended.
	Reserved struct {
		Ref Ref
		UID vgpu.UID
	}
	// Permitted means that a member asks whether it may be bound. Wait says that it may not yet.
	Permitted struct {
		Gang Facts
		UID  vgpu.UID
	}
	// Unreserved means that a member failed after Reserve.
	Unreserved struct {
		Gang Facts
		UID  vgpu.UID
		Pod  string
	}
	// Bound means that the Binding of a member succeeded.
	Bound struct {
		Gang Facts
		UID  vgpu.UID
	}
	// NodeRefused means that no node takes a member, or another plugin refuses its planned one, which is Limited then.
	NodeRefused struct {
		Gang    Facts
		UID     vgpu.UID
		Node    string
		Limited bool
		Why     string
	}
	// GroupRefused means that in a group cycle, planned nodes refused members after they took so many.
	GroupRefused struct {
		Gang  Facts
		Nodes map[string]int
	}
	// RoomWanted means that preemption asks whether it may look for victims for a gang again. Refuse says that it is too early.
	RoomWanted struct{ Ref Ref }
	// RoomMade means that pods are to be evicted for a gang. Refuse says that the gang has changed. Room.Until is when the grace
	// periods of the victims are over; they are waited for until the placement deadline has passed beside.
	RoomMade struct {
		Gang     Facts
		Room     Made
		Priority int32
	}
	// RoomTried means that from now on, or no longer, each member is given its place in the room that is made.
	RoomTried struct {
		Ref Ref
		On  bool
	}
	// RoomGivenUp means that no pods are evicted for a gang now. It is asked for again after Pause, with 0 a while later and only where
	// something changed.
	RoomGivenUp struct {
		Ref   Ref
		Why   string
		Pause time.Duration
	}
	// Vacated means that all members that have a place are about to be evicted.
	Vacated struct {
		Ref     Ref
		Members []vgpu.UID
	}
	// Withdrawn means that the place of a member goes to pods of a higher priority, before it was bound.
	Withdrawn struct {
		Gang Facts
		UID  vgpu.UID
	}
	// PodRefused means that no node takes a pod that belongs to no gang. The answer is StillLeaving, CameToNothing or SeekOthers, none
	// where no room is kept for the pod.
	PodRefused struct {
		PodRef
		// NodeKnown: the node of the pod's room is in the scheduler's snapshot. There are the victims that are on it.
		NodeKnown bool
		There     []vgpu.UID
	}
	// OthersSought answers SeekOthers: after Others have left, by Until at the latest, the pod fits. Why says why it does not now.
	OthersSought struct {
		UID    vgpu.UID
		Others []PodRef
		Until  time.Time
		Why    string
	}
	// PodRoomWanted means that preemption asks whether it may look for victims for a pod again. Refuse says that it is too early.
	PodRoomWanted struct{ PodRef }
	// PodRoomMade means that pods are to be evicted for a pod. The answer is BeginEvictions, or Defer. Until is when the last of
	// the room's victims is gone at the latest. Passed are pods whose room is taken: see State.PassedOver.
	PodRoomMade struct {
		PodRef
		Room   PodRoom
		Until  time.Time
		Evict  []Chosen
		Passed []vgpu.UID
	}
	// PodHoldFailed means that the devices of a pod's room could not be held.
	PodHoldFailed struct{ UID vgpu.UID }
	// PodRetried means that a pod is to be tried again: at a time, or when a PodDisruptionBudget allows more.
	PodRetried struct {
		PodRef
		At        time.Time
		OnBudgets bool
	}
	// PodEnded means that a pod is bound, or gone.
	PodEnded struct {
		UID  vgpu.UID
		Gone bool
	}
	// PodTicked means that a second has passed for the room of a pod.
	PodTicked struct {
		UID vgpu.UID
		// NodeStands: the node of the room is there, and may take the pod. There are the victims that exist.
		NodeStands bool
		There      []vgpu.UID
	}
	// EvictionsWanted means that the room that is made for a gang needs evictions. The answer is BeginEvictions, or Defer.
	EvictionsWanted struct {
		Ref      Ref
		Priority int32
		Evict    []Chosen
	}
	// EvictionsEnded answers BeginEvictions: all of Evict were evicted, or Why says what failed. Asked are those that the API server
	// was asked to evict, and Stay those that exist and are not being deleted.
	EvictionsEnded struct {
		Preemptor Preemptor
		// Pod is the preemptor where it is a pod.
		Pod    PodRef
		Number Evictions
		Evict  []vgpu.UID
		Asked  []vgpu.UID
		Stay   []vgpu.UID
		Why    string
	}
	// VictimWithdrawn means that a victim lost its place before it was bound.
	VictimWithdrawn struct {
		Preemptor Preemptor
		UID       vgpu.UID
	}
	// PlainEvicted means that a pod was evicted for one that asks for no vGPU.
	PlainEvicted struct{}
	// VictimGone means that a pod is gone.
	VictimGone struct{ UID vgpu.UID }
	// BudgetsEased means that a PodDisruptionBudget allows more.
	BudgetsEased struct{}
	// SecondPassed means that a second has passed for all pods.
	SecondPassed struct{}
	// DoubtsEnded means that devices came free which GPUShare had kept for unresolved binds.
	DoubtsEnded struct{}
	// Ticked means that a second has passed for a gang.
	Ticked struct {
		Gang Facts
		// InPermit are members that wait in Permit.
		InPermit []vgpu.UID
		// VictimsLeft: pods that are evicted for the gang are still there.
		VictimsLeft bool
		// Blocked are the nodes with pods that the gang waits for and that have not ended.
		Blocked []string
	}
	// Released answers Evict: so many members could not be evicted.
	Released struct {
		Gang Facts
		Left int
	}
)

// KeptRoom is how room stands that is kept for a gang while pods end.
type KeptRoom struct {
	// Stands: the devices are held for members of the gang, and healthy.
	Stands bool
	// Taken are nodes with pods in the way. Short are those of the others whose hosts lack CPU or memory.
	Taken, Short []string
}

func (Changed) event()         {}
func (Enqueued) event()        {}
func (Tried) event()           {}
func (PlanFound) event()       {}
func (PlanRefused) event()     {}
func (RoomSought) event()      {}
func (HoldFailed) event()      {}
func (Reserved) event()        {}
func (Permitted) event()       {}
func (Unreserved) event()      {}
func (Bound) event()           {}
func (NodeRefused) event()     {}
func (GroupRefused) event()    {}
func (RoomWanted) event()      {}
func (RoomMade) event()        {}
func (RoomTried) event()       {}
func (RoomGivenUp) event()     {}
func (Vacated) event()         {}
func (Withdrawn) event()       {}
func (DoubtsEnded) event()     {}
func (Ticked) event()          {}
func (Released) event()        {}
func (PodRefused) event()      {}
func (OthersSought) event()    {}
func (PodRoomWanted) event()   {}
func (PodRoomMade) event()     {}
func (PodHoldFailed) event()   {}
func (PodRetried) event()      {}
func (PodEnded) event()        {}
func (PodTicked) event()       {}
func (EvictionsWanted) event() {}
func (EvictionsEnded) event()  {}
func (VictimWithdrawn) event() {}
func (VictimGone) event()      {}
func (BudgetsEased) event()    {}
func (SecondPassed) event()    {}
func (PlainEvicted) event()    {}
