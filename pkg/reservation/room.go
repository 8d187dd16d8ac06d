package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// roomWanted says whether preemption may seek victims for a gang.
func (m *move) roomWanted(e *RoomWanted) {
	g := m.gangs[e.Ref]
	if g != nil && m.now.Before(g.seekVictimsAt) {
		g.retriesToSeek = true // what changed since may help
		m.refuse(g.noVictimsReason)
	}
}

// roomMade keeps room for a gang for which the scheduler evicts pods, until the gang has a plan. The room ends earlier when the
// gang is over, has a problem or has other members. The room also ends when it loses a device or node, or is not free although
// all victims are gone. At the latest it ends after the grace periods of the victims and the placement deadline.
func (m *move) roomMade(e *RoomMade) {
	g := m.gangs[e.Gang.Ref]
	if g == nil || len(g.places()) > 0 || g.preempting() != nil || g.refused() == nil {
		m.refuse("it changed meanwhile")
		return
	}
	if adjusted := m.AfterStart(e.Gang); g.lacking(&adjusted) != e.Room.Unbound {
		m.refuse(MembersChanged)
		return
	}
	m.endReservation(g)
	room := e.Room
	room.Until = room.Until.Add(m.cfg.Deadline)
	g.need = &preempting{refused: *g.refused(), Made: room}
	for _, uid := range sorted(e.Room.Places) {
		if at := e.Room.Places[uid]; at.Held() {
			m.do(Hold{Hold: vgpu.Hold{Assignment: at.Assignment, Priority: g.priority}})
		}
	}
}

// MembersChanged says that members ended or got a node since the cycle looked at them: the room would be for too few, or for
// too many.
const MembersChanged = "its members changed meanwhile"

func (m *move) roomTried(e *RoomTried) {
	if g := m.gangs[e.Ref]; g != nil && g.preempting() != nil {
		g.preempting().dryRun = e.On
	}
}

// roomGivenUp ends the room that evictions make for a gang, if any.
func (m *move) roomGivenUp(e *RoomGivenUp) {
	if g := m.gangs[e.Ref]; g != nil {
		m.giveUp(g, e.Why, e.Pause)
	}
}

// giveUp ends the room that evictions make for a gang, and says when evictions may be sought for it again.
func (m *move) giveUp(g *group, why string, pause time.Duration) {
	m.endRoom(g)
	g.noVictimsReason, g.retriesToSeek = why, pause > 0
	if !g.retriesToSeek {
		pause = seekPause << min(g.fruitlessSearches, seekDoublings)
		g.fruitlessSearches++
	}
	g.seekVictimsAt = m.now.Add(pause)
}

// endRoom gives up the room that evictions make for a gang.
func (m *move) endRoom(g *group) {
	r := g.preempting()
	if r == nil {
		return
	}
	refusal := r.refused
	g.need = &refusal
	m.stopEvictions(GangPreemptor(g.Ref))
	released := false
	for _, uid := range sorted(r.Places) {
		at := r.Places[uid]
		if _, has := g.places()[uid]; !has && at.Held() {
			m.do(Release{UID: uid})
			released = true
		}
		m.do(Denominate{UID: uid, Pod: at.Pod, Node: at.Node})
	}
	if released {
		m.retryRefused()
	}
}

// voidRoom gives up the room of a gang that came to nothing. The next evictions for it wait, each time twice as long.
func (m *move) voidRoom(g *group, why string) {
	m.endRoom(g)
	g.noVictimsReason = "the room that was made for it came to nothing: " + why
	g.seekVictimsAt, g.retriesToSeek = m.now.Add(m.voidPause(g.voidRooms)), true
	g.voidRooms++
}

// otherMembers reports whether a gang has other members than those for which evictions make room.
func (m *move) otherMembers(g *group, f *Facts) bool {
	r := g.preempting()
	if r == nil {
		return false
	}
	adjusted := m.AfterStart(*f)
	waiting := map[vgpu.UID]bool{}
	for i := range f.Members {
		if f.Members[i].Waits() {
			waiting[f.Members[i].UID] = true
		}
	}
	for uid := range r.Places {
		if !waiting[uid] {
			return true
		}
	}
	return g.lacking(&adjusted) != r.Unbound
}

// lookAtRoom gives up the room of a gang when its time is over or its gang changed, and activates the gang once all victims are
// gone.
func (m *move) lookAtRoom(g *group, e *Ticked) {
	r := g.preempting()
	switch {
	case r == nil:
	case m.now.After(r.Until):
		m.voidRoom(g, "pods that were evicted for it have not ended in time")
	case m.otherMembers(g, &e.Gang):
		m.endRoom(g)
		m.activate(g, &e.Gang)
	case !e.VictimsLeft:
		// Again at each step: the scheduler may still have had victims in its snapshot when it tried the gang, and others that
		// leave the room. Its own pause between two tries of a group grows with the root of its size, to minutes.
		m.activate(g, &e.Gang)
	}
}

// Stand says how the room of a gang stands: its members may have it now, or it is void for a reason, or neither yet. The number
// lacking is of members that must run and have no place, and wanted are the members that need one. Pods in leaving are about to
// leave the nodes of the room. The function ledger returns a node, nil where it is gone.
func (r *Made) Stand(lacking int, wanted map[vgpu.UID]bool, priority int32, leaving map[vgpu.UID]bool, ledger func(string) *vgpu.Node) (ready bool, void string) {
	if r.Lacking != lacking {
		return false, "its members changed"
	}
	for _, uid := range sorted(r.Places) {
		at := r.Places[uid]
		switch n := ledger(at.Node); {
		case !wanted[uid]:
			return false, "its members changed"
		case n == nil:
			return false, "node " + at.Node + " is gone"
		case !Healthy(n, &at.Assignment):
			return false, "a device on node " + at.Node + " is gone or sick"
		}
	}
	switch {
	case r.free(ledger, priority, nil):
		return true, ""
	case len(leaving) > 0 && r.free(ledger, priority, leaving):
		return false, ""
	}
	return false, "others have the room"
}

// free reports whether all members could have their places, beside the holds of pods of a higher priority: now, or without some
// removed pods. Then the hosts of the removed pods have room enough. Holds for pods of the members' own priority are no
// obstacle. Their pods do not need this room, although the pods that leave it may still be where the members go.
func (r *Made) free(ledger func(string) *vgpu.Node, priority int32, removed map[vgpu.UID]bool) bool {
	nodes := map[string]*vgpu.Node{}
	for _, uid := range sorted(r.Places) {
		at := r.Places[uid]
		n := nodes[at.Node]
		if n == nil {
			if n = without(ledger(at.Node), priority, removed); n == nil {
				return false
			}
			nodes[at.Node] = n
		}
		if removed == nil && !at.Host.Within(n.Room()) || at.Held() && n.Add(at.Assignment) != nil {
			return false
		}
		n.SetRoom(n.Room().Minus(at.Host))
	}
	return true
}

// without returns a node without some pods, on which pods of a higher priority have the devices of their holds; nil where those
// do not fit.
func without(n *vgpu.Node, priority int32, removed map[vgpu.UID]bool) *vgpu.Node {
	holds := n.Holds()
	n = n.Without(func(h *vgpu.Hold, held bool) bool { return held || removed[h.UID] })
	for i := range holds {
		if h := &holds[i]; h.Priority > priority && n.Add(h.Assignment) != nil {
			return nil
		}
	}
	return n
}

// Healthy reports whether all devices of an assignment are on a node and healthy.
func Healthy(n *vgpu.Node, a *vgpu.Assignment) bool {
	if n == nil {
		return false
	}
	for i := range a.Containers {
		for _, id := range a.Containers[i].Devices {
			if at := n.Index(id); at < 0 || !n.Devices()[at].Healthy {
				return false
			}
		}
	}
	return true
}

// PlacesOf returns the places of members, "" for those that have none.
func (r *Made) PlacesOf(members []gang.Member) []vgpu.Assignment {
	places := make([]vgpu.Assignment, len(members))
	for i := range members {
		places[i] = r.Places[members[i].Request.UID].Assignment
	}
	return places
}
