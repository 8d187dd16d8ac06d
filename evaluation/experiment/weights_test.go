package experiment

import (
	"bytes"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// weighing is the small cluster with workloads of which half harm each other, and half harm nobody.
func weighing(weights ...int64) Weighing {
	w := Weighing{Filling: small("tandem"), Sample: 2, Burst: true, Weights: weights}
	w.Inflate = .8
	w.Seeds = []int64{1, 2, 3, 4, 5, 6, 7, 8}
	for range 2 {
		w.Profiles = append(w.Profiles,
			measurements.Solo{Workload: "heavy", Share: vgpu.WholeGPU, SM: 1, Bandwidth: .9},
			measurements.Solo{Workload: "light", Share: vgpu.WholeGPU, SM: .05, Bandwidth: .01},
			measurements.Solo{Workload: "unknown", Share: vgpu.WholeGPU, SM: math.NaN(), Bandwidth: math.NaN()},
			measurements.Solo{Workload: "capped", Share: 500, SM: .5, Bandwidth: .5},
		)
	}
	return w
}

// TestWeighing: with a weight less work is lost than without, and nearly as much is given away.
func TestWeighing(t *testing.T) {
	w := weighing(0, 100)
	if got := len(w.workloads()); got != 4 {
		t.Fatalf("%d workloads, want the 4 of whole devices with SM and bandwidth", got)
	}
	out, err := w.Run()
	must.OK(t, err)
	without, with := out.Results[0], out.Results[1]
	if without.Weight != 0 || with.Weight != 100 {
		t.Fatalf("results of weights %d and %d", without.Weight, with.Weight)
	}
	if !(with.LostPercent.Mean < without.LostPercent.Mean) || !(with.SlowdownMean.Mean < without.SlowdownMean.Mean) {
		t.Errorf("with the weight %v is lost at slowdown %v, without %v at %v",
			with.LostPercent, with.SlowdownMean, without.LostPercent, without.SlowdownMean)
	}
	if with.AllocatedPercent.Mean < without.AllocatedPercent.Mean-10 || with.SlowdownMax.Mean < 1 {
		t.Errorf("with the weight %v is allocated, without %v; the worst is %v", with.AllocatedPercent, without.AllocatedPercent, with.SlowdownMax)
	}
	w.Profiles = w.Profiles[2:4]
	if _, err := w.Run(); err == nil || !strings.Contains(err.Error(), "no profile says") {
		t.Errorf("without profiles: %v", err)
	}
}

// TestWeighingRepeats: the same seeds give the same bytes, on however many processors.
func TestWeighingRepeats(t *testing.T) {
	var printed [][]byte
	for _, processors := range []int{1, 8} {
		before := runtime.GOMAXPROCS(processors)
		w := weighing(0, 50)
		out, err := w.Run()
		runtime.GOMAXPROCS(before)
		must.OK(t, err)
		var b bytes.Buffer
		must.OK(t, report.JSON(&b, out))
		printed = append(printed, b.Bytes())
	}
	if !slices.Equal(printed[0], printed[1]) {
		t.Errorf("on one processor\n%s\non eight\n%s", printed[0], printed[1])
	}
}
