package reservation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// show tells what is remembered of a gang, a line for each thing that is not at its zero.
func (w *world) show(name string) string {
	f := w.facts(name)
	g := w.state.gangs[f.Ref]
	if g == nil {
		return "nothing is remembered"
	}
	var b strings.Builder
	w.showMembers(&b, g)
	w.showPauses(&b, g)
	w.showNeed(&b, g)
	if b.Len() == 0 {
		return "nothing but its name"
	}
	return b.String()
}

// in says how long it takes until a time: "in 5s", "5s ago", "never".
func (w *world) in(at time.Time) string {
	switch {
	case at.IsZero():
		return "never"
	case at.Before(w.now):
		return w.now.Sub(at).String() + " ago"
	}
	return "in " + at.Sub(w.now).String()
}

func (w *world) showMembers(b *strings.Builder, g *group) {
	for _, uid := range sorted(g.places()) {
		at := g.places()[uid]
		fmt.Fprintf(b, "place of %s: %s, pinned %v, reserved %v\n", uid, at.Node, at.Pinned, g.reserves()[uid])
	}
	if p := g.plan(); p != nil && p.preempted {
		fmt.Fprintln(b, "pods were evicted for the plan")
	}
	if len(g.bound) > 0 {
		fmt.Fprintf(b, "bound: %v\n", sorted(g.bound))
	}
	for _, uid := range sorted(g.leaving) {
		fmt.Fprintf(b, "leaving: %s from %s\n", uid, g.leaving[uid])
	}
	for _, uid := range sorted(g.repairs) {
		fmt.Fprintf(b, "repair of %s: %d failures, again %s\n", uid, g.repairs[uid].Failures, w.in(g.repairs[uid].At))
	}
	if v := g.vacating; v != nil {
		fmt.Fprintf(b, "vacating: %v, until %s\n", v.members, w.in(v.until))
	}
	if !g.arrived.IsZero() {
		fmt.Fprintf(b, "first tried: %s\n", w.in(g.arrived))
	}
}

func (w *world) showPauses(b *strings.Builder, g *group) {
	if g.failures > 0 || !g.retry.IsZero() {
		fmt.Fprintf(b, "plans that failed: %d, again %s\n", g.failures, w.in(g.retry))
	}
	for _, node := range slices.Sorted(maps.Keys(g.limits)) {
		fmt.Fprintf(b, "limit: %d members on %s, until %s\n", g.limits[node].Most, node, w.in(g.limits[node].Until))
	}
	if !g.unlimit.IsZero() {
		fmt.Fprintf(b, "tried without a limit: %s\n", w.in(g.unlimit))
	}
	if g.inVain > 0 || len(g.failed) > 0 {
		fmt.Fprintf(b, "rooms kept in vain: %d, on %v\n", g.inVain, slices.Sorted(maps.Keys(g.failed)))
	}
	if !g.seekVictimsAt.IsZero() || g.voidRooms > 0 || g.fruitlessSearches > 0 {
		fmt.Fprintf(b, "evictions may be sought %s, tried then %v; void %d, in vain %d: %q\n", w.in(g.seekVictimsAt), g.retriesToSeek, g.voidRooms, g.fruitlessSearches, g.noVictimsReason)
	}
}

func (w *world) showNeed(b *strings.Builder, g *group) {
	if n, ok := g.need.(*incomplete); ok {
		fmt.Fprintf(b, "missing since %s, told %v: %s\n", w.in(n.since), n.notified, n.why)
	}
	r := g.refused()
	if r == nil {
		return
	}
	fmt.Fprintf(b, "refused %s for %s, %d lack; notified: %v\n", w.in(r.at), r.Reason, r.Lacking, slices.Sorted(maps.Keys(r.notified)))
	if r.wait != nil {
		fmt.Fprintf(b, "waits for room since %s, looked at %s, woken %s\n", w.in(r.wait.since), w.in(r.wait.look), w.in(r.wait.woken))
	}
	if n := g.reserving(); n != nil {
		held := []vgpu.UID{}
		for i := range n.holds {
			held = append(held, n.holds[i].UID)
		}
		fmt.Fprintf(b, "room is kept for %d since %s, held for %v\n", n.lacking, w.in(n.since), held)
	}
	if n := g.preempting(); n != nil {
		fmt.Fprintf(b, "room is made for %d, until %s, on trial %v\n", n.Unbound, w.in(n.Until), n.dryRun)
	}
}
