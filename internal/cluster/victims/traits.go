package victims

import (
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
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
	// least is how long it runs at least.
	least time.Duration
}

// TraitsOf returns the traits of a pod that takes so much of its host.
func (g *Guards) TraitsOf(pod *v1.Pod, host vgpu.Room) Traits {
	t := Traits{
		Pod: pod,
		as: preemption.Pod{
			UID: vgpu.UID(pod.UID), Name: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Host: host,
			Serving: serves(pod), Guard: g.lasting(pod), Leaving: pod.DeletionTimestamp != nil, Gang: -1,
		},
		namespace: unique.Make(pod.Namespace).Value(), run: runOf(pod), least: g.least(pod),
	}
	grace, _ := g.GracePeriod(pod)
	t.as.Slow = grace > LeavingWithin
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

// at returns the candidate at a time.
func (t *Traits) at(now time.Time, share vgpu.MilliGPU) preemption.Pod {
	p := t.as
	p.Lost = t.run.lost(share, now)
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
