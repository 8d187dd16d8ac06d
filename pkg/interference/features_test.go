package interference

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// dense is a network of 10⁶ parameters within the range of plain.
var dense = Features{Parameters: 1e6, Activations: 1e4, Batch: 100, Depth: 5}

// plain has round coefficients: SM is 0.05 per factor of ten in the parameters, and 0.1 above 10⁷; memory is 1 GiB, 16 bytes
// a parameter and 4 an activation.
func plain() Predictor {
	p := Predictor{
		Memory: [MemoryTerms]float64{1 << 30, 16, 4}, Bandwidth: .75,
		Range: Range{
			Least: Features{Parameters: 1e4, Activations: 1e2, Batch: 10, Depth: 2},
			Most:  Features{Parameters: 1e8, Activations: 1e5, Batch: 1000, Depth: 10},
		},
		SMError: .03, BandwidthError: .08, MemoryError: 1 << 24, Widening: .2,
	}
	p.SM[1], p.SM[4] = .05, .05
	return p
}

func TestFeaturesValidate(t *testing.T) {
	if err := dense.Validate(); err != nil {
		t.Errorf("%+v: %v", dense, err)
	}
	p := FittedPredictor()
	for _, tc := range []struct {
		name   string
		change func(*Features)
		says   []string
	}{
		{"no parameters", func(f *Features) { f.Parameters = 0 }, []string{"Parameters is 0", "1 to 1e+13"}},
		{"not a number", func(f *Features) { f.Activations = math.NaN() }, []string{"Activations is NaN", "1 to 1e+13"}},
		{"infinite", func(f *Features) { f.Batch = math.Inf(1) }, []string{"Batch is +Inf", "1 to 1e+07"}},
		{"negative", func(f *Features) { f.Depth = -3 }, []string{"Depth is -3", "1 to 100000"}},
		{"less than one", func(f *Features) { f.Depth = .5 }, []string{"Depth is 0.5"}},
		{"too many", func(f *Features) { f.Parameters = 1.1e13 }, []string{"Parameters is 1.1e+13"}},
		{"negative operations", func(f *Features) { f.GigaFLOPs = -1 }, []string{"GigaFLOPs is -1", "1e-09 to 1e+12"}},
		{"operations that are no number", func(f *Features) { f.GigaFLOPs = math.NaN() }, []string{"GigaFLOPs is NaN"}},
		{"too few operations", func(f *Features) { f.GigaFLOPs = 1e-10 }, []string{"GigaFLOPs is 1e-10"}},
		{"nothing at all", func(f *Features) { *f = Features{} }, []string{"Parameters is 0"}},
	} {
		f := dense
		tc.change(&f)
		got, err := p.Predict(f)
		if err == nil || got != (Estimate{}) {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
			continue
		}
		for _, want := range tc.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", tc.name, err, want)
			}
		}
	}
}

// TestTerms: 3·10⁷ parameters are 10^7.4771, 400 samples 10^2.6021, 2·10⁴ activations 10^4.3010; the operations are
// 6 × 3·10⁷ × 400 = 7.2·10¹⁰, or 10^1.8573 in 10⁹.
func TestTerms(t *testing.T) {
	f := Features{Parameters: 3e7, Activations: 2e4, Batch: 400, Depth: 7}
	want := [UseTerms]float64{
		1,
		7.4771, 2.4771, 1.4771, .4771, 0, 0,
		2.6021, .6021, .1021,
		4.3010, 1.3010, .3010,
		7,
		3.8573, 1.8573, .8573, 0,
	}
	near := cmpopts.EquateApprox(0, 5e-5)
	if diff := cmp.Diff(want, f.UseTerms(), near); diff != "" {
		t.Errorf("use (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([MemoryTerms]float64{1, 3e7, 8e6}, f.MemoryTerms()); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	counted := f
	counted.GigaFLOPs = 720 // ten times as many
	want[14], want[15], want[16], want[17] = 4.8573, 2.8573, 1.8573, .8573
	if diff := cmp.Diff(want, counted.UseTerms(), near); diff != "" {
		t.Errorf("use with counted operations (-want +got):\n%s", diff)
	}
}

func TestPredict(t *testing.T) {
	const gib = float64(1 << 30)
	for _, tc := range []struct {
		name    string
		f       Features
		sm      float64
		memory  float64
		outside float64
		class   Class
	}{
		// 0.05 × 6; 1 GiB + 16 × 10⁶ + 4 × 10⁴ × 100.
		{"within", dense, .3, gib + 20e6, 0, ClassLight},
		// 0.05 × 8 + 0.05 × 1.
		{"at the most", Features{Parameters: 1e8, Activations: 1e5, Batch: 1000, Depth: 10}, .45, gib + 20e8, 0, ClassLight},
		{"at the least", Features{Parameters: 1e4, Activations: 1e2, Batch: 10, Depth: 2}, .2, gib + 16e4 + 4e3, 0, ClassLight},
		{"counted operations of a dense network", Features{GigaFLOPs: .6, Parameters: 1e6, Activations: 1e4, Batch: 100, Depth: 5}, .3, gib + 20e6, 0, ClassLight},
		// log₁₀ 20 = 1.3010: SM as of 10⁸ parameters, memory of as many as there are.
		{"twenty times the most parameters", Features{Parameters: 2e9, Activations: 1e4, Batch: 100, Depth: 5}, .45, gib + 320e8 + 4e6, 1.30103, ClassUnknown},
		{"a fifth of the least batch", Features{Parameters: 1e6, Activations: 1e4, Batch: 2, Depth: 5}, .3, gib + 16e6 + 8e4, .69897, ClassUnknown},
		{"twice as deep and ten times as wide", Features{Parameters: 1e6, Activations: 1e6, Batch: 100, Depth: 20}, .3, gib + 16e6 + 4e8, 1.30103, ClassUnknown},
		// 600 · 10⁹ operations of 100 samples are those of 10⁹ parameters: SM as of 10⁸, three factors of ten outside.
		{"a convolution", Features{GigaFLOPs: 600, Parameters: 1e6, Activations: 1e4, Batch: 100, Depth: 5}, .45, gib + 20e6, 3, ClassUnknown},
		{"few operations", Features{GigaFLOPs: .06, Parameters: 1e6, Activations: 1e4, Batch: 100, Depth: 5}, .25, gib + 20e6, 1, ClassUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plain()
			got, err := p.Predict(tc.f)
			must.OK(t, err)
			// The error of SM widens by 0.2 per factor of ten, to 0.5 at most, and that of the memory by 0.35 of itself.
			smError := min(math.Hypot(.03, .2*tc.outside), .5)
			want := Estimate{
				Profile: Profile{
					SM: tc.sm, Bandwidth: .75 * tc.sm * tc.sm, Memory: vgpu.Bytes(tc.memory), Class: tc.class, Guessed: tc.outside > 0,
				},
				SMError: smError, BandwidthError: min(math.Hypot(.08, 1.5*tc.sm*smError), .5),
				MemoryError: vgpu.Bytes(math.Ceil(math.Hypot(1<<24, .35*tc.outside*tc.memory))), Outside: tc.outside,
			}
			// Six digits: the logarithms above have as many.
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-5, 1e-9), cmp.Comparer(func(a, b vgpu.Bytes) bool {
				return math.Abs(float64(a-b)) <= 1e-5*float64(a)
			})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPredictDense: to tell the operations of a dense network changes nothing but for rounding: it is within the range.
func TestPredictDense(t *testing.T) {
	p := plain()
	for i := range 1000 {
		f := Features{Parameters: float64(10_000 + 7919*i), Activations: 500, Batch: float64(10 + i%900), Depth: 3}
		want, err := p.Predict(f)
		must.OK(t, err)
		f.GigaFLOPs = 6 * f.Parameters * f.Batch / 1e9
		got, err := p.Predict(f)
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 0)); err != nil || diff != "" {
			t.Fatalf("%+v: %v (-uncounted +counted):\n%s", f, err, diff)
		}
	}
}

// TestPredictFillsTheDevice: training whose kernels run at least 70 % of the time is not light.
func TestPredictFillsTheDevice(t *testing.T) {
	for constant, want := range map[float64]Class{.699: ClassLight, .7: ClassTraining, 1: ClassTraining} {
		p := plain()
		p.SM = [UseTerms]float64{constant}
		got, err := p.Predict(dense)
		if err != nil || got.Profile.Class != want || got.Profile.SM != constant {
			t.Errorf("SM %v is %v at %v, %v, want %v", constant, got.Profile.Class, got.Profile.SM, err, want)
		}
	}
}

// TestPredictClamps: coefficients that lead out of what can be give the nearest that can.
func TestPredictClamps(t *testing.T) {
	for constant, want := range map[float64]float64{-3: 0, 7: 1} {
		p := plain()
		p.SM, p.Memory = [UseTerms]float64{constant}, [MemoryTerms]float64{constant * 1e30}
		got, err := p.Predict(dense)
		if err != nil || got.Profile.SM != want || got.Profile.Validate() != nil {
			t.Errorf("%v: %+v, %v", constant, got, err)
		}
	}
}

// TestPropertyPredict: for whatever network can be, the shipped predictor gives a legal profile and finite errors, which
// are no less outside of what was measured than within.
func TestPropertyPredict(t *testing.T) {
	p := FittedPredictor()
	rapid.Check(t, func(t *rapid.T) {
		amount := func(name string, most float64) float64 {
			return math.Pow(10, rapid.Float64Range(0, math.Log10(most)).Draw(t, name))
		}
		f := Features{
			Parameters: min(amount("parameters", mostParameters), mostParameters), Depth: min(amount("depth", mostDepth), mostDepth),
			Activations: min(amount("activations", mostActivations), mostActivations), Batch: min(amount("batch", mostBatch), mostBatch),
		}
		if rapid.Bool().Draw(t, "operations are counted") {
			f.GigaFLOPs = max(leastOperations*amount("operations", mostOperations/leastOperations/2), leastOperations)
		}
		got, err := p.Predict(f)
		must.OK(t, err)
		if err := got.Profile.Validate(); err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		if !(got.SMError >= p.SMError && got.SMError <= .5 && got.BandwidthError >= p.BandwidthError && got.BandwidthError <= .5) {
			t.Fatalf("%+v: errors %+v", f, got)
		}
		if float64(got.MemoryError) < p.MemoryError || got.Outside < 0 || math.IsInf(got.Outside, 0) || got.Profile.Guessed != (got.Outside > 0) {
			t.Fatalf("%+v: %+v", f, got)
		}
		if more, err := p.Predict(bigger(f)); err == nil && more.Profile.Memory < got.Profile.Memory {
			t.Fatalf("%+v with twice the batch holds %v, less than %v", f, more.Profile.Memory, got.Profile.Memory)
		}
	})
}

func bigger(f Features) Features {
	f.Batch *= 2
	return f
}

// TestShippedPredictor: the order of networks that anyone would expect. A table that was mixed up fails here without the
// measurements; that it is the fitted one, a test of package experiment checks with them.
func TestShippedPredictor(t *testing.T) {
	p := FittedPredictor()
	predict := func(f Features) Estimate {
		t.Helper()
		got, err := p.Predict(f)
		if err != nil || got.Profile.Guessed {
			t.Fatalf("%+v: %+v, %v", f, got, err)
		}
		return got
	}
	small := predict(Features{Parameters: 1e5, Activations: 1e3, Batch: 512, Depth: 4})
	large := predict(Features{Parameters: 1.2e8, Activations: 5e4, Batch: 128, Depth: 8})
	if !(small.Profile.SM < .35 && large.Profile.SM > .7) {
		t.Errorf("SM %v of a small network, %v of a large one", small.Profile.SM, large.Profile.SM)
	}
	if small.Profile.Class != ClassLight || large.Profile.Class != ClassTraining {
		t.Errorf("classes %v and %v", small.Profile.Class, large.Profile.Class)
	}
	// A CUDA context is 1.4 GiB or so; 1.2·10⁸ parameters with gradients and moments are 16 bytes each and more.
	if m := small.Profile.Memory; m < 14*vgpu.GiB/10 || m > 15*vgpu.GiB/10 {
		t.Errorf("a small network holds %v", m)
	}
	if m := large.Profile.Memory - small.Profile.Memory; m < vgpu.Bytes(16*1.2e8) || m > vgpu.Bytes(24*1.2e8) {
		t.Errorf("a large network holds %v more than a small one", m)
	}
}

func BenchmarkPredict(b *testing.B) {
	p := FittedPredictor()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Predict(dense); err != nil {
			b.Fatal(err)
		}
	}
}
