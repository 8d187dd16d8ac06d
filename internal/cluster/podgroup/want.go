package podgroup

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	core "github.com/tandem-gpu/tandem/pkg/gang"
)

// Want is a gang that was refused for want of room, as package gang was asked for it. Callers do not modify it.
type Want struct {
	*Gang
	// Cluster, Group and Config are the question, of the present scheduling cycle.
	Cluster *core.Cluster
	Group   *core.Group
	Config  core.Config
	// Pods are the members that want a place, in the order of Group.Members.
	Pods []*v1.Pod
	// Unbound is how many of the members that must run were not bound when Group was made.
	Unbound int
}

// ErrChanged says that a gang is not any more as it was when it was refused.
var ErrChanged = errors.New("its members changed meanwhile")

// Cycle is what plugins leave for each other in a scheduling cycle: the CycleState of a pod, or that of a group cycle.
type Cycle interface {
	// Read returns what was left under a key; the error says that there is nothing.
	Read(key fwk.StateKey) (fwk.StateData, error)
}
