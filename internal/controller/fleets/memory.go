package fleets

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/contest"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// memory is what the controller knows of a fleet from one pass to the next.
type memory struct {
	decided *traffic.Memory
	// readySince is when each ready endpoint was first seen, by its name. Those of the first pass have the zero time: they are warm.
	readySince map[string]time.Time
	looked     bool
	// failsUntil is when each variant that answered errors is tried again.
	failsUntil map[string]time.Time
	// numbersAt is when the status was written last.
	numbersAt time.Time
	// replicas are what was written into the scale targets of the variants, by name.
	replicas map[string]*contest.Number
	// owners are the objects that have made the scale targets of the variants, by name.
	owners map[string]ownerSeen
	// weights are what was written into the route.
	weights routeWeights
	// refusedSince is since when a ResourceQuota refuses pods of a variant, by name.
	refusedSince map[string]time.Time
	// held is what the annotation said by which a user holds sizes, "" for nothing.
	held string
}

// ownerSeen is the object that has made a scale target, "" for none, as it was read at a version of the target.
type ownerSeen struct{ version, owner string }

// routeWeights are weights that were written into a route, for a generation of the fleet. As a number they are 1 while the route has them, and 0 once it
// has others.
type routeWeights struct {
	contest.Number
	to         [][]int
	generation int64
}

// wrote notes weights that were written. Those that take the place of weights that somebody may undo are watched as long as these: the load changes
// weights all the time, and nothing else would end a contest.
func (w *routeWeights) wrote(to [][]int, generation int64, now time.Time) {
	if w.to, w.generation = to, generation; !w.IsWatched() {
		w.Wrote(0, 1, now)
	}
}

// written returns what was written into the scale target of a variant.
func (m *memory) written(variant string) *contest.Number {
	if m.replicas[variant] == nil {
		m.replicas[variant] = &contest.Number{}
	}
	return m.replicas[variant]
}

// remember begins the memory of a fleet with the slowdowns that an earlier process wrote into its status, and with the sizes and weights that it left alone. It does not
// believe that replicas are faster than declared where their latencies end below the promise.
func remember(f *v1alpha1.InferenceFleet) *memory {
	m := &memory{
		decided: &traffic.Memory{Variants: map[string]*traffic.VariantMemory{}}, readySince: map[string]time.Time{}, failsUntil: map[string]time.Time{},
		replicas: map[string]*contest.Number{}, owners: map[string]ownerSeen{}, refusedSince: map[string]time.Time{}, held: f.Annotations[v1alpha1.AnnotationSize],
	}
	if until := f.Status.WeightsLeftAloneUntil; until != nil {
		m.weights.Resume(until.Time, f.Status.ObservedGeneration)
	}
	for i := range f.Status.Variants {
		s := &f.Status.Variants[i]
		x, err := strconv.ParseFloat(s.Slowdown, 64)
		if untrue := x < 1 && endsBelow(f) && queriesOf(f).VariantLatency == ""; err == nil && x >= leastSlowdown && x <= mostSlowdown && !untrue {
			m.decided.Variants[s.Name] = traffic.Learn(x)
		}
		if s.LeftAloneUntil != nil {
			m.written(s.Name).Resume(s.LeftAloneUntil.Time, f.Status.ObservedGeneration)
		}
	}
	return m
}

// leastSlowdown and mostSlowdown bound what package traffic learns.
const (
	leastSlowdown = .25
	mostSlowdown  = 16
)

// warmth returns what a ready endpoint counts for.
//
// Example: 15 s after it was first seen it counts for 0.6.
func (m *memory) warmth(endpoint string, now time.Time) float64 {
	since, known := m.readySince[endpoint]
	if !known && m.looked {
		since = now
	}
	m.readySince[endpoint] = since
	age := max(0, now.Sub(since))
	return min(1, coldPart+(1-coldPart)*float64(age)/float64(warmAfter))
}

// settled reports whether a variant has a replica that has been ready since a time.
func (m *memory) settled(variant string, since time.Time) bool {
	for endpoint, ready := range m.readySince {
		if name, _, _ := strings.Cut(endpoint, "/"); name == variant && !ready.After(since) {
			return true
		}
	}
	return false
}

// keep forgets the endpoints that are no longer ready.
func (m *memory) keep(present map[string]bool) {
	maps.DeleteFunc(m.readySince, func(endpoint string, _ time.Time) bool { return !present[endpoint] })
	m.looked = true
}
