package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Placed is a pod with a place.
type Placed struct {
	Pod *v1.Pod
	// Host is what it takes of its host.
	Host vgpu.Room
	// Share is what it takes of GPUs, over all devices.
	Share vgpu.MilliGPU
}

// Candidates returns pods as candidates for an eviction, in the same order, with their budgets. Pods that are being deleted
// leave; callers do not hand in those that are Overdue.
//
// Which pods form gangs is known to the caller: gang returns the index of a pod's gang in preemption.Candidates.Gangs, which the
// caller sets, and −1 for a pod of no gang. A nil gang is one that knows of none.
func (g *Guards) Candidates(pods []Placed, pdbs []*policyv1.PodDisruptionBudget, gang func(*v1.Pod) int, now time.Time) *preemption.Candidates {
	b := newBudgets(pdbs)
	c := &preemption.Candidates{Pods: make([]preemption.Pod, len(pods)), Budgets: b.allowances()}
	for i := range pods {
		pod := pods[i].Pod
		c.Pods[i] = preemption.Pod{
			UID: vgpu.UID(pod.UID), Name: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Host: pods[i].Host,
			Serving: serves(pod), Lost: LostWork(pod, pods[i].Share, now), Budgets: b.of(pod),
			Guard: g.Of(pod, now), Leaving: pod.DeletionTimestamp != nil, Gang: -1,
		}
		if pod.Spec.Priority != nil {
			c.Pods[i].Priority = *pod.Spec.Priority
		}
		if gang != nil {
			c.Pods[i].Gang = gang(pod)
		}
	}
	return c
}

// serves reports whether a pod promises an answer within a time.
func serves(pod *v1.Pod) bool {
	_, ok := pod.Annotations[v1alpha1.AnnotationMaxLatency]
	return ok
}

// SharesOf returns what each pod takes of the devices of nodes: of each device its slots' part, rounded down to thousandths.
// Nodes without a ledger are nil.
func SharesOf(nodes []*vgpu.Node) map[vgpu.UID]vgpu.MilliGPU {
	shares := map[vgpu.UID]vgpu.MilliGPU{}
	var uses []vgpu.PodUse
	for _, n := range nodes {
		if n == nil {
			continue
		}
		uses = n.Uses(uses[:0])
		for _, u := range uses {
			shares[u.UID] += vgpu.MilliGPU(u.Use.Slots) * vgpu.WholeGPU / vgpu.MilliGPU(n.Devices()[u.Device].Slots)
		}
	}
	return shares
}
