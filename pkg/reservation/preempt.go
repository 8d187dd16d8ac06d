package reservation

import (
	"fmt"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// preemptor returns what State remembers of a pod, making it if need be.
func (m *move) preemptor(ref PodRef) *preemptor {
	p := m.pods[ref.UID]
	if p == nil {
		p = &preemptor{PodRef: ref}
		m.pods[ref.UID] = p
	}
	return p
}

// podRefused answers for a pod that no node takes. While State keeps room for it, the pod waits: for its victims, or for other
// pods that leave the node and whose room it took before. If neither is there any more, the preemption came to nothing.
func (m *move) podRefused(e *PodRefused) {
	p := m.pods[e.UID]
	if p == nil {
		return
	}
	p.Retry, p.OnBudgets = time.Time{}, false
	r := p.room()
	if r == nil {
		m.forgetIdle(p)
		return
	}
	remaining := r.stillThere(e.There, m.now)
	switch {
	case remaining > 0 || m.evicts(PodPreemptor(e.UID)):
		m.do(StillLeaving{Node: r.Place.Node, Why: p.waiting(remaining, m.now)})
	case !e.NodeKnown:
		m.cameToNothing(p, nodeLost(r))
	default:
		m.do(SeekOthers{Node: r.Place.Node})
	}
}

// othersSought has a pod wait for other pods that leave its node: another preemptor may have come first to the room, while its own
// victims leave.
func (m *move) othersSought(e *OthersSought) {
	p := m.pods[e.UID]
	r := p.room()
	if r == nil {
		m.do(CameToNothing{Why: "the room that was kept for the pod was given up meanwhile"})
		return
	}
	if len(e.Others) == 0 {
		m.cameToNothing(p, fmt.Sprintf("all victims have left node %s, and the pod does not fit there: %s", r.Place.Node, e.Why))
		return
	}
	room := *r
	room.Victims, room.withdrawn = e.Others, map[vgpu.UID]time.Time{}
	p.phase = &leavingRoom{PodRoom: room, until: e.Until}
	m.do(StillLeaving{Node: r.Place.Node, Why: p.waiting(len(e.Others), m.now)})
}

// cameToNothing gives up the room of the tried pod, and has the pod pause.
func (m *move) cameToNothing(p *preemptor, why string) {
	m.do(Release{UID: p.UID}, CameToNothing{Why: why})
	p.phase = nil
	p.fail(why, m.now)
}

// fail notes that a preemption came to nothing.
func (p *preemptor) fail(why string, now time.Time) {
	p.Failures++
	p.Why, p.Until = why, now.Add(podPause(p.Failures))
	p.Retry, p.OnBudgets = p.Until, false
}

func nodeLost(r *PodRoom) string {
	return "node " + r.Place.Node + " is gone or takes the pod no more"
}

// waiting says what a pod waits for.
func (p *preemptor) waiting(remaining int, now time.Time) string {
	r := p.room()
	names := make([]string, 0, len(r.Victims))
	for i := range r.Victims {
		names = append(names, r.Victims[i].Pod)
	}
	pods := "pods"
	if len(names) == 1 {
		pods = "pod"
	}
	text := fmt.Sprintf("%d of %d %s (%s) yet to leave node %s", remaining, len(names), pods, firstOf(names), r.Place.Node)
	if leaving, ok := p.phase.(*leavingRoom); ok && leaving.until.After(now) {
		text += fmt.Sprintf(", within %v", leaving.until.Sub(now).Round(time.Second))
	}
	return text
}

// maxNamed bounds how many pods a message names: events hold 1,024 characters in all.
const maxNamed = 4

// firstOf joins the first names of a list, and counts the others.
func firstOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// podRoomWanted refuses a pod whose last preemption came to nothing a moment ago.
func (m *move) podRoomWanted(e *PodRoomWanted) {
	p := m.pods[e.UID]
	if p == nil || !m.now.Before(p.Until) {
		return
	}
	p.Retry, p.OnBudgets = p.Until, false
	pause := p.Until.Sub(m.now).Round(time.Second)
	m.refuse(fmt.Sprintf("the last one came to nothing, the next is tried in %v: %s", pause, p.Why))
}

// podRoomMade keeps room for a pod and has the caller evict its victims, where that is within the allowance.
func (m *move) podRoomMade(e *PodRoomMade) {
	id := PodPreemptor(e.UID)
	p, room := m.preemptor(e.PodRef), e.Room
	if wait := m.affords(id, e.Room.Priority, len(e.Evict)); wait > 0 {
		p.Retry, p.OnBudgets = m.now.Add(wait), false
		return
	}
	if p.room() != nil { // the new room takes the place of the old one
		m.stopEvictions(id)
	}
	room.withdrawn, room.evictions = map[vgpu.UID]time.Time{}, 0
	m.do(Hold{Hold: vgpu.Hold{Assignment: room.Place, Priority: room.Priority}})
	if len(e.Evict) > 0 {
		room.evictions = m.beginEvictions(id, e.Evict)
	}
	p.phase = &leavingRoom{PodRoom: room, until: e.Until}
	for _, uid := range e.Passed {
		m.endPodRoom(m.pods[uid], "")
	}
}

// podHoldFailed gives up the room of a pod whose devices GPUShare could not hold, and has the pod pause.
func (m *move) podHoldFailed(e *PodHoldFailed) {
	if p := m.pods[e.UID]; p.room() != nil {
		m.stopEvictions(PodPreemptor(e.UID))
		p.phase = nil
		p.fail(e.Why, m.now)
	}
}

// podRetried has the scheduler try a pod again without an event of the cluster.
func (m *move) podRetried(e *PodRetried) {
	p := m.preemptor(e.PodRef)
	p.Retry, p.OnBudgets = e.At, e.OnBudgets
}

// podEnded removes a pod that has a node or is gone, and ends its evictions. The hold of a bound pod ends once the informer
// shows its assignment.
func (m *move) podEnded(e *PodEnded) {
	id := PodPreemptor(e.UID)
	m.stopEvictions(id)
	m.allowance.forget(id)
	if p := m.pods[e.UID]; p.room() != nil && e.Gone {
		m.do(Release{UID: e.UID})
	}
	delete(m.pods, e.UID)
}

// podTicked does what is due for the room of a pod.
func (m *move) podTicked(e *PodTicked) {
	p := m.pods[e.UID]
	r := p.room()
	switch {
	case r == nil:
		return
	case !e.NodeStands:
		m.endPodRoom(p, nodeLost(r))
		return
	case m.evicts(PodPreemptor(e.UID)):
		return
	}
	remaining := r.stillThere(e.There, m.now)
	if leaving, ok := p.phase.(*leavingRoom); ok && remaining == 0 {
		p.phase = &clearedRoom{PodRoom: leaving.PodRoom, since: m.now}
	}
	switch phase := p.phase.(type) {
	case *leavingRoom:
		if m.now.After(phase.until) {
			m.endPodRoom(p, fmt.Sprintf("%d of %s did not leave node %s in time", remaining, countPods(len(r.Victims)), r.Place.Node))
		}
	case *clearedRoom:
		if m.now.Sub(phase.since) > settling {
			m.endPodRoom(p, fmt.Sprintf("all victims have left node %s, and the pod was not placed within %v", r.Place.Node, settling))
			return
		}
		m.do(ActivatePods{Pods: []PodRef{p.PodRef}}) // again at each step: the scheduler's snapshot may be behind
	}
}

func countPods(count int) string {
	if count == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", count)
}

// endPodRoom gives up the room of a pod and has the scheduler try the pod at once, for the room that there is. If why is not
// "", the preemption came to nothing, and the next one waits.
func (m *move) endPodRoom(p *preemptor, why string) {
	if p.room() == nil {
		return
	}
	m.stopEvictions(PodPreemptor(p.UID))
	p.phase = nil
	m.do(Release{UID: p.UID}, ActivatePods{Pods: []PodRef{p.PodRef}})
	if why != "" {
		p.fail(why, m.now)
	}
	m.forgetIdle(p)
}

// forgetIdle removes a pod of which there is nothing to remember.
func (m *move) forgetIdle(p *preemptor) {
	if p.phase == nil && p.Failures == 0 && p.Retry.IsZero() && !p.OnBudgets {
		delete(m.pods, p.UID)
	}
}
