package gpushare

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Reserve picks the devices on the node, keeps them for the pod and notes the choice in the CycleState. A later Reserve
// with the same CycleState replays the choice: in a group cycle the real Reserve does not see the pod's siblings in the
// snapshot. Reserve changes nothing but memory.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	r := requestOf(cs)
	if r == nil {
		return nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return verdict.Failed(fmt.Errorf("reserve devices for pod %s: %w", r.Pod, err))
	}
	a, why := p.state.reserve(info, r, reserveOptions{replay: choiceOf(cs), planned: p.state.plannedElsewhere(pod)})
	if why != "" {
		p.pending.noteUnsure(pod.UID)
		return verdict.New(fwk.Unschedulable, why)
	}
	cs.Write(choiceKey, &choice{a})
	return nil
}

// Unreserve gives the devices back. The choice stays in the CycleState, for the replay.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, nodeName string) {
	p.state.unreserve(kube.UIDOf(pod), nodeName)
}

// reserveOptions are the conditions of a choice of devices.
type reserveOptions struct {
	// replay is the choice to repeat, nil for none.
	replay *vgpu.Assignment
	// planned: another plugin planned the pod, so that it gets the devices of its hold or none.
	planned bool
}

// reserve chooses devices for the request and reserves them, or says why it cannot.
func (s *state) reserve(info fwk.NodeInfo, r *vgpu.Request, b reserveOptions) (vgpu.Assignment, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := info.Node().Name
	n := s.nodes[name]
	if n == nil {
		return vgpu.Assignment{}, noGPUs
	}
	if old, ok := s.reservations[r.UID]; ok {
		if old.Node == name {
			return old, ""
		}
		s.abandon(r.UID)
	}
	ledger, why := s.everything(n, info, r.UID, b.planned)
	if why != "" {
		return vgpu.Assignment{}, why
	}
	a, why := s.choose(n, ledger, r, b)
	if why != "" {
		return vgpu.Assignment{}, why
	}
	if slowdown, predicted := s.ruling().slowdown(ledger, r.UID); predicted && b.replay == nil {
		s.metrics.predicted.Observe(slowdown)
	}
	s.reservations[r.UID] = a
	n.reserved[r.UID] = true
	n.given(s, a)
	n.epoch++
	n.try(r.UID)
	return a, ""
}

// choose returns the replayed assignment, or that of the pod's hold, or a new one, and books it in the ledger.
func (s *state) choose(n *node, ledger *vgpu.Node, r *vgpu.Request, b reserveOptions) (vgpu.Assignment, string) {
	if u, ok := n.unresolved[r.UID]; ok {
		// An earlier bind with these devices may still happen: another choice on this node would be a second one.
		if err := ledger.Add(u.Assignment); err != nil {
			return vgpu.Assignment{}, err.Error()
		}
		return u.Assignment, ""
	}
	if b.replay != nil && b.replay.Node == n.name && ledger.Add(*b.replay) == nil {
		return *b.replay, ""
	}
	if h, held := s.holds[r.UID]; held && h.Node == n.name {
		if n.healthy(&h.Assignment) && !passedOver(ledger, &h) && ledger.Add(h.Assignment) == nil {
			return h.Assignment, ""
		}
		if b.planned { // no other devices: the plan chose those of a gang together
			return vgpu.Assignment{}, "the room that was kept for the pod is taken or sick"
		}
	}
	a, refusal := placement.Assign(ledger, r, s.ruling().Policy)
	if refusal != nil {
		return vgpu.Assignment{}, refusal.String()
	}
	if err := ledger.Add(a); err != nil {
		return vgpu.Assignment{}, err.Error()
	}
	return a, ""
}

// passedOver reports whether the room of a pod's hold is also that of pods of a higher priority, who take it: Add alone
// does not check that.
func passedOver(ledger *vgpu.Node, h *vgpu.Hold) bool {
	if h.Priority == math.MaxInt32 {
		return false
	}
	above := vgpu.Request{UID: h.UID, Priority: h.Priority + 1}
	for i := range ledger.Devices() {
		var peak vgpu.Peak
		for k := range h.Containers {
			if c := &h.Containers[k]; slices.Contains(c.Devices, ledger.Devices()[i].ID) {
				peak.Add(c.Kind, c.Share.Use())
			}
		}
		if !peak.Use().Within(ledger.FreeFor(i, &above)) {
			return true
		}
	}
	return false
}

// healthy reports whether all devices of an assignment are there and healthy. The caller holds a lock.
func (n *node) healthy(a *vgpu.Assignment) bool {
	for i := range a.Containers {
		for _, id := range a.Containers[i].Devices {
			if at := n.empty.Index(id); at < 0 || !n.empty.Devices()[at].Healthy {
				return false
			}
		}
	}
	return true
}

// everything returns a ledger of the node with the reservations of all pods but the one, whether or not the NodeInfo
// has those pods yet. Filter must not count the others, since preemption removes pods from NodeInfos to see what is
// free then; Reserve must, since nothing comes after it. The scheduler tries members of a gang that another plugin
// planned together on a node whose kubelet refused a pod before.
func (s *state) everything(n *node, info fwk.NodeInfo, self vgpu.UID, planned bool) (*vgpu.Node, string) {
	o := s.of(n, info)
	if o.problem != "" && (o.problem != tried || !planned || !n.held[self]) {
		return nil, o.problem
	}
	ledger := o.ledger.Clone()
	ledger.Remove(self)
	for _, uid := range slices.Sorted(maps.Keys(n.reserved)) {
		if uid == self {
			continue
		}
		ledger.Remove(uid)
		if err := ledger.Add(s.reservations[uid]); err != nil {
			return nil, err.Error()
		}
	}
	return ledger, ""
}

// unreserve drops the reservation of a pod on a node, if there is one.
func (s *state) unreserve(uid vgpu.UID, nodeName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.reservations[uid]; ok && a.Node == nodeName {
		s.abandon(uid)
	}
}

// abandon drops the reservation of a pod that does not go to its node after all, and reports whether the node was on trial with it.
// The caller holds the write lock.
func (s *state) abandon(uid vgpu.UID) (onTrial bool) {
	if a, ok := s.reservations[uid]; ok && s.nodes[a.Node] != nil {
		onTrial = s.nodes[a.Node].pause.without(uid)
	}
	s.dropReservation(uid)
	return onTrial
}

// dropReservation removes the reservation of a pod. The caller holds the write lock.
func (s *state) dropReservation(uid vgpu.UID) {
	a, ok := s.reservations[uid]
	if !ok {
		return
	}
	delete(s.reservations, uid)
	if n := s.nodes[a.Node]; n != nil {
		delete(n.reserved, uid)
		n.epoch++
	}
}

// reservation returns the devices reserved for a pod on a node.
func (s *state) reservation(uid vgpu.UID, nodeName string) (vgpu.Assignment, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.reservations[uid]
	return a, ok && a.Node == nodeName
}
