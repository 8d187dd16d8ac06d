package why

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// CauseKind names what keeps pods waiting beside nodes, devices and hosts.
type CauseKind string

// Kinds of causes.
const (
	// Malformed: the request of a pod cannot be read, so the scheduler places neither it nor its gang. Without a Pod it is what the members
	// say of their gang.
	Malformed CauseKind = "Malformed"
	// Illegal: no device can meet what a pod asks for, such as its rate.
	Illegal CauseKind = "Illegal"
	// Gated: the pod has scheduling gates.
	Gated CauseKind = "Gated"
	// HeldBack: the gang has as many members as its target allows.
	HeldBack CauseKind = "HeldBack"
	// Incomplete: fewer members exist than must run.
	Incomplete CauseKind = "Incomplete"
	// BeingBound: the members have places, and the scheduler binds them.
	BeingBound CauseKind = "BeingBound"
	// RoomKept: the scheduler keeps room for the pods until those end that use it.
	RoomKept CauseKind = "RoomKept"
	// RoomMade: the scheduler evicts Victims and keeps their room for the pods.
	RoomMade CauseKind = "RoomMade"
)

// Cause is what keeps pods waiting beside nodes, devices and hosts.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Pod is the first one that is malformed, asks for what no device can meet, or has gates.
	Pod *snapshot.Name `json:"pod,omitempty"`
	// Message is the scheduler's sentence, "" where the snapshot has none.
	Message string `json:"message,omitempty"`
	// Gates of Pod.
	Gates []string `json:"gates,omitempty"`
	// Have members exist (Incomplete), or count for the target (HeldBack); Want is the least number, or the target.
	Have int `json:"have,omitempty"`
	Want int `json:"want,omitempty"`
	// Places that are kept: for BeingBound, RoomKept and RoomMade.
	Places []snapshot.Place `json:"places,omitempty"`
	// Victims that have not left, for RoomMade; Until is the Unix time by which they are gone, or by which the present users of kept
	// room have ended. 0 stands for not known.
	Victims []snapshot.Place `json:"victims,omitempty"`
	Until   int64            `json:"until,omitempty"`
}

// decides reports whether the pods wait for the cause alone: no room anywhere would help them.
func (c *Cause) decides() bool { return c != nil && c.Kind != RoomKept && c.Kind != RoomMade }

// reserved returns the pods for which the scheduler has chosen devices, and which are not bound yet. They still wait, and their shares
// are in the ledgers.
func reserved(s *snapshot.Snapshot) map[vgpu.UID]snapshot.Place {
	all := map[vgpu.UID]snapshot.Place{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			if p := &s.Nodes[i].Pods[k]; p.Reserved {
				all[p.UID] = snapshot.Place{Name: p.Name, Node: s.Nodes[i].Name}
			}
		}
	}
	return all
}

// beingBound is the answer about pods that have places.
func beingBound(places []snapshot.Place, gang *snapshot.GangName) *Answer {
	a := &Answer{Gang: gang, Nodes: []snapshot.RefusedNodes{}, Changes: []Change{}, Cause: &Cause{Kind: BeingBound, Places: places}}
	for _, p := range places {
		a.Pods = append(a.Pods, p.Name)
	}
	return a
}

// causeOf returns what keeps pods waiting beside nodes, devices and hosts; nil where nothing does.
func causeOf(s *snapshot.Snapshot, pods []*snapshot.Pending, name *snapshot.GangName) *Cause {
	for _, p := range pods {
		if p.Request == nil {
			c := &Cause{Kind: Malformed, Pod: &p.Name}
			if p.Refused != nil {
				c.Message = p.Refused.Message
			}
			return c
		}
	}
	for _, p := range pods {
		if p.Refused != nil && p.Refused.Illegal != "" {
			c := &Cause{Kind: Illegal, Pod: &p.Name}
			if p.Refused.Illegal != snapshot.Other {
				c.Message = p.Refused.Illegal
			}
			return c
		}
	}
	for _, p := range pods {
		if len(p.Gates) > 0 {
			return &Cause{Kind: Gated, Pod: &p.Name, Gates: p.Gates}
		}
	}
	if name == nil {
		return roomMade(s, func(p *snapshot.Preemption) bool { return p.Pod != nil && p.Pod.UID == pods[0].UID })
	}
	at := slices.IndexFunc(s.Gangs, func(g snapshot.Gang) bool { return g.GangName == *name })
	if at < 0 {
		return nil
	}
	return causeOfGang(s, pods, &s.Gangs[at])
}

// causeOfGang is causeOf for members of a gang whose requests can be read.
func causeOfGang(s *snapshot.Snapshot, pods []*snapshot.Pending, g *snapshot.Gang) *Cause {
	if c := heldBack(s, g); c != nil {
		return c
	}
	switch {
	case g.Need == snapshot.Malformed:
		return &Cause{Kind: Malformed, Message: g.Message}
	case g.Need == "Incomplete":
		return &Cause{Kind: Incomplete, Have: g.Members, Want: g.MinCount, Message: g.Message}
	case g.Need == "Preempting":
		if c := roomMade(s, func(p *snapshot.Preemption) bool { return p.Gang != nil && *p.Gang == g.GangName }); c != nil {
			c.Places = g.Places
			return c
		}
	case g.Need == "Reserving":
		return &Cause{Kind: RoomKept, Places: g.Places, Until: heldUntil(s, pods)}
	case (g.Phase == "Planned" || g.Phase == "Binding") && allPlaced(pods, g):
		return &Cause{Kind: BeingBound, Places: g.Places}
	}
	return nil
}

// heldBack returns the cause where all members that wait are beyond the target of their gang. Gang.Members counts those that the
// target does not hold back.
func heldBack(s *snapshot.Snapshot, g *snapshot.Gang) *Cause {
	target := slices.IndexFunc(s.ElasticTargets, func(t snapshot.ElasticTarget) bool { return t.GangName == g.GangName })
	if target < 0 || membersOn(s, g.GangName) < g.Members {
		return nil
	}
	return &Cause{Kind: HeldBack, Have: g.Members, Want: s.ElasticTargets[target].Workers, Message: s.ElasticTargets[target].Reason}
}

// membersOn counts the members of a gang that have a node.
func membersOn(s *snapshot.Snapshot, name snapshot.GangName) (count int) {
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			if g := s.Nodes[i].Pods[k].Gang; g != nil && *g == name {
				count++
			}
		}
	}
	return count
}

func allPlaced(pods []*snapshot.Pending, g *snapshot.Gang) bool {
	return !slices.ContainsFunc(pods, func(p *snapshot.Pending) bool {
		return !slices.ContainsFunc(g.Places, func(at snapshot.Place) bool { return at.UID == p.UID })
	})
}

// roomMade returns the cause where pods are evicted for a preemptor.
func roomMade(s *snapshot.Snapshot, is func(*snapshot.Preemption) bool) *Cause {
	for i := range s.Preemptions {
		p := &s.Preemptions[i]
		if !is(p) {
			continue
		}
		if p.Phase == "Cleared" { // Until is then since when the victims are gone
			return &Cause{Kind: RoomKept}
		}
		c := &Cause{Kind: RoomMade, Victims: p.Victims}
		if !p.Until.IsZero() {
			c.Until = p.Until.Unix()
		}
		return c
	}
	return nil
}

// heldUntil returns the Unix time by which the present users of the room that is kept for pods have ended, 0 where that is not known.
func heldUntil(s *snapshot.Snapshot, pods []*snapshot.Pending) int64 {
	latest := int64(0)
	for i := range s.Nodes {
		for k := range s.Nodes[i].Holds {
			h := &s.Nodes[i].Holds[k]
			if !slices.ContainsFunc(pods, func(p *snapshot.Pending) bool { return p.UID == h.UID }) {
				continue
			}
			if h.Until.IsZero() {
				return 0
			}
			latest = max(latest, h.Until.Unix())
		}
	}
	return latest
}
