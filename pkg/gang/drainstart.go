package gang

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Never is the value of Cluster.Ends for a pod that does not end by itself.
const Never int64 = math.MaxInt64

// Drains says for which waiting gangs the scheduler keeps room.
type Drains uint8

const (
	// NoDrains keeps no room: a large gang may wait for as long as small pods arrive.
	NoDrains Drains = iota
	// BoundedDrains keeps room only where all blockers declare when they end, and all end soon. Soon is within a fourth of
	// the time that the gang has waited (see patience). If pods run for at most L and declare it, the drain of a gang
	// begins after at most 4 L, and ends after at most L more.
	BoundedDrains
	// AllDrains keeps room once other pods have passed the gang over: all of its blockers started after it began to wait,
	// so that ordinary turnover did not make the room. If pods run for at most L, declared or not, the drain of a gang
	// begins after at most L and ends after at most L more. Devices lie idle meanwhile.
	AllDrains
)

// patience is the wait of a gang before a bounded drain, as a multiple of the time that the drain takes. Kept devices
// do nothing. A smaller patience starts gangs sooner, and other pods wait longer for the devices.
const patience = 4

// checkParts sets the pause between two checks: this part of the time that the gang has waited. A larger number starts
// drains sooner; a gang that has waited for days then costs a search each minute.
const checkParts = 16

// DrainCheck is one check whether to keep room for a waiting gang.
type DrainCheck struct {
	Drains Drains
	// Since is when the gang began to wait, and Now the present, both in Unix seconds.
	Since, Now int64
	// Started returns when a pod got its place, in Unix seconds. A pod of the second Since was there before the gang. 0
	// stands for an unknown start; the pod counts as one that came after the gang.
	Started func(uid vgpu.UID, pod string) int64
}

// Pause returns the seconds until the next check where this check kept no room. The pause grows with the time that the
// gang has waited.
func (t *DrainCheck) Pause() int64 { return max(0, t.Now-t.Since) / checkParts }

// Keep is Drain for a gang whose drain may begin now. Before that the plan has no Places and no refusal, but the
// Blockers and, if known, Until. Keep keeps no room for a gang without blockers.
func Keep(c *Cluster, g *Group, cfg Config, check DrainCheck) (Plan, error) {
	if check.Drains == NoDrains {
		return Plan{}, nil
	}
	if check.Drains == BoundedDrains {
		c = c.declared()
	}
	plan, err := Drain(c, g, cfg)
	if err == nil && plan.Refused == nil && !check.begins(&plan) {
		plan.Places, plan.Spread = nil, nil
	}
	return plan, err
}

// declared returns the cluster in which pods without a declared end never end.
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

// begins reports whether the drain of a plan begins now.
func (t *DrainCheck) begins(plan *Plan) bool {
	if len(plan.Blockers) == 0 {
		return false
	}
	if t.Drains == BoundedDrains {
		return plan.Until > 0 && plan.Until-t.Now <= (t.Now-t.Since)/patience
	}
	return t.passedOver(plan.Blockers)
}

// passedOver reports whether all blockers started after the gang began to wait.
func (t *DrainCheck) passedOver(blockers []Blocker) bool {
	for _, l := range blockers {
		if at := t.Started(l.UID, l.Pod); at != 0 && at <= t.Since {
			return false
		}
	}
	return true
}
