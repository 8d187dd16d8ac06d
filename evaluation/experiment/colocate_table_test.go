package experiment

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// pairsOf is a set of made-up pairs, "TD3+LM .9 .8", with profiles "TD3 SM bandwidth GiB".
func pairsOf(t testing.TB, profiles []string, pairs ...string) *PairSet {
	t.Helper()
	solos := &measurements.File{Trace: traces.Trace{File: "s.csv", Format: measurements.LucidSingles}}
	for i, text := range profiles {
		s := measurements.Solo{Line: i + 2, GPU: "rtx3090", Share: 1000, Batch: 32, Rate: 100}
		var gib float64
		if _, err := fmt.Sscanf(text, "%s %g %g %g", &s.Workload, &s.SM, &s.Bandwidth, &gib); err != nil {
			t.Fatal(err)
		}
		s.Memory = vgpu.Bytes(gib * float64(vgpu.GiB))
		solos.Solos = append(solos.Solos, s)
	}
	all := sets(t, []*measurements.File{solos}, coRuns(t, measurements.LucidPairs, "rtx3090", pairs...))
	return &all[0]
}

// trees is a set of three families of which one has two sizes, with every pair but two of them.
func trees(t testing.TB) *PairSet {
	set := pairsOf(t, []string{"Ash .9 .6 4", "Elm .5 .2 6", "Fir18 .3 .1 2", "Fir34 .4 .1 9"},
		"Ash+Ash .5 .7", "Ash+Elm .6 .8", "Elm+Ash .9 .8", "Elm+Elm 1.2 .8", "Fir18+Fir18 .9 .9", "Fir34+Fir18 .8 .6",
		"Fir34+Fir34 .7 .7", "Ash+Fir18 .5 .9", "Elm+Fir18 .7 1", "Elm+Fir34 .6 1.1")
	set.Pairs[1].Memory = 11 * vgpu.GiB
	set.Pairs[2].Memory = 5 * vgpu.GiB
	return set
}

func TestTableOfPairs(t *testing.T) {
	table, err := tableOfPairs(trees(t))
	must.OK(t, err)
	var names []string
	for _, c := range table.configs {
		names = append(names, c.name+" of "+c.family)
	}
	if diff := cmp.Diff([]string{"Ash of Ash", "Elm of Elm", "Fir18 of Fir", "Fir34 of Fir"}, names); diff != "" {
		t.Errorf("configurations (-want +got):\n%s", diff)
	}
	want := [][]float64{
		{.6, .7, .5, .5}, // beside Elm (0.6 + 0.8)/2; beside Fir34 as beside Fir18
		{.85, 1, .7, .6}, // beside Ash (0.8 + 0.9)/2, (1.2 + 0.8)/2 beside itself
		{.9, 1, .9, .6},
		{.9, 1, .8, .7}, // beside Ash as Fir18 is; beside Elm 1.1, which is 1
	}
	if diff := cmp.Diff(want, table.speed, near); diff != "" {
		t.Errorf("speeds (-want +got):\n%s", diff)
	}
	if table.excess[0][1] != vgpu.GiB || table.excess[1][0] != vgpu.GiB || table.excess[0][0] != 0 {
		t.Errorf("excess %v", table.excess)
	}
	if got := table.memory(jobsOf(table, 0, 1, 1)); got != 18*vgpu.GiB {
		t.Errorf("4 + 6 + 6 and twice 1 GiB more are %d", got)
	}
	if p := table.configs[0].profile; p.SM != .9 || p.Bandwidth != .6 || p.Step != .32 {
		t.Errorf("profile %+v", p)
	}
}

// TestTableOfRarePairs: Yew was measured beside one of three others and takes no part; a single configuration does.
func TestTableOfRarePairs(t *testing.T) {
	profiles := []string{"Ash .9 .6 4", "Elm .5 .2 6", "Oak .3 .1 2", "Yew .3 .1 2"}
	table, err := tableOfPairs(pairsOf(t, profiles, "Ash+Elm .5 .5", "Ash+Oak .5 .5", "Oak+Elm .4 .6", "Yew+Yew 1 1", "Yew+Ash 1 1"))
	must.OK(t, err)
	if len(table.configs) != 3 || len(table.excess) != 3 || table.speed[2][0] != .5 || table.speed[2][1] != .4 || table.speed[2][2] != .45 {
		t.Errorf("%d configurations, speeds %v, want 3; Oak beside itself as beside the others", len(table.configs), table.speed)
	}
	if table, err = tableOfPairs(pairsOf(t, profiles, "Yew+Yew .5 .7")); err != nil || len(table.configs) != 1 || table.speed[0][0] != .6 {
		t.Errorf("a single one: %v, %v", table, err)
	}
}
