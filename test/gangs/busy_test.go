package gangs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Spans of the busy world: the cluster at the end of a history, with all that runs in it, before anything of it is ended.
const (
	// calm is how long the busy world is watched at least.
	calm = 30 * time.Second
	// soon is how long a gang or a pod may wait beside free room. After failures the scheduler pauses for up to a minute, and then it bounds the members
	// on a node for half a minute. It may have to do both.
	soon = 3 * time.Minute
	// oneTurn is how long room may be kept for a gang in whose way pods run, with the steps of the plugins before and after it.
	oneTurn = drainTimeout + time.Minute
	// givenWay is after how long one of two gangs has given way that wait for each other: two deadlines, and the time that
	// preemption takes.
	givenWay = 10 * time.Minute
	// busyFor bounds the time until nothing waits in vain any more.
	busyFor = 3 * time.Hour
)

// busy ends all faults and watches the cluster until no gang and no single pod waits that could run. Nothing else is changed: nodes
// stay lost or cordoned, and pods run on.
func (w *world) busy() {
	if w.violation != "" {
		return
	}
	w.api.say("> the busy world: faults end")
	w.api.heal()
	seen := map[string]time.Time{}
	for began := time.Now(); time.Since(began) < calm || len(seen) > 0; {
		w.rest(look)
		w.mu.Lock()
		w.watch(seen)
		w.mu.Unlock()
		if time.Since(began) > busyFor {
			w.fail("busy: after %v without faults these still wait in turns: %s", busyFor, strings.Join(slices.Sorted(maps.Keys(seen)), ", "))
		}
		if w.violation != "" {
			return
		}
	}
}

// busyAndWell brings all nodes and members back, and watches the cluster again, before anything is ended.
func (w *world) busyAndWell() {
	if w.violation == "" {
		w.api.say("> the busy world: all is well")
		w.allWell()
		w.busy()
	}
}

// watch notes since when each gang or pod waits that could run. The caller holds the mutex.
func (w *world) watch(seen map[string]time.Time) {
	now := time.Now()
	var waiting []*team
	for _, t := range w.sorted() {
		if w.lacking(t) > 0 {
			waiting = append(waiting, t)
		}
	}
	found := map[string]bool{}
	note := func(limit time.Duration, format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		found[what] = true
		if seen[what].IsZero() {
			seen[what] = now
		}
		if since := now.Sub(seen[what]); since > limit {
			w.fail("busy: for %v without faults %s; free are %v", since, what, w.books(nil))
		}
	}
	for _, t := range waiting {
		least := w.lacking(t)
		switch {
		case fits(t, least, w.beside(t, w.unpromised(t))):
			note(soon, "%s waits beside room that is kept for nobody", t.name)
		case fits(t, least, w.beside(t, w.books(nil))):
			note(oneTurn*time.Duration(len(waiting)+1), "%s waits beside free room", t.name)
		}
		for _, other := range waiting {
			if w.inTheWay(t, other) && fits(t, least, w.beside(t, w.books(other))) {
				note(givenWay, "%s waits for what %s has, which waits too", t.name, other.name)
			}
		}
	}
	maps.DeleteFunc(seen, func(what string, _ time.Time) bool {
		if !found[what] {
			w.tally.waits++
		}
		return !found[what]
	})
}

// inTheWay reports whether two gangs run in part, and the second one is to give way to the first one where that helps.
func (w *world) inTheWay(t, other *team) bool {
	part := func(t *team) bool {
		c := w.count(t)
		running := c.bound - c.ending
		return t.source != "" && t.health.started && running > 0 && running < w.mustRun(t, &c)
	}
	return t != other && other.priority <= t.priority && part(t) && part(other)
}

// lacking returns how many members of a gang, or pods, are to be placed together: those that are missing from the least number, one
// beyond that. It is 0 if none waits, or none may be placed.
func (w *world) lacking(t *team) int {
	if w.pending(t) == 0 || t.malformed() || !t.grouped && (t.source == "xk8s" || t.source == "native") {
		return 0
	}
	c := w.count(t)
	running, needs := c.bound-c.ending, w.mustRun(t, &c)
	switch {
	case t.source == "":
		return 1
	case c.exists < needs:
		return 0
	case running < needs:
		return needs - running
	case t.elastic != "":
		return 0 // its target may hold the others back
	}
	return 1
}

// pending counts the members that have no node.
func (w *world) pending(t *team) int {
	pending := 0
	for i := range t.members {
		if pod := w.api.pod(t.member(i)); pod != nil && pod.Spec.NodeName == "" {
			pending++
		}
	}
	return pending
}

// mustRun returns how many members must run at the end: as its Job says, those are still to come that ended otherwise than done.
func (w *world) mustRun(t *team, c *count) int {
	if len(t.done) > 0 {
		return min(t.min, max(1, t.members-len(t.done)))
	}
	return t.needs(*c)
}
