package sim_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// stand says on which nodes the room that is kept is not free, and on which of the others the hosts have too little.
func (w *world) stand(now time.Duration) (taken, short []string) {
	c, g, _ := w.wanted(w.firstOf(w.kept), now)
	k := gang.Kept{Places: w.places, Blockers: w.leavers}
	return k.Stand(c, g.Members)
}

// refuse looks at the room that is kept for a gang which has no place, or keeps some where it is its turn. Room that is free while the
// gang has no place is let go.
func (w *world) refuse(first int, now time.Duration) {
	own := w.s.Jobs[first].Gang
	if w.kept != own {
		if w.next(now) == first {
			w.keep(first, now)
		}
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

// next returns the first member of the gang whose turn it is, −1 for none: of those that were refused and whose time has come, the one
// of the highest priority, then the one that waits longest, then by name. While room is kept, it takes a higher priority.
func (w *world) next(now time.Duration) int {
	next := -1
	for i := range w.s.Jobs {
		own := w.s.Jobs[i].Gang
		if own == nil || w.first(i) != i || !w.here[i] || w.started(own) || w.gone[i] || w.s.Gangs.Drains == gang.NoDrains {
			continue
		}
		if turn := w.gangs[own]; !turn.refused || turn.look > now || w.kept != nil && w.priority(i) <= w.priority(w.firstOf(w.kept)) {
			continue
		}
		if next < 0 || w.sooner(i, next) {
			next = i
		}
	}
	return next
}

// sooner reports whether gang a has its turn before gang b, each given by its first member.
func (w *world) sooner(a, b int) bool {
	x, y := w.s.Jobs[a].Gang, w.s.Jobs[b].Gang
	return cmp.Or(
		cmp.Compare(w.priority(b), w.priority(a)), cmp.Compare(w.gangs[x].short, w.gangs[y].short), cmp.Compare(x.Name, y.Name),
	) < 0
}

func (w *world) priority(i int) int32 { return w.s.Jobs[i].Request.Priority }

func (w *world) firstOf(own *sim.Gang) int {
	return slices.IndexFunc(w.s.Jobs, func(j sim.Job) bool { return j.Gang == own })
}

// look lets room go that is kept for too long, and tries the gang whose turn it is, if none is before it in the queue.
func (w *world) look(now time.Duration) {
	for {
		if w.kept != nil && w.s.Gangs.DrainTimeout > 0 && now >= w.since+w.s.Gangs.DrainTimeout {
			w.dryUp(w.blocked(now), now)
			w.again(now)
			continue
		}
		i := w.next(now)
		if i < 0 || w.gangs[w.s.Jobs[i].Gang].woken {
			return
		}
		w.gangs[w.s.Jobs[i].Gang].woken = true
		if w.earlier(now, w.s.Jobs[i].Gang) {
			w.again(now)
		}
	}
}

// pause is that between two looks.
const pause = 15 * time.Second

// blocked returns the nodes with pods that the drain waits for.
func (w *world) blocked(now time.Duration) (nodes []string) {
	for _, l := range w.leavers {
		i := slices.IndexFunc(w.s.Jobs, func(j sim.Job) bool { return j.Request.UID == l.UID })
		if f := &w.fates[i]; now < f.Ended || w.s.Jobs[i].Duration == 0 {
			nodes = append(nodes, f.Where.Node)
		}
	}
	return nodes
}

// keep keeps room for a gang, in place of that for another, where the time has come for it.
func (w *world) keep(first int, now time.Duration) {
	own := w.s.Jobs[first].Gang
	c, g, _ := w.wanted(first, now)
	turn := w.gangs[own]
	turn.woken = false
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
		turn.look = now + max(pause, (now-turn.short)/16)
		return
	}
	w.holds, w.places, w.leavers = nil, plan.Places, plan.Blockers
	for _, a := range plan.Places {
		if len(a.Containers) > 0 {
			w.holds = append(w.holds, vgpu.Hold{Assignment: a, Priority: w.priority(first), Until: plan.Until})
		}
	}
	w.kept, w.since = own, now
}
