package podgroup

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Source says where a gang is declared.
type Source string

// Sources, in the order in which a pod that names several is taken.
const (
	// Native is PodGroup of scheduling.k8s.io: the scheduler's queue knows these gangs itself and tries their members in
	// one cycle.
	Native Source = "scheduling.k8s.io"
	// XK8s is PodGroup of scheduling.x-k8s.io.
	XK8s Source = "scheduling.x-k8s.io"
	// Label is tandem-gpu.io/gang with tandem-gpu.io/min-members.
	Label Source = "label"
)

// Ref names a gang.
type Ref struct {
	Source    Source
	Namespace string
	Name      string
}

// String returns "namespace/name".
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Gang is what the API says of a gang now. Callers do not modify it.
type Gang struct {
	Ref
	// MinCount is the least number of members that may run, 1 or more.
	MinCount int
	// Required and Preferred are levels, as in gang.Wishes.
	Required, Preferred []string
	// Members are the pods that exist and have not ended, by rank: what Less orders. Those that are being deleted are
	// among them.
	Members []*v1.Pod
	// Ranks of the members.
	Ranks []int
	// Object that events are about beside the pods; nil where there is none, for gangs by label.
	Object *v1.ObjectReference
	// Created is when the PodGroup was made, for gangs by label the oldest member.
	Created time.Time
}
