package podgroup

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// Native is PodGroup of scheduling.k8s.io. If Queues returns true, the scheduler's queue knows these gangs itself and
	// tries their members in one cycle.
	Native Source = "scheduling.k8s.io"
	// XK8s is PodGroup of scheduling.x-k8s.io.
	XK8s Source = "scheduling.x-k8s.io"
	// Label is tandem-gpu.io/gang with tandem-gpu.io/min-members.
	Label Source = "label"
)

// FieldOf returns the field of a pod that names its gang.
func FieldOf(s Source) string {
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
	// MinCount is the least number of members that may run, 1 or more. In a gang that lacks members it leaves out the Done: those
	// that succeeded and that nobody makes again.
	MinCount, Done int
	// Required and Preferred are levels, as in gang.Wishes.
	Required, Preferred []string
	// Members are the pods that exist and have not ended, by rank: the order of Less. Pods in deletion are among them. The
	// members of an elastic gang that its target holds back are not.
	Members []*v1.Pod
	// Ranks of the members.
	Ranks []int
	// Object of events beside the pods; nil for gangs by label.
	Object *v1.ObjectReference
	// Created is the creation time of the PodGroup, for gangs by label that of the oldest member.
	Created time.Time
	// Sizes are the numbers of members with which an elastic gang may run, ascending; nil for other gangs. Workers is the
	// one that it should have now: the one of its target where it is Targeted, else the least.
	Sizes    []int
	Workers  int
	Targeted bool
	// SizeFields says that the controller resizes an elastic gang by the fields of the object that makes its members.
	SizeFields bool
	// held are the members that are held back for the target, and whyHeld says why.
	held    []types.UID
	whyHeld string
	// ordered is the StatefulSet that makes the missing members in order, "" for none.
	ordered string
}

// HeldBack returns why the target of an elastic gang holds a member back, "" where it does not.
func (g *Gang) HeldBack(uid types.UID) string {
	if _, held := slices.BinarySearch(g.held, uid); held {
		return g.whyHeld
	}
	return ""
}

// Held returns the members that the target of an elastic gang holds back, by UID. Callers must not modify it.
func (g *Gang) Held() []types.UID { return g.held }
