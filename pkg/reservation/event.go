package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Event is something that happened. The field Gang of an event is what the API says of the gang just now.
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
		// Never: the pod evicts no others.
		Never bool
		// Grouped: the scheduler tries all members in this cycle. Again: the plugin has requested a plan in this cycle before.
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
		// Others are the members that the scheduler may try now.
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
		// Surplus is the message for a member that the gang may run without, "" where the members that must run have no place.
		Surplus string
		// Void is why the room that evictions make came to nothing, "" where it did not.
		Void string
		// Kept describes the room that State keeps while pods end, if any.
		Kept KeptRoom
	}
	// RoomSought answers SeekRoom. Without Found State keeps no room now; Later says why.
	RoomSought struct {
		Ref   Ref
		UID   vgpu.UID
		Found *gang.Plan
		// Holds keep the devices of Found.
		Holds []vgpu.Hold
		Later string
		// Anywhere: the gang has room only with the nodes where State kept room in vain, so State stops avoiding them.
		Anywhere bool
	}
	// HoldFailed means that GPUShare could not hold devices.
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
	// Permitted means that a member has reached Permit. Wait says that the scheduler may not bind it yet.
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
	// NodeRefused means that no node takes a member, or, where Limited, that another plugin refuses its planned node.
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
	// RoomWanted means that preemption wants to seek victims for a gang again. Refuse says that it is too early.
	RoomWanted struct{ Ref Ref }
	// RoomMade means that the scheduler is to evict pods for a gang. Refuse says that the gang has changed. Room.Until is when
	// the grace periods of the victims are over; State adds the placement deadline.
	RoomMade struct {
		Gang     Facts
		Room     Made
		Priority int32
	}
	// RoomTried means that from now on, or no longer, State gives each member its place in the room that evictions make.
	RoomTried struct {
		Ref Ref
		On  bool
	}
	// RoomGivenUp means that the scheduler evicts no pods for a gang now. Preemption seeks victims again after Pause, with 0 a
	// while later and only where something changed.
	RoomGivenUp struct {
		Ref   Ref
		Why   string
		Pause time.Duration
	}
	// Vacated means that the scheduler is about to evict all members that have a place.
	Vacated struct {
		Ref     Ref
		Members []vgpu.UID
	}
	// Withdrawn means that the place of a member goes to pods of a higher priority, before its bind.
	Withdrawn struct {
		Gang Facts
		UID  vgpu.UID
	}
	// PodRefused means that no node takes a pod that belongs to no gang. The answer is StillLeaving, CameToNothing or
	// SeekOthers, none where State keeps no room for the pod.
	PodRefused struct {
		PodRef
		// NodeKnown: the node of the pod's room is in the scheduler's snapshot. Field There lists the victims on it.
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
	// PodRoomWanted means that preemption wants to seek victims for a pod again. Refuse says that it is too early.
	PodRoomWanted struct{ PodRef }
	// PodRoomMade means that the scheduler is to evict pods for a pod. The answer is BeginEvictions, or Defer. Until is when
	// the last of the room's victims is gone at the latest. Passed are pods whose room the pod takes: see State.PassedOver.
	PodRoomMade struct {
		PodRef
		Room   PodRoom
		Until  time.Time
		Evict  []Chosen
		Passed []vgpu.UID
	}
	// PodHoldFailed means that GPUShare could not hold the devices of a pod's room. Why says why not.
	PodHoldFailed struct {
		UID vgpu.UID
		Why string
	}
	// PodRetried means that the scheduler is to try a pod again: at a time, or when a PodDisruptionBudget allows more.
	PodRetried struct {
		PodRef
		At        time.Time
		OnBudgets bool
	}
	// PodEnded means that a pod has a node, or is gone.
	PodEnded struct {
		UID  vgpu.UID
		Gone bool
	}
	// PodTicked means that a second has passed for the room of a pod.
	PodTicked struct {
		UID vgpu.UID
		// NodeStands: the node of the room is there, and may take the pod. Field There lists the victims that exist.
		NodeStands bool
		There      []vgpu.UID
	}
	// EvictionsWanted means that the room of a gang needs evictions. The answer is BeginEvictions, or Defer.
	EvictionsWanted struct {
		Ref      Ref
		Priority int32
		Evict    []Chosen
	}
	// EvictionsEnded answers BeginEvictions: the evictions of all of Evict succeeded, or Why says what failed. Asked are those
	// whose eviction the caller requested, Stay those that exist and are not ending.
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
	// VictimWithdrawn means that a victim lost its place before its bind.
	VictimWithdrawn struct {
		Preemptor Preemptor
		UID       vgpu.UID
	}
	// PlainEvicted means that the scheduler evicted a pod for one that requests no vGPU.
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
		// VictimsLeft: victims for the gang are still there.
		VictimsLeft bool
		// Blocked are the nodes with pods that the gang waits for and that have not ended.
		Blocked []string
	}
	// Released answers Evict: the scheduler could not evict Left of the members.
	Released struct {
		Gang Facts
		Left int
	}
)

// KeptRoom is the state of the room that State keeps for a gang while pods end.
type KeptRoom struct {
	// Stands: GPUShare holds the devices for members of the gang, and they are healthy.
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
