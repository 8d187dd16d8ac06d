package gpushare

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Hold keeps room for a pod before its reservation: for a planned member of a gang, or for a preemptor. The hold counts for
// pods of the same or a lower priority, never for its own pod, and replaces an earlier hold of the pod. The hold ends with
// Release, with the pod's bind, or with the pod.
func (p *Plugin) Hold(h vgpu.Hold) error { return p.state.hold(h) }

// Release drops the hold of a pod and reports whether there was one. Release activates the pods that wait for room.
func (p *Plugin) Release(uid vgpu.UID) bool {
	released := p.state.release(uid)
	if released {
		p.pending.activate()
	}
	return released
}

func (s *state) hold(h vgpu.Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[h.Node]
	if n == nil || n.empty == nil {
		return fmt.Errorf("hold room for pod %s: node %s has no devices", h.Pod, h.Node)
	}
	if err := n.empty.Clone().Hold(h); err != nil {
		return err
	}
	if old, ok := s.holds[h.UID]; ok && !reflect.DeepEqual(old, h) {
		s.freed(old.Node)
	}
	s.dropHold(h.UID)
	s.holds[h.UID] = h
	n.held[h.UID] = true
	n.epoch++
	return nil
}

func (s *state) release(uid vgpu.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropHold(uid)
}

// dropHold removes the hold of a pod. The caller holds the write lock.
func (s *state) dropHold(uid vgpu.UID) bool {
	h, ok := s.holds[uid]
	if !ok {
		return false
	}
	delete(s.holds, uid)
	if n := s.nodes[h.Node]; n != nil {
		delete(n.held, uid)
		n.epoch++
	}
	return true
}

// unresolved is an assignment whose bind may or may not have happened.
type unresolved struct {
	vgpu.Assignment
	// isShown: the informer shows the pod on the node. The room stays until the scheduler's snapshot shows the pod as
	// well: the snapshot had dropped it, and the two get their events separately, in any order.
	isShown bool
	// since is when the scheduler gave the bind up.
	since time.Time
}

// suspend keeps the room of an assignment whose bind may or may not have happened. The room is free again when the
// scheduler's snapshot shows the pod, when the informer shows it elsewhere or gone, or when the bind cannot happen any
// more.
func (s *state) suspend(a vgpu.Assignment, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(a.Node)
	if _, known := n.unresolved[a.UID]; !known {
		s.unresolved[a.UID] = append(s.unresolved[a.UID], a.Node)
	}
	n.unresolved[a.UID] = unresolved{Assignment: a, since: now}
	n.epoch++
}

// noteBound notes that the informer shows the pod bound to a node. The pod's reservation and hold end: the scheduler's
// snapshot has had the pod since its assumption. An unresolved bind to another node did not happen; one to this node
// did.
func (s *state) noteBound(uid vgpu.UID, nodeName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropReservation(uid)
	if h, ok := s.holds[uid]; ok && h.Node != nodeName {
		s.freed(h.Node)
	}
	s.dropHold(uid)
	for _, name := range slices.Clone(s.unresolved[uid]) {
		if name != nodeName {
			s.resolve(uid, name)
			s.freed(name)
			continue
		}
		u := s.nodes[name].unresolved[uid]
		u.isShown = true
		s.nodes[name].unresolved[uid] = u
	}
}

// gone drops everything about a pod that does not exist any more, and reports whether a node was on trial with the pod
// and never got it.
func (s *state) gone(uid vgpu.UID) (onTrial bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	onTrial = s.abandon(uid)
	if h, ok := s.holds[uid]; ok {
		s.freed(h.Node)
	}
	s.dropHold(uid)
	for _, name := range slices.Clone(s.unresolved[uid]) {
		s.resolve(uid, name)
		s.freed(name)
	}
	return onTrial
}

// resolve ends the room that an unresolved bind keeps on a node. The caller holds the write lock.
func (s *state) resolve(uid vgpu.UID, name string) {
	n := s.nodes[name]
	delete(n.unresolved, uid)
	n.epoch++
	rest := slices.DeleteFunc(s.unresolved[uid], func(other string) bool { return other == name })
	if s.unresolved[uid] = rest; len(rest) == 0 {
		delete(s.unresolved, uid)
	}
}

// unresolvedCount counts the pods with an unresolved bind. The caller holds a lock.
func (s *state) unresolvedCount() int64 {
	count := int64(0)
	for uid, names := range s.unresolved {
		if !slices.ContainsFunc(names, func(name string) bool { return s.nodes[name].unresolved[uid].isShown }) {
			count++
		}
	}
	return count
}

// resolveShown ends the room of unresolved binds that took effect and whose pods the snapshot shows.
func (s *state) resolveShown(nodes []fwk.NodeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unresolved) == 0 {
		return
	}
	for _, info := range nodes {
		n := s.nodes[info.Node().Name]
		if n == nil || len(n.unresolved) == 0 {
			continue
		}
		for _, pod := range info.GetPods() {
			if uid := kube.UIDOf(pod.GetPod()); n.unresolved[uid].isShown {
				s.resolve(uid, n.name)
			}
		}
	}
}
