package podgroup

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	core "github.com/tandem-gpu/tandem/pkg/gang"
)

// Want is the question to package gang for a gang that was refused for lack of room. Callers must not modify it.
type Want struct {
	*Gang
	// Cluster, Group and Config are the question, of the present scheduling cycle.
	Cluster *core.Cluster
	Group   *core.Group
	Config  core.Config
	// Pods are the members that need a place, in the order of Group.Members.
	Pods []*v1.Pod
	// Unbound is how many of the members that must run were not bound when Group was made.
	Unbound int
}

// ErrChanged says that a gang has changed since it was refused.
var ErrChanged = errors.New("its members changed meanwhile")

// Cycle is what plugins leave for each other in a scheduling cycle: the CycleState of a pod, or that of a group cycle.
type Cycle interface {
	// Read returns the value under a key; the error says that there is none.
	Read(key fwk.StateKey) (fwk.StateData, error)
}
