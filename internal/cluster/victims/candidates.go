package victims

import (
	"cmp"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Placed is a pod with a place.
type Placed struct {
	*Traits
	// Share is what it takes of GPUs, over all devices.
	Share vgpu.MilliGPU
	// Gang is its gang as an index of preemption.Candidates.Gangs, which the caller sets, −1 for none.
	Gang int
	// Goes says that the pod leaves without another eviction: it is a victim that the API server has not deleted yet, or it
	// ends soon by itself.
	Goes bool
	// Yields says that its gang gives way to the preemptor, although its priority is not lower.
	Yields bool
}

// Candidates returns pods as candidates for an eviction, in the same order, with their budgets. Pods in deletion leave;
// callers do not pass those that Linger.
func Candidates(pods []Placed, pdbs []*policyv1.PodDisruptionBudget, now time.Time) *preemption.Candidates {
	b := newBudgets(pdbs)
	c := &preemption.Candidates{Pods: make([]preemption.Pod, len(pods))}
	for i := range pods {
		at := &pods[i]
		c.Pods[i] = at.at(now, at.Share)
		c.Pods[i].Gang, c.Pods[i].Yields = at.Gang, at.Yields
		c.Pods[i].Leaving = at.Leaving() || at.Goes
		c.Pods[i].Budgets = b.of(at.namespace, at.Pod)
	}
	c.Budgets = b.allowances()
	return c
}

// Shares hold what pods take of the devices of the node of the last Read. The next Read uses its memory again.
type Shares struct {
	node *vgpu.Node
	uses []vgpu.PodUse
}

// Read takes in a node; nil is one without devices.
func (s *Shares) Read(n *vgpu.Node) {
	s.node, s.uses = n, s.uses[:0]
	if n != nil {
		s.uses = n.Uses(s.uses)
	}
}

// Of returns what a pod takes, over all devices: of each its slots' part, rounded down to thousandths.
func (s *Shares) Of(uid vgpu.UID) (share vgpu.MilliGPU) {
	at, _ := slices.BinarySearchFunc(s.uses, uid, func(u vgpu.PodUse, uid vgpu.UID) int { return cmp.Compare(u.UID, uid) })
	for ; at < len(s.uses) && s.uses[at].UID == uid; at++ {
		u := &s.uses[at]
		share += vgpu.MilliGPU(u.Use.Slots) * vgpu.WholeGPU / vgpu.MilliGPU(s.node.Devices()[u.Device].Slots)
	}
	return share
}
