package results_test

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/test/golden"
)

func fragmentation() results.Fragmentation {
	took := 0.412
	at := func(load int, mean, sd float64) results.AtLoad {
		return results.AtLoad{Load: load, Spread: results.Spread{Mean: mean, SD: sd}}
	}
	return results.Fragmentation{Results: []results.PolicyResult{
		{
			Policy: "random", Seeds: []int64{42, 43}, SecondsPerRun: &took,
			AllocatedPercent:     results.ByLoad{at(80, 76.5, 1.25), at(100, 84, 0), at(130, 87.47, .3)},
			FragmentationPercent: results.ByLoad{at(80, 15.92, .1)},
		},
		{
			Policy: "fgd", Seeds: []int64{42, 43}, SecondsPerRun: &took,
			AllocatedPercent:     results.ByLoad{at(80, 80, 0), at(100, 94.1234, .05), at(130, 95.39, .08)},
			FragmentationPercent: results.ByLoad{at(80, 5.97, .1)},
		},
	}}
}

func TestFragmentation(t *testing.T) {
	f := fragmentation()
	golden.Written(t, "fragmentation.json", func(w io.Writer) error { return report.JSON(w, f) })
	golden.Written(t, "fragmentation.txt", f.Table)
	for i := range f.Results {
		f.Results[i].SecondsPerRun = nil
	}
	golden.Written(t, "fragmentation_no_timing.json", func(w io.Writer) error { return report.JSON(w, f) })
	golden.Written(t, "fragmentation_no_timing.txt", f.Table)
}

func TestByLoadAt(t *testing.T) {
	l := fragmentation().Results[1].AllocatedPercent
	if s, ok := l.At(130); !ok || s.Mean != 95.39 {
		t.Errorf("at 130: %v, %v", s, ok)
	}
	if _, ok := l.At(120); ok {
		t.Error("there is a figure at 120")
	}
}

func TestSpreadOf(t *testing.T) {
	for _, tc := range []struct {
		name    string
		figures []float64
		want    results.Spread
	}{
		{"none", nil, results.Spread{}},
		{"one", []float64{95.4}, results.Spread{Mean: 95.4}},
		{"two", []float64{95.3, 95.5}, results.Spread{Mean: 95.4, SD: .1414}}, // √(0.01 + 0.01)
		{"three", []float64{1, 2, 6}, results.Spread{Mean: 3, SD: 2.6458}},    // √((4 + 1 + 9)/2)
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, results.SpreadOf(tc.figures)); diff != "" {
				t.Errorf("spread (-want +got):\n%s", diff)
			}
		})
	}
}
