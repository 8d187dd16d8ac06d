package interference_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func named(t testing.TB, name string) interference.Model {
	t.Helper()
	m, err := interference.ByName(name)
	must.OK(t, err)
	return m
}

// whole is a tenant that may use all SMs.
func whole(sm, bandwidth float64) interference.Tenant {
	return interference.Tenant{SM: sm, Bandwidth: bandwidth, Cap: 1, Brisk: .5}
}

func TestPredict(t *testing.T) {
	capped := func(part, bandwidth, brisk float64) interference.Tenant {
		return interference.Tenant{SM: part, Cap: part, Bandwidth: bandwidth, Brisk: brisk}
	}
	learned := whole(.81, .4)
	learned.Sensitivity, learned.Offset = math.Log(2), .1
	pressing := whole(.9, .4)
	pressing.Pressure = math.Log(3)
	tests := []struct {
		name  string
		model string
		c     []float64
		on    []interference.Tenant
		want  []float64
	}{
		{"alone", "default", nil, []interference.Tenant{whole(1, 1)}, []float64{1}},
		{"no tenant", "default", nil, nil, nil},
		{"none", "none", nil, []interference.Tenant{whole(1, 1), whole(1, 1)}, []float64{1, 1}},
		{"constant", "constant", []float64{.9}, []interference.Tenant{whole(1, 1), whole(0, 0)}, []float64{.9, .9}},
		// 1.1 − 0.2·(0.5 + 0.8)
		{"util-sum", "util-sum", []float64{1.1, .2}, []interference.Tenant{whole(.5, 0), whole(.8, 0)}, []float64{.84, .84}},
		// 1 − 0.5·0.3
		{"hinge", "hinge", []float64{1, .5}, []interference.Tenant{whole(.5, 0), whole(.8, 0)}, []float64{.85, .85}},
		{"hinge with room", "hinge", []float64{1, .5}, []interference.Tenant{whole(.5, 0), whole(.5, 0)}, []float64{1, 1}},
		// first: 1 − 0.1·0.5 − 0.2·0.8 + 0.3·0.6 + 0.4·0.7 − 0.5·0.3 − 0.6·0.3 = 0.92; second: 1 − 0.1·0.8 − 0.2·0.5 + 0.3·0.7
		// + 0.4·0.6 − 0.15 − 0.18
		{
			"linear-hinge", "linear-hinge", []float64{1, .1, .2, .3, .4, .5, .6},
			[]interference.Tenant{whole(.5, .6), whole(.8, .7)},
			[]float64{.92, .94},
		},
		// √0.81³·√(0.9·0.4) = 0.729·0.6 = 0.4374, half of it lost in logarithms: 0.8036; the other way √0.9³·√(0.81·0.4) = 0.48601.
		{
			"shared SMs", "default", []float64{0, .5, 9, 9},
			[]interference.Tenant{whole(.81, .4), whole(.9, .4)},
			[]float64{math.Exp(-.2187), math.Exp(-.243002)},
		},
		// Twice as sensitive, and 10 % faster alone than measured.
		{
			"learned sensitivity and offset", "default", []float64{0, .5, 9, 9},
			[]interference.Tenant{learned, whole(.9, .4)},
			[]float64{math.Exp(.1 - .4374), math.Exp(-.243002)},
		},
		{
			"learned pressure", "default", []float64{0, .5, 9, 9},
			[]interference.Tenant{whole(.81, .4), pressing},
			[]float64{math.Exp(-.6561), math.Exp(-.243002)},
		},
		// Caps of 0.4 and 0.6 leave each its own SMs: 0.05 + 0.5·2·0.3 and 0.05 + 0.5·1·0.2.
		{
			"SMs of their own", "default", []float64{9, 9, .05, .5},
			[]interference.Tenant{capped(.4, .2, 2), capped(.6, .3, 1)},
			[]float64{math.Exp(-.35), math.Exp(-.15)},
		},
		// Caps of 0.75 and 0.75 are half shared: the means of 0.1 and 0.05.
		{
			"between the two", "default", []float64{.1, 0, .05, 0},
			[]interference.Tenant{capped(.75, 0, 1), capped(.75, 0, 1)},
			[]float64{math.Exp(-.075), math.Exp(-.075)},
		},
		// Three: the slowdowns of the pairs multiply.
		{
			"three", "default", []float64{.1, 0, 9, 9},
			[]interference.Tenant{whole(1, 1), whole(1, 1), whole(1, 1)},
			[]float64{math.Exp(-.2), math.Exp(-.2), math.Exp(-.2)},
		},
		{
			"rank1 knows no profile", "rank1", []float64{.1, 0, .1, 0},
			[]interference.Tenant{whole(1, 1), whole(0, 0)},
			[]float64{math.Exp(-.1), math.Exp(-.1)},
		},
		{"never stops", "hinge", []float64{1, 5}, []interference.Tenant{whole(1, 0), whole(1, 0)}, []float64{.02, .02}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := named(t, test.model)
			if test.c != nil {
				m.Coefficients = test.c
			}
			var got []float64
			for _, p := range m.Predict(test.on, nil) {
				got = append(got, p.Speed)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateApprox(0, 1e-5)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestError: the doubt falls with what is observed, and grows with the loss and with guesses.
func TestError(t *testing.T) {
	m := named(t, "default")
	base := []interference.Tenant{whole(.8, .4), whole(.9, .4)}
	doubt := func(change func(on []interference.Tenant)) float64 {
		on := slices.Clone(base)
		change(on)
		return m.Predict(on, nil)[0].Error
	}
	before := doubt(func([]interference.Tenant) {})
	for name, change := range map[string]func(on []interference.Tenant){
		"sensitivity": func(on []interference.Tenant) { on[0].SureSensitivity = 1 },
		"pressure":    func(on []interference.Tenant) { on[1].SurePressure = 1 },
		"offset":      func(on []interference.Tenant) { on[0].SureOffset = 1 },
		"less loss":   func(on []interference.Tenant) { on[0].SM = .1 },
	} {
		if got := doubt(change); got >= before {
			t.Errorf("%s: the error is %v, before %v", name, got, before)
		}
	}
	if got := doubt(func(on []interference.Tenant) { on[1].Guessed = true }); got <= before {
		t.Errorf("with a guess the error is %v, before %v", got, before)
	}
}

func TestSlowdown(t *testing.T) {
	for speed, want := range map[float64]float64{.5: 2, 1: 1, 1.3: 1} {
		if got := (interference.Prediction{Speed: speed}).Slowdown(); got != want {
			t.Errorf("speed %v: slowdown %v, want %v", speed, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var known interference.Table
	known.Set(1, 2, .8)
	known.Set(2, 1, .9)
	known.Set(1, 1, .5)
	m := named(t, "table").WithTable(&known)
	on := func(numbers ...interference.Workload) (list []interference.Tenant) {
		for _, w := range numbers {
			one := whole(1, 1)
			one.Workload = w
			list = append(list, one)
		}
		return list
	}
	speeds := func(on []interference.Tenant) (list []float64) {
		for _, p := range m.Predict(on, nil) {
			list = append(list, p.Speed)
		}
		return list
	}
	approx := cmpopts.EquateApprox(0, 1e-12)
	if diff := cmp.Diff([]float64{.8, .9}, speeds(on(1, 2)), approx); diff != "" {
		t.Error(diff)
	}
	// 1 beside 1 and 2: 0.5·0.8; 2 beside two of 1: 0.9·0.9.
	if diff := cmp.Diff([]float64{.4, .4, .81}, speeds(on(1, 1, 2)), approx); diff != "" {
		t.Error(diff)
	}
	unknown := on(1, 3)
	plain := named(t, "default")
	if diff := cmp.Diff(plain.Predict(unknown, nil)[0].Speed, speeds(unknown)[0], approx); diff != "" {
		t.Errorf("a pair that was not measured: %s", diff)
	}
}

func TestByName(t *testing.T) {
	want := []string{"constant", "default", "hinge", "linear-hinge", "none", "rank1", "table", "util-sum"}
	if diff := cmp.Diff(want, interference.Models()); diff != "" {
		t.Error(diff)
	}
	if _, err := interference.ByName("magic"); err == nil || !strings.Contains(err.Error(), "known are constant, default") {
		t.Errorf("got %v", err)
	}
	for _, name := range want {
		m := named(t, name)
		if learns := name == "default" || name == "rank1" || name == "table"; m.Learns() != learns {
			t.Errorf("%s: Learns is %v", name, m.Learns())
		}
	}
}

func TestFits(t *testing.T) {
	of := func(sizes ...vgpu.Bytes) (list []*interference.Profile) {
		for _, s := range sizes {
			list = append(list, &interference.Profile{Memory: s})
		}
		return list
	}
	if !interference.Fits(of(3, 7), 10) || interference.Fits(of(3, 8), 10) || interference.Fits(of(11), 10) || !interference.Fits(nil, 0) {
		t.Error("memory is a hard limit: what is held must be at most what the device has")
	}
}

// TestFitNeverBelowZero: where the best line would have a negative coefficient, it is 0 and the other is best without it.
func TestFitNeverBelowZero(t *testing.T) {
	var samples []interference.Sample
	for i := 1; i <= 20; i++ {
		a := float64(i) / 20
		on := []interference.Tenant{whole(1, 0), whole(a, a)} // x is a
		samples = append(samples, interference.Sample{On: on, Of: 0, Speed: math.Exp(.1 - .5*a)})
	}
	m, err := interference.Fit("default", samples)
	must.OK(t, err)
	if m.Coefficients[0] != 0 || m.Coefficients[1] < .3 || m.Coefficients[1] > .5 {
		t.Errorf("rising: got %v", m.Coefficients)
	}
	for i := range samples {
		samples[i].Speed = math.Exp(-.5 + .1*float64(i)/20)
	}
	if m, err = interference.Fit("default", samples); err != nil {
		t.Fatal(err)
	}
	if m.Coefficients[1] != 0 || m.Coefficients[0] < .4 || m.Coefficients[0] > .5 {
		t.Errorf("falling: got %v", m.Coefficients)
	}
}

// drawTenant draws any tenant that there can be.
func drawTenant(t *rapid.T) interference.Tenant {
	part := rapid.Float64Range(0, 1)
	trait := rapid.Float64Range(-4, 4)
	return interference.Tenant{
		Workload: interference.Workload(rapid.IntRange(0, 3).Draw(t, "workload")), SM: part.Draw(t, "SM"),
		Bandwidth: part.Draw(t, "bandwidth"), Cap: rapid.Float64Range(.001, 1).Draw(t, "cap"),
		Brisk: rapid.Float64Range(0, 3).Draw(t, "brisk"), Guessed: rapid.Bool().Draw(t, "guessed"),
		Traits: interference.Traits{
			Sensitivity: trait.Draw(t, "sensitivity"), Pressure: trait.Draw(t, "pressure"), Offset: rapid.Float64Range(-.5, .5).Draw(t, "offset"),
			SurePressure: part.Draw(t, "sure"),
		},
	}
}

// TestModelLaws: speeds are finite and above 0, and the order of tenants does not matter. A tenant without neighbours
// is not slower. By the default model a further neighbour makes no tenant faster on SMs that all share.
func TestModelLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := interference.ByName(rapid.SampledFrom(interference.Models()).Draw(t, "model"))
		must.OK(t, err)
		on := rapid.SliceOfN(rapid.Custom(drawTenant), 0, 6).Draw(t, "tenants")
		got := m.Predict(on, nil)
		if len(got) != len(on) || len(on) == 1 && got[0].Speed != 1 {
			t.Fatalf("got %v for %d tenants", got, len(on))
		}
		for i, p := range got {
			if !(p.Speed > 0) || math.IsInf(p.Speed, 0) || !(p.Error >= 0) || math.IsInf(p.Error, 0) {
				t.Fatalf("tenant %d: %+v", i, p)
			}
		}
		order := rapid.Permutation(slices.Collect(indexes(len(on)))).Draw(t, "order")
		moved := make([]interference.Tenant, len(on))
		for to, from := range order {
			moved[to] = on[from]
		}
		for to, p := range m.Predict(moved, make([]interference.Prediction, 0, 8)) {
			if math.Abs(p.Speed-got[order[to]].Speed) > 1e-6*p.Speed {
				t.Fatalf("tenant %d has speed %v, in another order %v", order[to], got[order[to]].Speed, p.Speed)
			}
		}
	})
}

func TestMoreNeighboursLaw(t *testing.T) {
	m := named(t, "default")
	rapid.Check(t, func(t *rapid.T) {
		on := rapid.SliceOfN(rapid.Custom(drawTenant), 2, 6).Draw(t, "tenants")
		for i := range on {
			on[i].Cap = 1
		}
		fewer, more := m.Predict(on[:len(on)-1], nil), m.Predict(on, nil)
		for i := range fewer {
			if len(fewer) > 1 && more[i].Speed > fewer[i].Speed*(1+1e-9) {
				t.Fatalf("tenant %d is at %v, with one neighbour more at %v", i, fewer[i].Speed, more[i].Speed)
			}
		}
	})
}

func indexes(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// TestFit: made-up speeds by known coefficients give these back.
func TestFit(t *testing.T) {
	for name, c := range map[string][]float64{
		"constant": {.9}, "util-sum": {1.05, .1}, "hinge": {.97, .3}, "linear-hinge": {1.02, .08, .09, .07, .02, .25, .06},
		"default": {.01, .5, .06, .3}, "rank1": {.2, 0, .2, 0},
	} {
		truth := named(t, name)
		truth.Coefficients = c
		var samples []interference.Sample
		for i := range 200 {
			a, b := float64(i%10)/10, float64(i*7%13)/13
			on := []interference.Tenant{whole(a, float64(i*3%7)/7), whole(b, float64(i*5%11)/11)}
			if i%2 == 1 {
				on[0].Cap, on[1].Cap, on[0].Brisk = .4, .6, a*3
			}
			samples = append(samples, interference.Sample{On: on, Of: 0, Speed: truth.Predict(on, nil)[0].Speed})
		}
		if name == "default" { // a pair that was measured wrongly
			samples[4].Speed = .2
		}
		got, err := interference.Fit(name, samples)
		must.OK(t, err)
		if diff := cmp.Diff(c, got.Coefficients, cmpopts.EquateApprox(0, 1e-4)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := interference.Fit("hinge", nil); err == nil || !strings.Contains(err.Error(), "no samples") {
		t.Errorf("got %v", err)
	}
	if _, err := interference.Fit("magic", nil); err == nil {
		t.Error("fitted a model that is unknown")
	}
}

// BenchmarkPredict is four tenants of one device.
func BenchmarkPredict(b *testing.B) {
	m := named(b, "default")
	on := []interference.Tenant{whole(.9, .4), whole(.3, .2), whole(.5, .3), whole(.2, .1)}
	out := make([]interference.Prediction, 0, len(on))
	b.ReportAllocs()
	for b.Loop() {
		out = m.Predict(on, out)
	}
}
