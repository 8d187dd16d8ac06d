package sim_test

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// unused reports whether nobody is on the devices that are kept.
func (w *world) unused(now time.Duration) bool {
	nodes := w.present(now)
	for _, hold := range w.holds {
		for _, n := range nodes {
			if n.Name() == hold.Node && n.Add(hold.Assignment) != nil {
				return false
			}
		}
	}
	return true
}

// dryUp puts the turn of a gang off, and ends its drain.
func (w *world) dryUp(own *sim.Gang, now time.Duration) {
	if w.kept == own {
		w.kept, w.holds = nil, nil
	}
	turn := w.gangs[own]
	turn.dryUntil = now + max(time.Second, w.s.Gangs.DrainAfter)*time.Duration(int(1)<<min(10, turn.timesDry))
	turn.timesDry++
}

// head returns the first member of the gang whose turn it is, of the highest priority, then refused first; −1 for none.
func (w *world) head(now time.Duration) int {
	best := -1
	for at := time.Duration(0); at <= now; at += time.Second {
		for i := range w.s.Jobs {
			own := w.s.Jobs[i].Gang
			if own == nil || w.first(i) != i || w.s.Jobs[i].Arrive != at || w.started(own) || w.gone[i] {
				continue
			}
			turn := w.gangs[own]
			if !turn.refused || turn.dryUntil > now || w.s.Queue == sim.FIFO && w.somebodyBefore(i) {
				continue
			}
			p := w.s.Jobs[i].Request.Priority
			if best < 0 || p > w.s.Jobs[best].Request.Priority ||
				p == w.s.Jobs[best].Request.Priority && turn.short < w.gangs[w.s.Jobs[best].Gang].short {
				best = i
			}
		}
	}
	return best
}

// drains keeps room for the gang whose turn it is.
func (w *world) drains(now time.Duration) {
	freed := false
	for w.s.Gangs.Drains {
		i := w.head(now)
		if i < 0 || w.gangs[w.s.Jobs[i].Gang].look > now || w.kept == w.s.Jobs[i].Gang {
			break
		}
		own := w.s.Jobs[i].Gang
		if !w.passedOver(i, now) {
			w.gangs[own].look = now + max(time.Second, w.s.Gangs.DrainAfter)
			break
		}
		freed = freed || w.kept != nil
		w.kept, w.holds = nil, nil
		if w.keep(i, now) {
			break
		}
		w.dryUp(own, now)
	}
	if freed {
		w.again(now)
		w.drains(now)
	}
}

// passedOver reports whether none of those in the way of a gang was there when it was refused first.
func (w *world) passedOver(first int, now time.Duration) bool {
	c, g, _ := w.wanted(first, now)
	plan, err := gang.Place(c, g, gang.Config{Policy: w.policy})
	if err != nil {
		w.t.Fatal(err)
	}
	if plan.Refused == nil {
		return false
	}
	short := w.gangs[w.s.Jobs[first].Gang].short
	for _, l := range plan.Refused.Leavers {
		i := slices.IndexFunc(w.s.Jobs, func(j sim.Job) bool { return j.Request.UID == l.UID })
		if i < 0 || w.fates[i].Started <= short {
			return false
		}
	}
	return len(plan.Refused.Leavers) > 0
}

// keep keeps room for a gang, and reports whether there is some.
func (w *world) keep(first int, now time.Duration) bool {
	c, g, _ := w.wanted(first, now)
	plan, err := gang.Drain(c, g, gang.Config{Policy: w.policy})
	if err != nil {
		w.t.Fatal(err)
	}
	if plan.Places == nil {
		return false
	}
	for _, a := range plan.Places {
		if len(a.Containers) > 0 {
			w.holds = append(w.holds, vgpu.Hold{Assignment: a, Priority: w.s.Jobs[first].Request.Priority, Until: plan.Until})
		}
	}
	w.kept, w.since = w.s.Jobs[first].Gang, now
	return true
}
