package podgroup

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	core "github.com/tandem-gpu/tandem/pkg/gang"
)

// RoomRequest is a gang that a scheduling cycle refused for want of room, in the form of package gang. The plugin
// GPUGang leaves it in the state of the cycle, and GPUPreempt takes it from there. Callers do not modify it.
type RoomRequest struct {
	*Gang
	// Cluster, Group and Config are the question, of the present scheduling cycle.
	Cluster *core.Cluster
	Group   *core.Group
	Config  core.Config
	// Pods are the members that want a place, in the order of Group.Members.
	Pods []*v1.Pod
	// Unbound is how many of the required members had no node when Group was made.
	Unbound int
	// Grouped says that the scheduler tries all members in one cycle.
	Grouped bool
}

// Clone returns the same request: a request never changes.
func (r *RoomRequest) Clone() fwk.StateData { return r }

const roomRequestKey fwk.StateKey = "GPUGang/roomRequest"

// Cycle is the state of the scheduling cycle of a pod, or of a group.
type Cycle interface {
	Read(key fwk.StateKey) (fwk.StateData, error)
	Write(key fwk.StateKey, val fwk.StateData)
}

// Leave leaves the request in the state of a cycle.
func (r *RoomRequest) Leave(cycle Cycle) { cycle.Write(roomRequestKey, r) }

// RoomRequestOf returns the request for a gang in a cycle, nil for none.
func RoomRequestOf(cycle Cycle, ref Ref) *RoomRequest {
	data, err := cycle.Read(roomRequestKey)
	if r, ok := data.(*RoomRequest); err == nil && ok && r.Ref == ref {
		return r
	}
	return nil
}
