package gangs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Names of the other policies.
const (
	stockGangs    = "kubernetes"
	tiresiasGangs = "tiresias"
)

// gangPolicies by name, in the order in which all of them are shown. Random ones differ by the seed.
var gangPolicies = []struct {
	name  string
	draws bool
	make  func(g *Training, random *rand.Rand) (gangPolicy, error)
}{
	{stockGangs, true, func(_ *Training, r *rand.Rand) (gangPolicy, error) { return newStock(r), nil }},
	{"gang", true, func(_ *Training, r *rand.Rand) (gangPolicy, error) { return &gangsAnywhere{r}, nil }},
	{"dragon", true, func(_ *Training, r *rand.Rand) (gangPolicy, error) { return &dragon{r}, nil }},
	{tiresiasGangs, false, func(*Training, *rand.Rand) (gangPolicy, error) {
		return &preemptive{order: newTiresias().order, place: emptiestFirst}, nil
	}},
	{"tandem", false, inOrder(tandemGangs{order: byArrival, drains: gang.BoundedDrains}, nil)},
	{"tandem-profiled", false, inOrder(tandemGangs{order: byArrival, drains: gang.BoundedDrains}, measuredLoss)},
	{"tandem-anywhere", false, inOrder(tandemGangs{order: byArrival, drains: gang.BoundedDrains}, noLoss)},
	{"tandem-undrained", false, inOrder(tandemGangs{order: byArrival}, nil)},
	{"tandem-drained", false, inOrder(tandemGangs{order: byArrival, drains: gang.AllDrains}, nil)},
	{"tandem-deadlines", false, inOrder(tandemGangs{order: byArrival, drains: gang.BoundedDrains, declares: 2}, nil)},
	{"tandem-deadlines-drained", false, inOrder(tandemGangs{order: byArrival, drains: gang.AllDrains, declares: 2}, nil)},
	{"tandem-predicted", false, predicting(tandemGangs{order: byArrival, drains: gang.BoundedDrains})},
	{"tandem-shortest", false, inOrder(tandemGangs{order: byExpected}, nil)},
	{"tandem-tiresias", false, func(g *Training, _ *rand.Rand) (gangPolicy, error) { return stopping(g, newTiresias().order) }},
	{"tandem-service", false, func(g *Training, _ *rand.Rand) (gangPolicy, error) { return stopping(g, inClasses(byService)) }},
	{"tandem-size", false, func(g *Training, _ *rand.Rand) (gangPolicy, error) { return stopping(g, inClasses(bySize)) }},
	{"tandem-priority", false, func(g *Training, _ *rand.Rand) (gangPolicy, error) { return stopping(g, inClasses(byHours)) }},
}

// inOrder is the scheduler as it is, or with a change.
func inOrder(as tandemGangs, losses func(j *gangJob) []gang.Loss) func(g *Training, _ *rand.Rand) (gangPolicy, error) {
	return func(g *Training, _ *rand.Rand) (gangPolicy, error) {
		t := as
		var err error
		if t.gangBook, err = newGangBook(g.Nodes, g.GPUs); err != nil {
			return nil, err
		}
		t.losses = losses
		t.ends, t.started = map[vgpu.UID]int64{}, map[vgpu.UID]int64{}
		t.short, t.look, t.refused = map[int]float64{}, map[int]float64{}, map[int]int{}
		t.cluster.Ends = func(uid vgpu.UID, _ string) int64 { return t.ends[uid] }
		return &t, nil
	}
}

// predicting is inOrder where the ends of pods are predicted.
func predicting(as tandemGangs) func(g *Training, r *rand.Rand) (gangPolicy, error) {
	return func(g *Training, r *rand.Rand) (gangPolicy, error) {
		p, err := inOrder(as, nil)(g, r)
		if err != nil {
			return nil, err
		}
		t := p.(*tandemGangs)
		if t.forecasts, err = newForecasts(); err != nil {
			return nil, err
		}
		t.cluster.Ends = func(uid vgpu.UID, _ string) int64 { return t.forecasts.endOf(uid) }
		return t, nil
	}
}

// stopping places as the scheduler does, and stops what the order puts last.
func stopping(g *Training, order func(c *gangCluster) []*gangJob) (gangPolicy, error) {
	book, err := newGangBook(g.Nodes, g.GPUs)
	if err != nil {
		return nil, err
	}
	return &preemptive{order: order, place: book.place, book: book}, nil
}

// Policies returns the names of the policies that Training compares, in the order of display.
func Policies() []string {
	names := make([]string, 0, len(gangPolicies))
	for i := range gangPolicies {
		names = append(names, gangPolicies[i].name)
	}
	return names
}

// ParsePolicies reads names of policies separated by commas, or experiment.All.
func ParsePolicies(list string) ([]string, error) {
	if list == experiment.All {
		return Policies(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if !slices.Contains(Policies(), name) {
			return nil, fmt.Errorf("read policies %q: unknown policy %q, known are %s, or %s for every one", list, name,
				strings.Join(Policies(), ", "), experiment.All)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("read policies %q: %s appears twice", list, name)
		}
	}
	return names, nil
}

// gangPolicyOf makes a policy for one run. The seed is for those that draw.
func gangPolicyOf(g *Training, name string, seed int64) (gangPolicy, error) {
	i := slices.Index(Policies(), name)
	if i < 0 {
		return nil, fmt.Errorf("unknown policy %q", name)
	}
	return gangPolicies[i].make(g, rand.New(rand.NewPCG(uint64(seed), 1)))
}

// drawsGangs reports whether a policy differs by the seed.
func drawsGangs(name string) bool {
	i := slices.Index(Policies(), name)
	return i < 0 || gangPolicies[i].draws
}
