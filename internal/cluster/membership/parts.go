package membership

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// LabelReplica is the label by which a LeaderWorkerSet numbers its replicas: groups of pods of which each works alone.
const LabelReplica = "leaderworkerset.sigs.k8s.io/group-index"

// Replicas are the replicas of a LeaderWorkerSet that the members of a gang belong to. The zero value is ready.
type Replicas struct{ first, other *v1.Pod }

// See notes a member.
func (r *Replicas) See(pod *v1.Pod) {
	switch group := pod.Labels[LabelReplica]; {
	case r.first == nil:
		r.first = pod
	case r.other == nil && r.first.Labels[LabelReplica] != group:
		r.other = pod
	}
}

// Apart returns what is wrong with a gang that has pods of several replicas, where fewer than all of them must run. It could start with
// some pods of each replica, and none of them would work. A gang all of whose members must run is legal.
func (r *Replicas) Apart(least, members int) error {
	if r.other == nil || least >= members {
		return nil
	}
	return fmt.Errorf("the members are of several replicas of a LeaderWorkerSet: label %s is %s of pod %s and %s of pod %s, and %d of the %d members may run without the others; "+
		"a gang of groups, each of them whole or absent, is not supported: make a LeaderWorkerSet with one replica and a gang of its own for each, "+
		"or have the least number of members be that of all pods",
		LabelReplica, shown(r.first), r.first.Name, shown(r.other), r.other.Name, least, members)
}

// shown returns the number of a pod's replica in quotes, "none" where it has none.
func shown(pod *v1.Pod) string {
	if value, ok := pod.Labels[LabelReplica]; ok {
		return kube.Shown(strconv.Quote(value))
	}
	return "none"
}
