package experiment

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// TestLeastSquares: y = 3 + 2a − b/1000, where b is a thousand times as large as a and a third column never changes.
func TestLeastSquares(t *testing.T) {
	var rows [][]float64
	var y []float64
	for i := range 50 {
		a, b := float64(i%7), 1000*float64(i%11)
		rows, y = append(rows, []float64{1, a, b, 5}), append(y, 3+2*a-b/1000)
	}
	// The ridge of 10⁻⁶ shrinks by as much.
	if diff := cmp.Diff([]float64{3, 2, -.001, 0}, leastSquares(rows, y), cmpopts.EquateApprox(1e-5, 1e-12)); diff != "" {
		t.Errorf("coefficients (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{2.5}, leastSquares([][]float64{{1}, {1}}, []float64{2, 3})); diff != "" {
		t.Errorf("the constant alone is the mean (-want +got):\n%s", diff)
	}
}

// TestPropertyLeastSquares: no other coefficients leave less squared error, whatever the order of the rows.
func TestPropertyLeastSquares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Float64Range(-10, 10)
		n := rapid.IntRange(8, 20).Draw(t, "rows")
		rows, y := make([][]float64, n), make([]float64, n)
		for i := range rows {
			rows[i] = []float64{1, value.Draw(t, "a"), value.Draw(t, "b")}
			y[i] = value.Draw(t, "y")
		}
		w := leastSquares(rows, y)
		least := squares(rows, y, w)
		for i := range w {
			for _, d := range []float64{-.01, .01} {
				other := append([]float64(nil), w...)
				other[i] += d
				if s := squares(rows, y, other); s < least-1e-4*(1+least) {
					t.Fatalf("%v leaves %v, %v only %v", w, least, other, s)
				}
			}
		}
		turn := rand.New(rand.NewPCG(1, 2)).Perm(n)
		turned, turnedY := make([][]float64, n), make([]float64, n)
		for i, k := range turn {
			turned[i], turnedY[i] = rows[k], y[k]
		}
		if diff := cmp.Diff(w, leastSquares(turned, turnedY), cmpopts.EquateApprox(1e-6, 1e-6)); diff != "" {
			t.Fatalf("in another order (-first +second):\n%s", diff)
		}
	})
}

func squares(rows [][]float64, y, w []float64) float64 {
	sum := 0.0
	for i, row := range rows {
		e := -y[i]
		for c, x := range row {
			e += w[c] * x
		}
		sum += e * e
	}
	return sum
}

// invented makes networks up whose SM is flat, then rises with each factor of ten above 10⁷ parameters, and whose memory is
// 1000 MiB, 16 bytes a parameter and 4 an activation.
func invented(n int) []measurements.Network {
	random := rand.New(rand.NewPCG(7, 7))
	all := make([]measurements.Network, n)
	for i := range all {
		parameters := math.Pow(10, 3+6*random.Float64())
		w := &all[i]
		*w = measurements.Network{
			Line: i + 2, Depth: 2 + random.Int64N(10), Activation: "ReLU", Parameters: int64(parameters),
			Activations: int64(math.Pow(10, 1+4*random.Float64())), Batch: 4 + random.Int64N(1000),
			Norms: random.Int64N(3), Dropouts: random.Int64N(3),
		}
		w.Busy = .2 + .3*max(0, math.Log10(float64(w.Parameters))-7)
		w.Memory = 1000*vgpu.MiB + vgpu.Bytes(16*w.Parameters+4*w.Activations*w.Batch)
	}
	return all
}

// TestFeatureFitFindsWhatIsThere: the fit finds again what was made up of the terms, on networks that were held out
// too; a straight line through the columns misses the bend and the product, and the mean misses all.
func TestFeatureFitFindsWhatIsThere(t *testing.T) {
	fit := FeatureFit{Networks: invented(400), Seeds: []int64{1, 2}}
	got, err := fit.Run()
	must.OK(t, err)
	mae := map[string]float64{}
	for _, r := range got.Results {
		mae[r.Target+" "+r.Split+" "+r.Model] = r.MAE.Mean
		// Two fifths of 400, or all five.
		if want := map[string]int{"fifth": 160, "five-fold": 400}[r.Split]; r.Networks != want {
			t.Errorf("%s %s %s: %d networks, want %d", r.Target, r.Split, r.Model, r.Networks, want)
		}
	}
	for _, target := range []string{"sm fifth ", "sm five-fold ", "memory_mib fifth ", "memory_mib five-fold "} {
		ours, line, mean := mae[target+"features"], mae[target+"least-squares"], mae[target+"mean"]
		if !(ours < line/50 && line < mean) {
			t.Errorf("%s: errors %v, of a straight line %v, of the mean %v", target, ours, line, mean)
		}
	}
	p := got.Predictor
	bytes := p.Memory
	bytes[0] /= float64(vgpu.MiB)
	if diff := cmp.Diff([interference.MemoryTerms]float64{1000, 16, 4}, bytes, cmpopts.EquateApprox(1e-4, 0)); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	est, err := p.Predict(interference.Features{Parameters: 1e8, Activations: 1000, Batch: 100, Depth: 4})
	if err != nil || math.Abs(est.Profile.SM-.5) > .002 {
		t.Errorf("10⁸ parameters have SM %v, %v, want .5", est.Profile.SM, err)
	}
	shipped := interference.FittedPredictor()
	if p.Bandwidth != shipped.Bandwidth || p.BandwidthError != shipped.BandwidthError || got.Profiles != 0 {
		t.Errorf("without profiles the bandwidth is %v ± %v of %d, not what is shipped", p.Bandwidth, p.BandwidthError, got.Profiles)
	}
}

// TestFeatureFitWidens: SM that rises beyond 10⁷ parameters cannot be seen from below. The error that is shipped for what
// is outside covers what was missed there.
func TestFeatureFitWidens(t *testing.T) {
	networks := invented(400)
	fit := FeatureFit{Networks: networks, Seeds: []int64{1}}
	got, err := fit.Run()
	must.OK(t, err)
	// The upper fifth of the parameters has from 10^7.8 to 10⁹: SM from 0.44 to 0.8, predicted as 0.44 or so: 0.3 per factor
	// of ten.
	if w := got.Predictor.Widening; math.Abs(w-.3) > .05 {
		t.Errorf("the error grows by %v per factor of ten, want .3 or so", w)
	}
	for i := range networks {
		networks[i].Busy = .4
	}
	if got, err = fit.Run(); err != nil || got.Predictor.Widening > .01 {
		t.Errorf("where nothing is to be missed the error grows by %v, %v", got.Predictor.Widening, err)
	}
}

// TestFeatureFitStaysPossible: no model predicts an SM below 0 or above 1, where a straight line would.
func TestFeatureFitStaysPossible(t *testing.T) {
	networks := invented(200)
	for i := range networks {
		networks[i].Busy = 0
		if networks[i].Parameters > 1e7 {
			networks[i].Busy = 1
		}
	}
	fit := FeatureFit{Networks: networks, Seeds: []int64{1}}
	edge := map[float64]int{}
	for m := range featureModels {
		for i, e := range fit.errors(&targets[0], m, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
			predicted := networks[i].Busy + e
			if predicted < 0 || predicted > 1 {
				t.Errorf("%s predicts %v", featureModels[m].name, predicted)
			}
			edge[predicted]++
		}
	}
	if edge[0] == 0 || edge[1] == 0 {
		t.Errorf("no prediction at an end, so none is seen to stop there: %v", edge)
	}
}

// TestFeatureFitBeyond: 0.4 off at two factors of ten outside are 0.16 ÷ 4, less what is off within; networks within the
// range say nothing of what is outside.
func TestFeatureFitBeyond(t *testing.T) {
	fit := FeatureFit{Networks: invented(200)}
	in := make([]int, len(fit.Networks))
	for i := range in {
		in[i] = i
	}
	far, near := fit.Networks[0], fit.Networks[1]
	far.Batch = 100 * int64(fit.span().Most.Batch)
	far.Busy, near.Busy = far.Busy+.4, near.Busy+.5
	fit.Networks = append(fit.Networks, far, near)
	for _, out := range [][]int{{200}, {200, 201}} {
		if got := fit.beyond(in, out, .2); math.Abs(got-(.16-.04)/4) > 1e-3 {
			t.Errorf("%v: %v, want .03", out, got)
		}
	}
	if got := fit.beyond(in, []int{201}, .2); got != 0 {
		t.Errorf("nothing outside grows by %v", got)
	}
}

// TestFeatureFitOrder: the order of the rows moves the coefficients by rounding only, and the same rows give the same bits.
func TestFeatureFitOrder(t *testing.T) {
	networks := invented(300)
	run := func(n []measurements.Network) *results.FeatureFit {
		t.Helper()
		got, err := (&FeatureFit{Networks: n, Seeds: []int64{3}}).Run()
		must.OK(t, err)
		return got
	}
	want := run(networks)
	turned := make([]measurements.Network, len(networks))
	for i, k := range rand.New(rand.NewPCG(9, 9)).Perm(len(networks)) {
		turned[i] = networks[k]
	}
	got := run(turned)
	// The folds differ, and with them the errors; a coefficient of nothing is rounding alone.
	if diff := cmp.Diff(want.Predictor.SM, got.Predictor.SM, cmpopts.EquateApprox(1e-5, 1e-8)); diff != "" {
		t.Errorf("SM (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Predictor.Memory, got.Predictor.Memory, cmpopts.EquateApprox(1e-5, 1)); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	if diff := cmp.Diff(want, run(networks)); diff != "" {
		t.Errorf("the same again (-want +got):\n%s", diff)
	}
}

func TestFeatureFitRefuses(t *testing.T) {
	few := FeatureFit{Networks: invented(MinNetworks - 1), Seeds: []int64{1}}
	huge := FeatureFit{Networks: invented(200), Seeds: []int64{1}}
	huge.Networks[4].Parameters = 1e15
	profile := func(family string, sm, bandwidth float64) measurements.Solo {
		return measurements.Solo{Family: family, SM: sm, Bandwidth: bandwidth, Share: vgpu.WholeGPU}
	}
	alone := FeatureFit{Networks: invented(200), Seeds: []int64{1}, Profiles: []measurements.Solo{profile("BERT", .9, .6)}}
	idle := FeatureFit{Networks: invented(200), Seeds: []int64{1}, Profiles: []measurements.Solo{profile("VGG", .9, .6), profile("BERT", math.NaN(), .1)}}
	for name, tc := range map[string]struct {
		fit  FeatureFit
		says string
	}{
		"too few":                       {few, "111 networks, 1 seeds: want at least 112 networks and one seed"},
		"no seeds":                      {FeatureFit{Networks: invented(200)}, "0 seeds"},
		"more parameters than there be": {huge, "line 6: validate features: Parameters is 1e+15"},
		"one family of profiles":        {alone, "bandwidth of BERT: no other family"},
		"no profile that can be used":   {idle, "none of 2 profiles"},
	} {
		if got, err := tc.fit.Run(); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v does not say %q", name, got, err, tc.says)
		}
	}
}

// TestBandwidth: 0.5 and 0.7 times the square of SM in two families give Σb·SM² ÷ ΣSM⁴: with SM 1 and 0.5 in each
// (0.5 + 0.7)·(1 + 0.0625) ÷ (2 · 1.0625) = 0.6. Each family is predicted with the other's factor: 0.2 times SM² off.
func TestBandwidth(t *testing.T) {
	var profiles []measurements.Solo
	for family, factor := range map[string]float64{"a": .5, "b": .7} {
		for _, sm := range []float64{1, .5} {
			profiles = append(profiles, measurements.Solo{Family: family, SM: sm, Bandwidth: factor * sm * sm, Share: vgpu.WholeGPU})
		}
	}
	unused := []measurements.Solo{
		{Family: "VGG", SM: 1, Bandwidth: 1, Share: vgpu.WholeGPU}, {Family: "a", SM: 1, Bandwidth: 1, Share: 500},
		{Family: "a", SM: math.NaN(), Bandwidth: 1, Share: vgpu.WholeGPU}, {Family: "a", SM: 1, Bandwidth: math.NaN(), Share: vgpu.WholeGPU},
	}
	factor, spread, n, err := bandwidth(append(profiles, unused...))
	// The mean of (0.2 · SM²)² is 0.04 · (1 + 0.0625) ÷ 2 = 0.02125.
	if err != nil || n != 4 || math.Abs(factor-.6) > 1e-12 || math.Abs(spread-math.Sqrt(.02125)) > 1e-12 {
		t.Errorf("%v ± %v of %d, %v, want .6 ± .1458 of 4", factor, spread, n, err)
	}
}

// publishedTrace loads a public file, or skips the test.
func publishedTrace(t *testing.T, path ...string) *measurements.File {
	t.Helper()
	dir := published.Data(t)
	tr, err := measurements.Load(filepath.Join(append([]string{dir}, path...)...))
	must.OK(t, err)
	return tr
}

// TestShippedPredictorIsFitted: the shipped predictor is what the measurements give, digit by digit; and on every held-out
// fifth it is below the mean and below a straight line, in both targets.
func TestShippedPredictorIsFitted(t *testing.T) {
	fit := FeatureFit{
		Networks: publishedTrace(t, "gpumemnet", "mlp_train_features_util.csv").Networks,
		Profiles: publishedTrace(t, "lucid", "single_data.csv").Solos,
		Seeds:    []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
	}
	got, err := fit.Run()
	must.OK(t, err)
	if len(fit.Networks) == wholeGPUMemNet {
		if diff := cmp.Diff(interference.FittedPredictor(), got.Predictor); diff != "" {
			t.Errorf("shipped is not what was fitted (-shipped +fitted):\n%s", diff)
		}
	}
	for ti := range targets {
		for _, seed := range fit.Seeds {
			part := [][]int{fit.folds(seed)[0]}
			mean, line, ours := fit.tested(&targets[ti], 0, "", part), fit.tested(&targets[ti], 1, "", part), fit.tested(&targets[ti], 2, "", part)
			if !(ours.MAE.Mean < .9*line.MAE.Mean && line.MAE.Mean < mean.MAE.Mean) {
				t.Errorf("%s, seed %d: errors %v, of a straight line %v, of the mean %v", targets[ti].name, seed, ours.MAE, line.MAE, mean.MAE)
			}
		}
	}
}

// wholeGPUMemNet is how many networks were published; other selections of them give other coefficients.
const wholeGPUMemNet = 3000
