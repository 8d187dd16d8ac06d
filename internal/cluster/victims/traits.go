package victims

import (
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Traits are what a pod says of itself as a candidate for an eviction, under some guards. The traits are valid for as
// long as the pod's object: informers replace objects and never write to them. The traits hold nothing that depends on
// the time, on budgets or on other pods.
type Traits struct {
	// Pod is the object.
	Pod *v1.Pod
	// as is the candidate without what is not among the traits; its guard is the lasting one.
	as preemption.Pod
	// namespace is one string for all pods of a namespace: a map finds it faster than many equal ones.
	namespace string
	run       run
	// soon is how long before its end the pod ends soon.
	soon time.Duration
	// least is how long it runs at least.
	least time.Duration
	// leads is added to the work that is lost with it: see leadOf.
	leads int64
}

// maxLead is the most that the number of a member counts, in thousandths of a GPU times seconds. More would make members
// of elastic gangs dearer than other pods.
const maxLead = 10_000

// leadOf returns how much more work counts as lost with a member of an elastic gang than with the members after it. So of
// members that lost the same the last ones are evicted first: the first one leads, and the others can run without those
// after them. 0 for other pods.
func leadOf(pod *v1.Pod) int64 {
	if _, elastic := pod.Annotations[v1alpha1.AnnotationElasticWorkers]; !elastic {
		return 0
	}
	return max(0, maxLead-int64(max(0, membership.RankOf(pod).Index())))
}

// TraitsOf returns the traits of a pod that takes so much of its host.
func (g *Guards) TraitsOf(pod *v1.Pod, host vgpu.Room) Traits {
	t := Traits{
		Pod: pod,
		as: preemption.Pod{
			UID: vgpu.UID(pod.UID), Name: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Host: host,
			Serving: serves(pod), Guard: g.lasting(pod), Leaving: pod.DeletionTimestamp != nil, Gang: -1,
		},
		namespace: unique.Make(pod.Namespace).Value(), run: runOf(pod), least: g.least(pod), leads: leadOf(pod),
	}
	grace, _ := g.GracePeriod(pod)
	t.as.Slow, t.soon = grace > kube.LeavingWithin, g.soon(pod)
	t.as.NeverPreempts = pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
	if pod.Spec.Priority != nil {
		t.as.Priority = *pod.Spec.Priority
	}
	return t
}

// UID is the pod's.
func (t *Traits) UID() vgpu.UID { return t.as.UID }

// Placed reports whether it has a node.
func (t *Traits) Placed() bool { return t.as.Node != "" }

// Priority is the pod's, 0 where it has none.
func (t *Traits) Priority() int32 { return t.as.Priority }

// Leaving reports whether the pod is in deletion.
func (t *Traits) Leaving() bool { return t.as.Leaving }

// EndsSoon reports whether the pod ends by itself about as soon as an eviction would end it: see Guards.EndsSoon.
func (t *Traits) EndsSoon(now time.Time) bool { return t.run.endsWithin(t.soon, now) }

// at returns the candidate at a time.
func (t *Traits) at(now time.Time, share vgpu.MilliGPU) preemption.Pod {
	p := t.as
	p.Share = share
	p.Lost = min(t.run.lost(share, now)+t.leads, preemption.MaxLost)
	if p.Guard == "" && t.run.shorter(t.least, now) {
		p.Guard = preemption.TooYoung
	}
	return p
}

// serves reports whether a pod promises an answer within a time. An unreadable latency promises nothing: the admission
// policy of deploy/ keeps such values out.
func serves(pod *v1.Pod) bool {
	raw, ok := pod.Annotations[v1alpha1.AnnotationMaxLatency]
	if ok {
		_, ok = kube.LatencyOf(raw)
	}
	return ok
}
