package sim_test

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// stand says on which nodes the room that is kept is not free, and on which of the others the hosts have too little.
func (w *world) stand(now time.Duration) (taken, short []string) {
	first := slices.IndexFunc(w.s.Jobs, func(j sim.Job) bool { return j.Gang == w.kept })
	c, g, _ := w.wanted(first, now)
	k := gang.Kept{Places: w.places, Blockers: w.leavers}
	return k.Stand(c, g.Members)
}

// lookAtDrain ends the drain of a gang whose room is free, and which has no place all the same.
func (w *world) lookAtDrain(own *sim.Gang, now time.Duration) {
	if w.kept != own {
		return
	}
	taken, short := w.stand(now)
	if len(taken) > 0 {
		return
	}
	for _, a := range w.places {
		if len(short) == 0 && a.Node != "" {
			w.gangs[own].failed[a.Node] = true
		}
	}
	w.dryUp(short, now)
}

// dryUp puts the turn of a gang off, and ends its drain, which failed on some nodes.
func (w *world) dryUp(nodes []string, now time.Duration) {
	turn := w.gangs[w.kept]
	w.kept, w.holds = nil, nil
	turn.look = now + max(time.Second, min(time.Minute, w.s.Gangs.DrainAfter))*time.Duration(int(1)<<min(10, turn.timesDry))
	turn.timesDry++
	for _, n := range nodes {
		turn.failed[n] = true
	}
}

// turns returns the first members of the gangs that were refused, in the order in which they have room kept.
func (w *world) turns(now time.Duration) []int {
	var all []int
	for i := range w.s.Jobs {
		own := w.s.Jobs[i].Gang
		if own == nil || w.first(i) != i || w.s.Jobs[i].Arrive > now || w.started(own) || w.gone[i] || !w.gangs[own].refused {
			continue
		}
		if w.s.Queue != sim.FIFO || !w.somebodyBefore(i) {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return int(w.s.Jobs[a].Arrive - w.s.Jobs[b].Arrive) })
	slices.SortStableFunc(all, func(a, b int) int {
		return int(w.gangs[w.s.Jobs[a].Gang].short - w.gangs[w.s.Jobs[b].Gang].short)
	})
	slices.SortStableFunc(all, func(a, b int) int { return int(w.priority(b) - w.priority(a)) })
	return all
}

func (w *world) priority(i int) int32 { return w.s.Jobs[i].Request.Priority }

// drains keeps room for the first gang in turn for which the time has come.
func (w *world) drains(now time.Duration) {
	if w.s.Gangs.Drains == gang.NoDrains {
		return
	}
	for _, i := range w.turns(now) {
		own := w.s.Jobs[i].Gang
		if w.kept != nil {
			other := slices.IndexFunc(w.s.Jobs, func(j sim.Job) bool { return j.Gang == w.kept })
			if w.priority(i) <= w.priority(other) {
				return
			}
		}
		if w.gangs[own].look > now {
			continue
		}
		freed := w.kept != nil
		if !w.keep(i, now) {
			continue
		}
		if freed {
			w.again(now)
			w.drains(now)
		}
		return
	}
}

// keep keeps room for a gang, and reports whether the time has come for it.
func (w *world) keep(first int, now time.Duration) bool {
	own := w.s.Jobs[first].Gang
	c, g, _ := w.wanted(first, now)
	turn := w.gangs[own]
	c.Avoids = func(node string) bool { return turn.failed[node] }
	seconds := func(d time.Duration) int64 { return 1 + int64(d/time.Second) }
	started := func(uid vgpu.UID, _ string) int64 {
		i := slices.IndexFunc(w.s.Jobs, func(j sim.Job) bool { return j.Request.UID == uid })
		if i < 0 {
			return -1
		}
		return seconds(w.fates[i].Started)
	}
	decide := func() gang.Plan {
		plan, err := gang.Keep(c, g, gang.Config{Policy: w.policy}, gang.DrainCheck{
			Drains: w.s.Gangs.Drains, Since: seconds(turn.short), Now: seconds(now), Started: started,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		return plan
	}
	plan := decide()
	if plan.Refused != nil {
		turn.failed = map[string]bool{}
		plan = decide()
	}
	if plan.Places == nil {
		waited := time.Duration((seconds(now) - seconds(turn.short)) / 16 * int64(time.Second))
		turn.look = now + max(time.Second, min(time.Minute, w.s.Gangs.DrainAfter), waited)
		return false
	}
	w.holds, w.places, w.leavers = nil, plan.Places, plan.Blockers
	for _, a := range plan.Places {
		if len(a.Containers) > 0 {
			w.holds = append(w.holds, vgpu.Hold{Assignment: a, Priority: w.priority(first), Until: plan.Until})
		}
	}
	w.kept, w.since = own, now
	return true
}
