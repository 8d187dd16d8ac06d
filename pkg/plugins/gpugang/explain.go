package gpugang

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/podgroup"
)

// quiet is how long a gang lacks members, or its PodGroup, before its members are told: controllers create them one by one.
const quiet = 10 * time.Second

// maxTold bounds how many members are told by events of what their gang lacks.
const maxTold = 20

// tellMissing writes an event for the members of a gang that waits for others, once for each thing that it lacks. They are not
// in the scheduler's queue, which would tell them else. The caller holds the mutex.
func (p *Plugin) tellMissing(g *group, pg *podgroup.Gang) {
	if g.incomplete == "" || g.missing.IsZero() || p.now().Sub(g.missing) < quiet {
		return
	}
	g.missing = zero
	told := 0
	for _, m := range pg.Members {
		if waits(m) && told < maxTold {
			p.event(m, v1.EventTypeWarning, "FailedScheduling", g.incomplete)
			told++
		}
	}
}

// say writes an event about a gang: on its PodGroup, else on its first member.
func (p *Plugin) say(g *group, pg *podgroup.Gang, kind, reason, message string) {
	switch {
	case pg.Object != nil:
		p.event(pg.Object, kind, reason, message)
	case len(pg.Members) > 0:
		p.event(pg.Members[0], kind, reason, "gang "+g.String()+": "+message)
	}
}

// spreadOf says where the members of a plan are.
func spreadOf(g *group) string {
	nodes := map[string]int{}
	for _, at := range g.places {
		nodes[at.Node]++
	}
	names := slices.Sorted(maps.Keys(nodes))
	return fmt.Sprintf("%s on %s: %s", plural(len(g.places), "member"), plural(len(names), "node"), few(names))
}

// plural returns "1 node", "2 nodes".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
