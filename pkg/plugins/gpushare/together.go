package gpushare

import (
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Ledgers updates the plugin's knowledge of the nodes and returns the ledger of each, with the holds and the room of
// the host. It serves plugins that place several pods at once. The devices of a node that takes no vGPU pods now take
// nothing. A node without devices is nil, unless also returns true for it. Callers do not modify a ledger. The pod is
// one of those in question; the error names what the plugin has not read yet, in words for its owner.
//
// Only the scheduling cycle may call it.
func (p *Plugin) Ledgers(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, also func(node string) bool) ([]*vgpu.Node, error) {
	p.learn()
	if why := p.unread(); why != "" {
		return nil, errors.New(why)
	}
	logger := klog.FromContext(ctx)
	l := p.state.refresh(logger, nodes)
	p.adopt(logger, p.current(pod), l, &vgpu.Request{})
	ledgers := make([]*vgpu.Node, len(nodes))
	for i, info := range nodes {
		o := p.state.occupancyOf(info)
		switch {
		case o.problem == "" && o.stray == 0:
			ledgers[i] = p.state.withUnresolved(o.ledger)
		case o.ledger != nil:
			ledgers[i] = o.ledger.Only(func(int) bool { return false })
		case also(info.Node().Name):
			ledgers[i] = bareHost(info)
		}
	}
	return ledgers, nil
}

// withUnresolved returns the ledger with the room of unresolved binds as holds of no pod. Only the pod that may be there already
// may have the room, with the very same devices, and a plan for several pods cannot see that.
func (s *state) withUnresolved(ledger *vgpu.Node) *vgpu.Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.nodes[ledger.Name()]
	if n == nil || len(n.unresolved) == 0 {
		return ledger
	}
	out := ledger.Without(func(h *vgpu.Hold, held bool) bool {
		_, isUnresolved := n.unresolved[h.UID]
		return held && isUnresolved
	})
	for _, uid := range slices.Sorted(maps.Keys(n.unresolved)) {
		h := vgpu.Hold{Assignment: n.unresolved[uid].Assignment, Priority: unresolvedPriority}
		h.UID += "?"
		_ = out.Hold(h) // a hold that does not fit is a stray, which the caller has looked at
	}
	return out
}

// Unresolved returns the devices that a pod may have, by node: those of binds with an unknown result. At most one did.
func (p *Plugin) Unresolved(uid vgpu.UID) []vgpu.Assignment {
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	names := slices.Sorted(slices.Values(p.state.unresolved[uid]))
	if len(names) == 0 {
		return nil
	}
	all := make([]vgpu.Assignment, 0, len(names))
	for _, name := range names {
		all = append(all, p.state.nodes[name].unresolved[uid].Assignment)
	}
	return all
}

// bareHost returns a node without devices, for pods without vGPUs.
func bareHost(info fwk.NodeInfo) *vgpu.Node {
	n, err := vgpu.NewNode(info.Node().Name, nil)
	if err != nil {
		return nil // a node without a name
	}
	n.SetRoom(roomOf(info))
	return n
}

// Policy returns what places are ranked by in this scheduling cycle.
func (p *Plugin) Policy() placement.Policy { return p.state.ruling().Policy }

// Request returns the request of a pod by the present rule; without containers for a pod without vGPUs. Its searches are bounded as those of a pod
// that may use all nodes: plans for gangs ask nodes that do not admit a member too. The error is why PreFilter would refuse the pod on every node,
// in words for its owner.
func (p *Plugin) Request(pod *v1.Pod) (vgpu.Request, error) {
	r, err := readRequest(pod)
	if err != nil || !kube.WantsVGPU(pod) {
		return r, err
	}
	rule, offers := p.state.ruling(), p.state.offered()
	know := rule.know
	if rule.among == nil {
		know = p.state.learner.Snapshot() // rules do not follow it while neighbours make no difference
	}
	r.Steps = p.stepsOnAll()
	if err := p.state.complete(pod, &r, know, offers); err != nil {
		return r, err
	}
	if refusal := vgpu.LegalAnywhere(offers, &r); refusal != nil {
		return r, errors.New(explainIllegal(pod, *refusal))
	}
	if err := tooLittle(pod, &r, know, offers); err != nil {
		return r, err
	}
	return r, nil
}

// Losses returns the losses of a gang of the pod's workload by its spread, by level, as its WorkloadProfile declares
// them at this moment; nil without a declaration. The caller must not change the list. No rule depends on it, so it is
// not the ruling one's knowledge, which can be a minute old.
func (p *Plugin) Losses(pod *v1.Pod) []gang.Loss {
	know := p.state.learner.Snapshot()
	if w := know.Workload(know.Number(pod)); w != nil {
		return w.Losses()
	}
	return nil
}

// Plans sets the function that knows the pods of another plugin's plans. Only their holds keep room for them. A node
// that the framework nominated for such a pod, while it waited for its siblings, means nothing once the hold is gone.
func (p *Plugin) Plans(member func(pod *v1.Pod) bool) { p.state.planned.Store(&member) }

func (s *state) plannedElsewhere(pod *v1.Pod) bool {
	member := s.planned.Load()
	return member != nil && (*member)(pod)
}

// Held returns the hold of a pod, and whether there is one.
func (p *Plugin) Held(uid vgpu.UID) (vgpu.Hold, bool) {
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	h, ok := p.state.holds[uid]
	return h, ok
}

// Stands reports whether a pod has a hold on the node, and could have that room now. Pods of a higher priority pass
// over holds, and devices become unhealthy.
func (p *Plugin) Stands(uid vgpu.UID, info fwk.NodeInfo) bool {
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	n, h := p.state.nodes[info.Node().Name], p.state.holds[uid]
	if n == nil || n.empty == nil || h.Node != n.name || !n.healthy(&h.Assignment) {
		return false
	}
	ledger, why := p.state.everything(n, info, uid, true)
	return why == "" && !passedOver(ledger, &h) && ledger.Add(h.Assignment) == nil
}

// Assigned returns the devices of a pod: its reservation, else its annotation, and whether it has any.
func (p *Plugin) Assigned(pod *v1.Pod) (vgpu.Assignment, bool) {
	p.state.mu.RLock()
	a, reserved := p.state.reservations[kube.UIDOf(pod)]
	p.state.mu.RUnlock()
	if reserved {
		return a, true
	}
	a, err := kube.AssignmentOf(pod)
	return a, err == nil
}
