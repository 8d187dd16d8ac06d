package gpushare

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Filter refuses nodes whose devices have no room for the pod. Filter reads the occupancy of PreFilter, and computes
// its own where the NodeInfo is another one: in the dry run of preemption, and for nominated pods.
//
// The framework counts equal reasons and puts the number before each, so a reason names neither node nor device and begins with a
// word; PostFilter names the nearest miss.
func (p *Plugin) Filter(_ context.Context, cs fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	r := requestOf(cs)
	if r == nil {
		return nil
	}
	o := p.state.occupancyOf(node)
	if o.problem != "" && (o.problem != tried || !p.plannedOn(pod, r.UID, node.Node().Name)) {
		return verdict.New(fwk.UnschedulableAndUnresolvable, o.problem)
	}
	if refusal := p.state.ruling().Fit(o.ledger, r); refusal != nil && (refusal.Reason == vgpu.PromiseBroken || !keptFree(o.ledger, r.UID)) {
		return verdict.New(codeOf(refusal), reasonOf(refusal))
	}
	if !o.ledger.RoomBeside(o.stray, r) {
		return verdict.New(fwk.Unschedulable, "pods without an assignment hold the node's slots")
	}
	return nil
}

// plannedOn reports whether another plugin planned a pod on the node and keeps its room there. The scheduler tries the
// members of a gang together on a node whose kubelet refused a pod before.
func (p *Plugin) plannedOn(pod *v1.Pod, uid vgpu.UID, node string) bool {
	h, held := p.Held(uid)
	return held && h.Node == node && p.state.plannedElsewhere(pod)
}

// keptFree reports whether a pod has a hold on the node whose room is free, unless pods of a higher priority take it.
// Holds of others of its own priority are no obstacle: the pod does not need that room, although the pods that leave it
// may still be there.
func keptFree(ledger *vgpu.Node, uid vgpu.UID) bool {
	kept := false
	ledger.EachHold(func(h *vgpu.Hold) {
		if h.UID == uid && !passedOver(ledger, h) {
			n := ledger.Clone()
			n.Remove(uid)
			kept = n.Add(h.Assignment) == nil
		}
	})
	return kept
}

// codeOf returns the code by which in-tree preemption knows whether evictions could help.
func codeOf(r *vgpu.Refusal) fwk.Code {
	if r.Helps == vgpu.EvictionHelps {
		return fwk.Unschedulable
	}
	return fwk.UnschedulableAndUnresolvable
}

// reasonOf is the refusal in words that few nodes differ in: no names of nodes and devices, no amounts of free memory.
func reasonOf(r *vgpu.Refusal) string {
	text := "the node's GPUs do not fit: " + string(r.Reason)
	switch r.Reason {
	case vgpu.NoDevices:
		text = "the node has no GPUs"
	case vgpu.NoAllowedModel:
		text = "the node has no GPU of a model that the pod may use"
	case vgpu.IllegalSlots:
		text = fmt.Sprintf("the GPUs have %d slots each, and %d are neither a part of one nor whole ones", r.Of, r.Want)
	case vgpu.MemoryAboveDevice:
		text = "the GPUs have less memory than asked for"
	case vgpu.ComputeLimitBelowRequest, vgpu.MemoryLimitBelowRequest:
		text = "a limit is below the request on the node's GPUs"
	case vgpu.LimitAboveDevice:
		text = "a limit is above the node's GPUs"
	case vgpu.TooFewDevices:
		text = "too few GPUs on the node"
	case vgpu.NoShareFits:
		text = shareReason(r)
	case vgpu.NoWholeDevices:
		text = fmt.Sprintf("wholly free are %d of %d GPUs", r.Best, r.Of)
	case vgpu.PromiseBroken:
		text = "a max-slowdown would break on the GPUs that have room"
	case vgpu.NoTogether:
		text = "the containers fit one by one on the GPUs, not at once"
	}
	if r.Helps == vgpu.RecoveryHelps {
		text += ", others are sick or cordoned"
	}
	return text
}

func shareReason(r *vgpu.Refusal) string {
	switch {
	case r.Device == "":
		return "no healthy GPU could take the share"
	case r.Unit == vgpu.UnitBytes:
		return "too little GPU memory is free"
	case r.Unit == vgpu.UnitContexts:
		return "the GPUs serve no more MPS clients"
	}
	return fmt.Sprintf("largest free share is %d of %d slots", r.Best, r.Of)
}
