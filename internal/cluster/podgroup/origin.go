package podgroup

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
)

// Origin is the object of a user that makes members of a gang, zero for pods without one.
type Origin struct{ Kind, Name string }

// String returns the kind and the name.
func (o Origin) String() string { return o.Kind + " " + o.Name }

// Labels of the objects that make controllers of pods, and make them anew.
const (
	jobSetName          = "jobset.sigs.k8s.io/jobset-name"
	leaderWorkerSetName = "leaderworkerset.sigs.k8s.io/name"
)

// OriginOf returns the origin of a pod: its JobSet, its LeaderWorkerSet or its Deployment, else its controller.
func OriginOf(pod *v1.Pod) Origin {
	if name := pod.Labels[jobSetName]; name != "" {
		return Origin{"JobSet", name}
	}
	if name := pod.Labels[leaderWorkerSetName]; name != "" {
		return Origin{"LeaderWorkerSet", name}
	}
	owner := controllerOf(pod)
	if name, revised := strings.CutSuffix(owner.Name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]); revised && owner.Kind == "ReplicaSet" {
		return Origin{"Deployment", name}
	}
	return Origin{owner.Kind, owner.Name}
}

// Began returns when an origin made its first member of a gang that the set has seen since the gang has members, zero where that is unknown.
// several reports whether there were other origins.
func (s *Set) Began(ref Ref, o Origin) (at time.Time, several bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gangs[ref]
	if g == nil {
		return at, false
	}
	return g.origins[o], len(g.origins) > 1
}

// maxOrigins bounds the origins that the set remembers of a gang, since a tenant chooses their names. The set does not know when further ones began.
const maxOrigins = 64

// noteOrigin notes when the origin of a member began. The caller holds the mutex.
func (g *gang) noteOrigin(pod *v1.Pod) {
	o, created := OriginOf(pod), pod.CreationTimestamp.Time
	if at, known := g.origins[o]; !known && len(g.origins) < maxOrigins || known && created.Before(at) {
		g.origins[o] = created
	}
}
