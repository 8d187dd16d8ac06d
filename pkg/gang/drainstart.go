package gang

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Never is the end, as Cluster.Ends tells it, of a pod that does not end by itself.
const Never int64 = math.MaxInt64

// Drains says for which gangs that wait room is kept.
type Drains uint8

const (
	// NoDrains keeps no room: a large gang may wait for as long as small pods come.
	NoDrains Drains = iota
	// BoundedDrains keeps room where it is known when it is free, and where that is soon: it waits for pods only that say when
	// they end, and all of them end within a fourth of the time that the gang has waited (see patience). Where pods run for at
	// most L and say so, a gang waits at most 4 L for the drain to begin and at most L for it to end.
	BoundedDrains
	// AllDrains keeps room whoever has it, once the gang was passed over: none of the pods in its way was there when it began
	// to wait, so that ordinary turnover did not make the room. Where pods run for at most L, whether they say so or not, a gang
	// waits at most L for the drain to begin and at most L for it to end. Devices lie idle meanwhile.
	AllDrains
)

// patience is how many times as long as room is kept a gang must have waited before, where drains are bounded. Devices that are
// kept do nothing: with less gangs start sooner, and others wait for it.
const patience = 4

// lookParts is after which part of the time that a gang has waited it is looked again whether room is kept for it. With more
// drains begin sooner, and gangs that wait for days cost a search each minute.
const lookParts = 16

// DrainCheck is the moment at which it is looked whether room is kept for a gang.
type DrainCheck struct {
	Drains Drains
	// Since is when the gang began to wait, and Now the present, both in Unix seconds.
	Since, Now int64
	// Started tells when a pod got its place, in Unix seconds: a pod of the second Since was there before the gang. 0 says that
	// this is not known, and the pod counts as one that came after the gang.
	Started func(uid vgpu.UID, pod string) int64
}

// Pause returns after how many seconds it is to be looked again where no room was kept: longer, the longer the gang has waited.
func (t *DrainCheck) Pause() int64 { return max(0, t.Now-t.Since) / lookParts }

// Keep is Drain where the time has come to keep room for a gang. Before that the plan has no Places and no refusal, but the
// Blockers and what is known of Until. A gang that nobody is in the way of has no room kept.
func Keep(c *Cluster, g *Group, cfg Config, check DrainCheck) (Plan, error) {
	if check.Drains == NoDrains {
		return Plan{}, nil
	}
	if check.Drains == BoundedDrains {
		c = c.declared()
	}
	plan, err := Drain(c, g, cfg)
	if err == nil && plan.Refused == nil && !check.come(&plan) {
		plan.Places, plan.Spread = nil, nil
	}
	return plan, err
}

// declared returns the cluster where pods stay that do not say when they end.
func (c *Cluster) declared() *Cluster {
	other := *c
	other.Ends = func(uid vgpu.UID, pod string) int64 {
		if c.Ends != nil {
			if at := c.Ends(uid, pod); at > 0 {
				return at
			}
		}
		return Never
	}
	return &other
}

// come reports whether the time has come to keep the room of a plan.
func (t *DrainCheck) come(plan *Plan) bool {
	if len(plan.Blockers) == 0 {
		return false
	}
	if t.Drains == BoundedDrains {
		return plan.Until > 0 && plan.Until-t.Now <= (t.Now-t.Since)/patience
	}
	return t.passedOver(plan.Blockers)
}

// passedOver reports whether none of the pods in the way of a gang was there when it began to wait.
func (t *DrainCheck) passedOver(blockers []Blocker) bool {
	for _, l := range blockers {
		if at := t.Started(l.UID, l.Pod); at != 0 && at <= t.Since {
			return false
		}
	}
	return true
}
