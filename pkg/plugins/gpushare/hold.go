package gpushare

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Hold keeps room for a pod that is not reserved yet: a member of a gang that is planned, a pod for which others are
// evicted. It counts for pods of the same or a lower priority, never for its own pod, and replaces an earlier hold of
// the pod. It ends with Release, when the pod is bound, or when the pod is gone.
func (p *Plugin) Hold(h vgpu.Hold) error { return p.state.hold(h) }

// Release drops the hold of a pod and reports whether there was one.
func (p *Plugin) Release(uid vgpu.UID) bool { return p.state.release(uid) }

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
	s.letGo(h.UID)
	s.holds[h.UID] = h
	n.held[h.UID] = true
	n.epoch++
	return nil
}

func (s *state) release(uid vgpu.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.letGo(uid)
}

// letGo removes the hold of a pod. The caller holds the write lock.
func (s *state) letGo(uid vgpu.UID) bool {
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

// suspend keeps the room of an assignment whose bind may or may not have happened, until the informer shows the pod
// with an assignment or without existence.
func (s *state) suspend(a vgpu.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(a.Node)
	if _, known := n.unresolved[a.UID]; !known {
		s.unresolved[a.UID] = append(s.unresolved[a.UID], a.Node)
	}
	n.unresolved[a.UID] = a
	n.epoch++
}

// settle forgets all that was kept for a pod, since the informer shows where it is, or that it is gone.
func (s *state) settle(uid vgpu.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(uid)
	s.letGo(uid)
	for _, name := range s.unresolved[uid] {
		n := s.node(name)
		delete(n.unresolved, uid)
		n.epoch++
	}
	delete(s.unresolved, uid)
}
