package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func ratesOf(t *testing.T, prices map[string]int64, points ...Throughput) *Rates {
	t.Helper()
	r, err := NewRates(points, prices)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRatesOfTwoTables(t *testing.T) {
	first := ratesOf(t, map[string]int64{"A100": 3}, Throughput{"bert", "A100", vgpu.WholeGPU, 300})
	second := ratesOf(t, map[string]int64{"A100": 9, "T4": 1},
		Throughput{"bert", "A100", vgpu.WholeGPU, 900}, Throughput{"bert", "T4", vgpu.WholeGPU, 100}, Throughput{"ant", "T4", vgpu.WholeGPU, 7})
	both := first.With(second)
	for _, want := range []Throughput{{"bert", "A100", vgpu.WholeGPU, 300}, {"bert", "T4", vgpu.WholeGPU, 100}, {"ant", "T4", 500, 3}} {
		if got := both.At(want.Profile, want.Model, want.Share); got != want.Rate {
			t.Errorf("%s on %s reaches %v, want %v", want.Profile, want.Model, got, want.Rate)
		}
	}
	variants, miss := both.Variants(Wanted{Profile: "bert", Rate: 100}, nil)
	want := []vgpu.Variant{{Model: "T4", Compute: vgpu.WholeGPU, Cost: 1}, {Model: "A100", Compute: 334, Cost: 2}} // a third of 3, rounded up
	if diff := cmp.Diff(want, variants); miss != nil || diff != "" {
		t.Errorf("%v; variants (-want +got):\n%s", miss, diff)
	}
	if first.At("bert", "T4", vgpu.WholeGPU) != 0 || second.At("bert", "A100", vgpu.WholeGPU) != 900 {
		t.Error("the tables themselves have changed")
	}
	var none *Rates
	if none.With(second) != second || first.With(nil) != first {
		t.Error("a table with none is itself")
	}
}

func TestWorth(t *testing.T) {
	// 300 for 3 are 100; on a half of the device 150 for 1.5.
	r := ratesOf(t, map[string]int64{"A100": 3}, Throughput{"bert", "A100", vgpu.WholeGPU, 300})
	for share, want := range map[vgpu.MilliGPU]float64{vgpu.WholeGPU: 100, 500: 100, 2 * vgpu.WholeGPU: 50} {
		if got := r.Worth("bert", "A100", share); got != want {
			t.Errorf("a share of %v is worth %v, want %v", share, got, want)
		}
	}
	if got := r.Worth("bert", "T4", vgpu.WholeGPU); got != 0 {
		t.Errorf("a model without a curve is worth %v", got)
	}
}
