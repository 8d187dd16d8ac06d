package experiment

import (
	"math"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestScoreCurves: a workload that goes exactly by the shipped curve of its class has no error, one layout alone will do, and a
// workload that does not go by it is off by what can be worked out.
func TestScoreCurves(t *testing.T) {
	fixed := interference.ClassInference.Curve().Fixed
	exact := &measurements.File{Trace: traces.Trace{Format: measurements.ParvaProfile}, Solos: steps("vgg", "", 8, math.NaN(), fixed, 250, 500, 1000)}
	// Speeds in proportion: 1/4 and 1/2. By the curve a step takes f + 4(1−f) and f + 2(1−f).
	slow := &measurements.File{Trace: traces.Trace{Format: measurements.ParvaProfile}, Solos: steps("vgg", "", 8, math.NaN(), 0, 250, 500, 1000)}
	quarter, half := 1/(fixed+4*(1-fixed))-.25, 1/(fixed+2*(1-fixed))-.5
	for name, tc := range map[string]struct {
		file                    *measurements.File
		mae, rmse, proportional float64
	}{
		"exact":         {exact, 0, 0, (quarter + half) / 2},
		"in proportion": {slow, (quarter + half) / 2, math.Sqrt((quarter*quarter + half*half) / 2), 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ScoreCurves([]*measurements.File{tc.file})
			must.OK(t, err)
			if len(got.Results) != 2 || got.Results[0].Class != "unknown" || got.Results[1].Class != "inference" {
				t.Fatalf("the classes are %+v, want unknown and inference", got.Results)
			}
			r := got.Results[1]
			for what, x := range map[string][2]float64{"MAE": {r.MAE, tc.mae}, "RMSE": {r.RMSE, tc.rmse}, "proportional": {r.Proportional, tc.proportional}} {
				if math.Abs(x[0]-x[1]) > 1e-3 {
					t.Errorf("%s is %v, want %v", what, x[0], x[1])
				}
			}
			if r.Points != 2 || r.Families != 1 || r.Fixed != fixed {
				t.Errorf("%d points of %d families, fixed %v; want 2, 1, %v", r.Points, r.Families, r.Fixed, fixed)
			}
		})
	}
	whole := &measurements.File{Trace: traces.Trace{Format: measurements.ParvaProfile}, Solos: steps("vgg", "", 8, math.NaN(), fixed, 1000)}
	if _, err := ScoreCurves([]*measurements.File{whole}); err == nil || !strings.Contains(err.Error(), "a smaller part too") {
		t.Errorf("without parts: %v", err)
	}
}

// TestScoreFeatures: networks that use exactly what is predicted have no error, inside and outside of the range; twice the memory is
// wrong by what was predicted.
func TestScoreFeatures(t *testing.T) {
	p := interference.FittedPredictor()
	network := func(parameters int64, times vgpu.Bytes) measurements.Network {
		n := measurements.Network{Line: 2, Parameters: parameters, Activations: 5000, Batch: 64, Depth: 4}
		g, err := p.Predict(featuresOf(&n))
		must.OK(t, err)
		n.Busy, n.Memory = g.Profile.SM, times*g.Profile.Memory
		return n
	}
	inside, outside, double := network(1e6, 1), network(1e10, 1), network(1e6, 2)
	got, err := ScoreFeatures([]measurements.Network{inside, outside, double})
	must.OK(t, err)
	wrong := float64(inside.Memory) / (1 << 20) / 2 // of one of two
	for i, want := range []struct {
		target, span string
		networks     int
		mae          float64
	}{{"sm", "inside", 2, 0}, {"sm", "outside", 1, 0}, {"memory_mib", "inside", 2, wrong}, {"memory_mib", "outside", 1, 0}} {
		r := got.Results[i]
		if r.Target != want.target || r.Range != want.span || r.Networks != want.networks || math.Abs(r.MAE-want.mae) > 1e-3 {
			t.Errorf("row %d is %+v, want %+v", i, r, want)
		}
	}
	if _, err := ScoreFeatures(nil); err == nil {
		t.Error("nothing is scored without an error")
	}
	broken := inside
	broken.Batch = 0
	if _, err := ScoreFeatures([]measurements.Network{broken}); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a broken network: %v", err)
	}
}

// TestShippedModelsAreNotFitted: with the shipped coefficients, what is held out changes which co-runs are seen and nothing else.
func TestShippedModelsAreNotFitted(t *testing.T) {
	solo := func(family string) Side {
		return Side{CoRunner: measurements.CoRunner{Workload: family, Family: family, Share: vgpu.WholeGPU, Speed: .9}}
	}
	var seen [][]*Pair
	p := Predicting{
		Sets: []PairSet{{Pairs: []Pair{
			{Sides: [2]Side{solo("A"), solo("B")}},
			{Sides: [2]Side{solo("B"), solo("B")}},
		}}},
		HoldOut: []string{"A"}, Observe: []int{0}, Models: []string{"none"}, Seeds: []int64{1}, MaxSlowdown: 2,
		fit: func(name string, set *PairSet, pairs []*Pair) (guesser, error) {
			seen = append(seen, pairs)
			return fitted(name, set, pairs)
		},
	}
	for _, p.Shipped = range []bool{false, true} {
		if _, err := p.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 2 || len(seen[0]) != 1 || seen[1] != nil {
		t.Errorf("fitted to %v, want one pair and then none", seen)
	}
}

// TestHistoryIsNoWorseThanAConstant: observations of other families leave predictions for a new one no worse than a constant, before
// it was seen and after, on every published set of pairs.
func TestHistoryIsNoWorseThanAConstant(t *testing.T) {
	load := func(path ...string) *measurements.File { return publishedTrace(t, path...) }
	pairs := []*measurements.File{load("lucid", "colocate_info.csv"), load("igniter", "v100_pair_interference.csv"), load("gavel", "pairs.csv")}
	profiles := []*measurements.File{load("lucid", "single_data.csv"), load("igniter", "v100_mps_latency_throughput.csv")}
	sets, err := PairSets(pairs, profiles, "oracle")
	must.OK(t, err)
	families, err := ParseFamilies(All, sets)
	must.OK(t, err)
	p := Predicting{
		Sets: sets, HoldOut: families, Observe: []int{0, 2}, Observed: ObservedHistory, Models: []string{"constant", "default"},
		Seeds: []int64{1, 2}, MaxSlowdown: 1.25,
	}
	got, err := p.Run()
	must.OK(t, err)
	type row struct {
		layout, gpu string
		observed    int
	}
	constant := map[row]float64{}
	for _, r := range got.Results {
		at := row{r.Layout, r.GPU, r.Observed}
		if r.Model == "constant" {
			constant[at] = *r.MAE
		} else if limit, ok := constant[at]; !ok || !(*r.MAE <= limit) {
			t.Errorf("%+v: the error is %v, of a constant %v", at, *r.MAE, limit)
		}
	}
	if len(constant) != 8 {
		t.Errorf("%d rows of the constant, want 4 sets with 2 numbers of co-runs", len(constant))
	}
}
