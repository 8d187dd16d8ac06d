package why

import (
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Answer is why one pod, or the members of a gang, wait.
type Answer struct {
	// Pods that wait, and Gang that they belong to, nil for a single pod.
	Pods []snapshot.Name    `json:"pods"`
	Gang *snapshot.GangName `json:"gang,omitempty"`
	// Alike are other single pods that wait, of which the answer is true as well: see Alike.
	Alike []snapshot.Name `json:"alike,omitempty"`
	// Least is the number of members that must run, and Placed the number of those that have a place, for gangs.
	Least  int `json:"least,omitempty"`
	Placed int `json:"placed,omitempty"`
	// GivesWay is the gang for which the gang can be evicted, and TakesFrom one that can be evicted for it, with the time from which
	// on; nil for none. Both lack members.
	GivesWay  *snapshot.GivesWay `json:"givesWay,omitempty"`
	TakesFrom *snapshot.GivesWay `json:"takesFrom,omitempty"`
	// Cause is what keeps them waiting beside nodes, devices and hosts, nil for nothing. If the pods wait for the cause alone, the
	// answer has nothing else.
	Cause *Cause `json:"cause,omitempty"`
	// Fits are the places that devices and hosts have for the pods as they are. If there are some, something else refuses them.
	Fits []Place `json:"fits,omitempty"`
	// Promise is, where there are Fits, the promised slowdown that kept the first pod away from the nearest device at the last attempt;
	// nil for none.
	Promise *snapshot.Refusal `json:"promise,omitempty"`
	// RoomAt is the max-slowdown in thousandths with which the first pod would have had room at that attempt, as the scheduler tried; 0 for none.
	RoomAt int64 `json:"roomAtSlowdownMilli,omitempty"`
	// Never says that the scheduler found no room for the gang even if all devices were healthy and free, and all hosts empty.
	Never bool `json:"never,omitempty"`
	// Said is, where there are Fits and where there is Never room, the sentence with which the scheduler refused the gang, "" for none.
	Said string `json:"said,omitempty"`
	// Nodes counts the nodes by what refuses the first pod there: a reason of package vgpu, a reason of this package, or the problem
	// of the node. Sorted, the most frequent first.
	Nodes []snapshot.RefusedNodes `json:"nodes"`
	// Nearest is the nearest miss of the first pod on devices, nil where there is none.
	Nearest *snapshot.Refusal `json:"nearest,omitempty"`
	// Miss is Nearest with its sentence.
	Miss *vgpu.Refusal `json:"-"`
	// Host is the nearest miss on hosts, of the nodes whose devices take the first pod; nil where there is none.
	Host *HostMiss `json:"host,omitempty"`
	// Changes that were tried and help, each alone.
	Changes []Change `json:"changes"`
	// Unknown is what the snapshot does not have, and what counts for these pods.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Others counts the nodes that other plugins of the scheduler refused at the last attempt, by plugin.
	Others []snapshot.RefusedNodes `json:"others,omitempty"`
}

// Reasons of nodes beside those of package vgpu.
const (
	// HostFull: the node's host has too little CPU or memory.
	HostFull = "HostFull"
	// Stray: pods without an assignment hold the node's slots.
	Stray = "StraySlots"
)

// HostMiss is a host that has too little for a pod.
type HostMiss struct {
	Node string `json:"node"`
	// These are the amounts that the pod asks for, and those that the host has free.
	WantMilliCPU    int64      `json:"wantMilliCPU,omitempty"`
	FreeMilliCPU    int64      `json:"freeMilliCPU"`
	WantMemoryBytes vgpu.Bytes `json:"wantMemoryBytes,omitempty"`
	FreeMemoryBytes vgpu.Bytes `json:"freeMemoryBytes"`
}

// Place is a node with the devices of a pod.
type Place struct {
	Pod     string          `json:"pod"`
	Node    string          `json:"node"`
	Devices []vgpu.DeviceID `json:"devices"`
}

// Kind names a change.
type Kind string

// Kinds of changes, in the order of Answer.Changes.
const (
	// LessMemory: the pods ask for Memory in the container that asks for the most.
	LessMemory Kind = "LessMemory"
	// FewerSlots: the pods ask for Slots in the container that asks for the most.
	FewerSlots Kind = "FewerSlots"
	// AsGang: a gang of Members, each with Slots, has room in place of a pod that asks for several whole devices.
	AsGang Kind = "AsGang"
	// LessHost: the pods ask for MilliCPU and HostMemory of their hosts at most.
	LessHost Kind = "LessHost"
	// AnyModel: the pods may use all GPU models.
	AnyModel Kind = "AnyModel"
	// FewerMembers: a gang of Members has room.
	FewerMembers Kind = "FewerMembers"
	// PodsLeave: Leave leave.
	PodsLeave Kind = "PodsLeave"
	// PodsEnd: Leave have ended by At, as they declare.
	PodsEnd Kind = "PodsEnd"
	// PodsLikelyEnd: Leave have probably ended between From and To, and by At in half of the cases.
	PodsLikelyEnd Kind = "PodsLikelyEnd"
	// HoldsEnd: the scheduler no longer keeps the room of Leave.
	HoldsEnd Kind = "HoldsEnd"
	// DevicesRecover: Devices are healthy again.
	DevicesRecover Kind = "DevicesRecover"
	// NodesReturn: Nodes take pods again.
	NodesReturn Kind = "NodesReturn"
)

// Change is something that was tried, and after which the pods fit.
type Change struct {
	Kind Kind `json:"kind"`
	// Memory of the container, for LessMemory: the most of whole GiB that fits.
	Memory vgpu.Bytes `json:"memoryBytes,omitempty"`
	// Slots of the container, for FewerSlots: the most that fit; for AsGang those of each member.
	Slots vgpu.Slots `json:"slots,omitempty"`
	// MilliCPU and HostMemory, for LessHost: the most CPU that fits and, with that, the most memory. 0 stands for as much as they ask.
	MilliCPU   int64      `json:"milliCPU,omitempty"`
	HostMemory vgpu.Bytes `json:"hostMemoryBytes,omitempty"`
	// Members, for FewerMembers: the most that fit; for AsGang as many as the pod asks for devices.
	Members int `json:"members,omitempty"`
	// Models that the places have, for AnyModel.
	Models []string `json:"models,omitempty"`
	// At is, for PodsEnd, the first Unix time at which enough pods have ended; for PodsLikelyEnd the one that half of the cases do not exceed.
	At int64 `json:"at,omitempty"`
	// From and To are, for PodsLikelyEnd, the Unix times between which that is in four of five cases. Known is the fewest pods that ended
	// before on which one of these predictions rests, and Rivals the number of other pods of no lower priority that wait: they may take
	// the room.
	From   int64 `json:"from,omitempty"`
	To     int64 `json:"to,omitempty"`
	Known  int   `json:"known,omitempty"`
	Rivals int   `json:"rivals,omitempty"`
	// Leave are pods, for PodsLeave, PodsEnd, PodsLikelyEnd and HoldsEnd; none of them is superfluous.
	Leave []Leaving `json:"leave,omitempty"`
	// Devices that have to recover, by node and name, and the Reasons for which they take no work: words of the node's agent, or Cordoned
	// with the words of an administrator.
	Devices []string `json:"devices,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
	// Nodes that have to take pods again, for NodesReturn.
	Nodes []ClosedNode `json:"nodes,omitempty"`
	// Places of the pods then.
	Places []Place `json:"places"`

	request []vgpu.Request
	assigns []vgpu.Assignment
}

// ClosedNode is a node that takes no pods, and why.
type ClosedNode struct {
	Name    string `json:"name"`
	Problem string `json:"problem"`
}

// Leaving is a pod that would have to leave, or whose hold would have to end.
type Leaving struct {
	snapshot.Name
	Node     string `json:"node"`
	Priority int32  `json:"priority"`
	// Higher says that its priority is not below that of the pods that wait, so that the scheduler does not evict it for them.
	Higher bool `json:"higher,omitempty"`
	// Equal says that its priority is theirs.
	Equal bool `json:"equal,omitempty"`
	// Already says that the pod is being evicted.
	Already bool `json:"already,omitempty"`
	// Until is, of a pod, the Unix time of its declared end. For a hold it is the time by which the present users of its devices
	// have ended; 0 where that is not known.
	Until int64 `json:"until,omitempty"`
	// Since is, for PodsLikelyEnd, the Unix time at which the pod got its node, 0 where that is not known.
	Since int64 `json:"since,omitempty"`
}

// Unknown is something that the scheduler goes by and the snapshot does not have.
type Unknown string

// The values of Unknown.
const (
	// Slowdowns: a promised slowdown counts, and the snapshot does not have how workloads slow each other down.
	Slowdowns Unknown = "Slowdowns"
	// OtherPlugins: other plugins of the scheduler refused nodes, and the snapshot does not say which.
	OtherPlugins Unknown = "OtherPlugins"
	// Topology: the gang may have to be close together, which is not tried.
	Topology Unknown = "Topology"
	// Attempts: the scheduler has not tried the pods yet, so that the free CPU and memory of hosts may be out of date.
	Attempts Unknown = "Attempts"
	// Guards: the snapshot does not say which pods are protected from eviction, nor the disruption budgets.
	Guards Unknown = "Guards"
)
