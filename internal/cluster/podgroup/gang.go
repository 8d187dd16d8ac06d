package podgroup

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

type (
	// Ref names a gang.
	Ref = reservation.Ref
	// Source says where the user declared a gang.
	Source = reservation.Source
)

// Sources, in the order of precedence for a pod that names several.
const (
	// Native is PodGroup of scheduling.k8s.io. Where Queues returns true, the scheduler's queue knows these gangs
	// itself and tries their members in one cycle.
	Native Source = "scheduling.k8s.io"
	// XK8s is PodGroup of scheduling.x-k8s.io.
	XK8s Source = "scheduling.x-k8s.io"
	// Label is tandem-gpu.io/gang with tandem-gpu.io/min-members.
	Label Source = "label"
)

// fieldOf returns the field of a pod that names its gang.
func fieldOf(s Source) string {
	switch s {
	case Native:
		return membership.FieldPodGroup
	case XK8s:
		return "the label " + membership.LabelPodGroup
	}
	return "the label " + v1alpha1.LabelGang
}

// Less reports whether a pod comes before another in the order of a gang's members.
func Less(a, b *v1.Pod) bool { return membership.RankOf(a).Compare(membership.RankOf(b)) < 0 }

// Gang is what the API says of a gang now. Callers must not modify it.
type Gang struct {
	Ref
	// MinCount is the least number of members that may run, 1 or more.
	MinCount int
	// Required and Preferred are levels, as in gang.Wishes.
	Required, Preferred []string
	// Members are the pods that exist and have not ended, by rank: the order of Less. Pods in deletion are among them.
	Members []*v1.Pod
	// Ranks of the members.
	Ranks []int
	// Object of events beside the pods; nil for gangs by label.
	Object *v1.ObjectReference
	// Created is the creation time of the PodGroup, for gangs by label that of the oldest member.
	Created time.Time
}
