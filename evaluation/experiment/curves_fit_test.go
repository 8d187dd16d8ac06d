package experiment

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// steps makes up what a workload takes on parts of a device of which a fixed part does not depend on them: a second on all.
func steps(name, phase string, batch int64, sm, fixed float64, parts ...vgpu.MilliGPU) []measurements.Solo {
	var all []measurements.Solo
	for _, part := range parts {
		seconds := fixed + (1-fixed)*float64(vgpu.WholeGPU)/float64(part)
		all = append(all, measurements.Solo{
			Workload: fmt.Sprintf("%s batch %d%s", name, batch, phase), Family: name, Batch: batch, Share: part, SM: sm,
			Bandwidth: math.NaN(), Latency: time.Duration(seconds * 1e9), Rate: float64(batch) / seconds,
		})
	}
	return all
}

// made has all four formats, with a fixed part for each class of work.
func made() *CurveFit {
	var igniter, parva, miso, mux measurements.File
	igniter.Format, parva.Format, miso.Format, mux.Format = measurements.IgniterCurves, measurements.ParvaProfile, measurements.MISOSlices, measurements.MuxServeLatencies
	for _, name := range []string{"alexnet", "vgg"} {
		igniter.Solos = append(igniter.Solos, steps(name, "", 8, math.NaN(), .3, 200, 400, 800)...)
		parva.Solos = append(parva.Solos, steps(name, "", 8, math.NaN(), .3, 143, 429, 1000)...)
		miso.Solos = append(miso.Solos, steps(name, "", 8, .7, .2, 286, 571, 1000)...)
		miso.Solos = append(miso.Solos, steps(name, "", 4, .69, .95, 286, 571, 1000)...)
		mux.Solos = append(mux.Solos, steps(name, " prefill", 8, math.NaN(), .45, 300, 600, 1000)...)
		mux.Solos = append(mux.Solos, steps(name, " decode", 8, math.NaN(), .7, 300, 600, 1000)...)
	}
	return &CurveFit{Traces: []*measurements.File{&igniter, &parva, &miso, &mux}}
}

func fitOf(t *testing.T, f *CurveFit) map[string]results.CurveResult {
	t.Helper()
	got, err := f.Run()
	must.OK(t, err)
	all := map[string]results.CurveResult{}
	for _, r := range got.Results {
		all[r.Class] = r
	}
	return all
}

// TestCurveFitFindsWhatIsThere: each class gets the fixed part that its points were made with, without error. Training
// below 70 % of the time is light.
func TestCurveFitFindsWhatIsThere(t *testing.T) {
	got := fitOf(t, made())
	for class, want := range map[string]struct {
		fixed  float64
		points int
	}{"unknown": {0, 24}, "light": {.95, 4}, "training": {.2, 4}, "inference": {.3, 8}, "prefill": {.45, 4}, "decode": {.7, 4}} {
		r := got[class]
		if r.Fixed != want.fixed || r.Points != want.points || r.Families != 2 {
			t.Errorf("%s: fixed %v of %d points of %d families, want %v of %d of 2", class, r.Fixed, r.Points, r.Families, want.fixed, want.points)
		}
		if class != "unknown" && (r.MAE > 1e-6 || r.HeldOut > 1e-6 || r.Error != 0) {
			t.Errorf("%s: errors %v, %v held out, %v standard", class, r.MAE, r.HeldOut, r.Error)
		}
		if r.Below != 0 {
			t.Errorf("%s: %v of the points are below", class, r.Below)
		}
	}
	// Training on 571 thousandths has speed 1 ÷ (0.2 + 0.8 ÷ 0.571) = 0.6246, on 286 0.3336; in proportion 0.571 and 0.286.
	if r := got["training"]; math.Abs(r.Proportional-(.0536+.0476)/2) > 2e-4 || math.Abs(r.Unaffected-(.3754+.6664)/2) > 2e-4 {
		t.Errorf("training: %v of a proportional speed, %v of an unaffected one", r.Proportional, r.Unaffected)
	}
}

// TestCurveFitLight: work whose batch of twice the size takes less than 1.3 times as long is light, by the whole device
// and whatever it is; the larger batch is not, nor is one whose double was not measured.
func TestCurveFitLight(t *testing.T) {
	for slower, light := range map[float64]bool{1: true, 1.29: true, 1.31: false, 2: false} {
		f := made()
		for _, tr := range f.Traces[:2] {
			double := steps("alexnet", "", 16, math.NaN(), .3, 200, 1000)
			for i := range double {
				double[i].Latency = time.Duration(float64(double[i].Latency) * slower)
				double[i].Rate = 16 / double[i].Latency.Seconds()
			}
			// iGniter's whole is 800: there alexnet takes 0.3 + 0.7 ÷ 0.8 = 1.175 s, 1.175 times as long as on 1000.
			if tr.Format == measurements.IgniterCurves {
				double[1].Share, double[1].Latency = 800, time.Duration(1.175*slower*1e9)
			}
			tr.Solos = append(tr.Solos, double...)
		}
		got := fitOf(t, f)
		want := 4 // light training
		if light {
			want += 4 // alexnet with a batch of 8 of both files
		}
		if got["light"].Points != want {
			t.Errorf("%v times as long: %d light points, want %d", slower, got["light"].Points, want)
		}
	}
}

// TestCurveFitWithoutTheWhole: a workload that was measured on less than 80 % of a device only says nothing of the whole;
// one that is faster on a part counts as equally fast.
func TestCurveFitWithoutTheWhole(t *testing.T) {
	f := made()
	f.Traces[0].Solos = append(f.Traces[0].Solos, steps("small", "", 8, math.NaN(), 0, 200, 799)...)
	fast := steps("quick", "", 8, math.NaN(), 1, 400, 800)
	fast[0].Latency /= 2
	f.Traces[0].Solos = append(f.Traces[0].Solos, fast...)
	if got := fitOf(t, f)["inference"]; got.Points != 9 || got.Families != 3 {
		t.Errorf("%d points of %d families, want 9 of 3", got.Points, got.Families)
	}
	points, err := measuredPoints(f.Traces[0])
	must.OK(t, err)
	for _, p := range points[interference.ClassInference] {
		if p.family == "quick" && p.speed != 1 {
			t.Errorf("half the time on half the SMs is the speed %v", p.speed)
		}
	}
}

// TestCurveFitHoldsOut: of two families with the fixed parts 0 and 1 each is predicted with the other's: on half of the SMs
// 0.5 off. The fit on both is one of them, 0 since it is the lower, and 0.5 off for half of the points.
func TestCurveFitHoldsOut(t *testing.T) {
	points := []point{
		{family: "a", part: 500, whole: 1000, speed: .5}, {family: "b", part: 500, whole: 1000, speed: 1},
	}
	got := fittedClass(interference.ClassDecode, points)
	want := results.CurveResult{Class: "decode", Points: 2, Families: 2, Error: .5, MAE: .25, HeldOut: .5, Proportional: .25, Unaffected: .25}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// As two models of one family they are held out one by one too.
	points[0].model, points[1].model, points[1].family = "a-7b", "a-13b", "a"
	if diff := cmp.Diff(want, fittedClass(interference.ClassDecode, points)); diff != "" {
		t.Errorf("one family (-want +got):\n%s", diff)
	}
	// Unknown work is in proportion whatever is measured; 0.9 of that is below it.
	points[0].speed = .45
	if got := fittedClass(interference.ClassUnknown, points); got.Fixed != 0 || got.Below != .5 {
		t.Errorf("unknown: fixed %v, %v below", got.Fixed, got.Below)
	}
}

// TestBandwidthRules: at a quarter of the speed on a quarter of the SMs half of the bandwidth is the square root.
func TestBandwidthRules(t *testing.T) {
	points := []point{
		{part: 250, whole: 1000, speed: .25, bandwidth: .5},
		{part: 250, whole: 1000, speed: .25, bandwidth: math.NaN()},
	}
	want := []results.BandwidthResult{
		{Rule: "unaffected", Points: 1, MAE: .5, Bias: .5},
		{Rule: "proportional", Points: 1, MAE: .25, Bias: -.25},
		{Rule: "speed", Points: 1, MAE: .25, Bias: -.25},
		{Rule: "square root of speed", Points: 1},
	}
	if diff := cmp.Diff(want, bandwidthRules(points)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := bandwidthRules(points[1:]); got != nil {
		t.Errorf("without a bandwidth: %v", got)
	}
}

// TestCurveFitBandwidth: only iGniter counts the bandwidth on each part; MISO's is that of the whole device.
func TestCurveFitBandwidth(t *testing.T) {
	f := made()
	for _, tr := range f.Traces {
		for i := range tr.Solos {
			tr.Solos[i].Bandwidth = .5
		}
	}
	got, err := f.Run()
	if err != nil || len(got.Bandwidth) == 0 || got.Bandwidth[0].Points != 4 || got.Bandwidth[0].MAE != 0 {
		t.Errorf("%+v, %v, want four points of iGniter", got.Bandwidth, err)
	}
}

func TestCurveFitRefuses(t *testing.T) {
	lucid := made()
	lucid.Traces = append(lucid.Traces, &measurements.File{
		Trace: traces.Trace{File: "l.csv", Format: measurements.LucidSingles}, Solos: []measurements.Solo{{Workload: "BERT", Share: vgpu.WholeGPU}},
	})
	three := made()
	three.Traces = three.Traces[:3]
	for want, f := range map[string]*CurveFit{
		"l.csv: lucid-singles, 1 solo profile: it has no speeds by part of the SMs": lucid,
		"class prefill: no workload of it was measured":                             three,
		"class unknown: no workload of it was measured":                             {},
	} {
		if got, err := f.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v does not say %q", got, err, want)
		}
	}
}

// TestShippedCurvesAreFitted: the curves that are shipped are those that the measurements give, and each class is nearer to
// what was measured, on families that were held out, than a speed in proportion to the SMs and than one that they do not
// matter to.
func TestShippedCurvesAreFitted(t *testing.T) {
	f := &CurveFit{}
	for _, path := range [][]string{
		{"igniter", "v100_mps_latency_throughput.csv"}, {"parvagpu", "a100_mig_mps_profile.csv"},
		{"miso", "mig_slice_step_time.csv"}, {"muxserve", "llama_mps_profile_a100.csv"},
	} {
		f.Traces = append(f.Traces, publishedTrace(t, path...))
	}
	for name, r := range fitOf(t, f) {
		class, err := interference.ClassByName(name)
		must.OK(t, err)
		if diff := cmp.Diff(class.Curve(), interference.Curve{Fixed: r.Fixed, Error: r.Error}); diff != "" && whole(f) {
			t.Errorf("%s (-shipped +fitted):\n%s", name, diff)
		}
		if class != interference.ClassUnknown && !(r.HeldOut < r.Proportional && r.HeldOut < r.Unaffected) {
			t.Errorf("%s: error %v, %v in proportion, %v unaffected", name, r.HeldOut, r.Proportional, r.Unaffected)
		}
		const few = .07
		if r.Below > few {
			t.Errorf("%s: %v of the points are slower than in proportion, at most %v was expected", name, r.Below, few)
		}
	}
}

// whole reports whether all rows that the curves were fitted on are there; a part of them gives other curves.
func whole(f *CurveFit) bool {
	rows := 0
	for _, tr := range f.Traces {
		rows += len(tr.Solos)
	}
	const fittedOn = 5575 // as the comment of the shipped curves says
	return rows == fittedOn
}
