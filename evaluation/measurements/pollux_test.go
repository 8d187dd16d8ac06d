package measurements

import (
	"math"
	"testing"
)

func TestPlacementsOf(t *testing.T) {
	for file, want := range map[string][2]string{
		"/data/placements/bert-aws.csv":       {"bert", "aws"},
		"cifar10-dgx-ext.csv.gz":              {"cifar10", "dgx-ext"},
		"bert.csv":                            {},
		"bert-aws.json":                       {},
		"-aws.csv":                            {},
		"bert-.csv":                           {},
		"":                                    {},
		"traces/bert/placements-aws.csv":      {"bert", "aws"},
		"traces/bert/scalability-dgx-ext.csv": {"bert", "dgx-ext"},
		"bert/placements.csv":                 {},
		"placements-aws.csv":                  {},
		"/placements-aws.csv":                 {},
	} {
		if app, nodes := PlacementsOf(file); app != want[0] || nodes != want[1] {
			t.Errorf("%s is of %q on %q, want %q", file, app, nodes, want)
		}
	}
}

func TestEpochsOf(t *testing.T) {
	for file, want := range map[string]struct {
		app   string
		batch int64
	}{
		"/data/bert-validation-48.csv":      {"bert", 48},
		"dgx-ext-validation-8.csv.gz":       {"dgx-ext", 8},
		"traces/cifar10/validation-128.csv": {"cifar10", 128},
		"validation-128.csv":                {},
		"bert-validation-0.csv":             {},
		"bert-validation-1000000001.csv":    {},
		"bert-validation-.csv":              {},
		"bertvalidation-48.csv":             {},
		"bert-validation-48.json":           {},
		"bert/validation-48-1.csv":          {},
		"bert-48.csv":                       {},
		"":                                  {},
	} {
		if app, batch := EpochsOf(file); app != want.app || batch != want.batch {
			t.Errorf("%s is of %q with a batch of %d, want %v", file, app, batch, want)
		}
	}
}

// TestEpochGain: (3 + 1) ÷ (3/4 + 1) at four times the batch; without noise nothing is gained, with noise alone all.
func TestEpochGain(t *testing.T) {
	for _, tc := range []struct{ square, variance, scale, want float64 }{
		{1, 3, 4, 16.0 / 7}, {1, 3, 1, 1}, {2, 0, 8, 1}, {0, 5, 8, 8}, {0, 0, 8, 1},
	} {
		if got := (&Epoch{Square: tc.square, Variance: tc.variance}).Gain(tc.scale); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%+v gains %v", tc, got)
		}
	}
}
