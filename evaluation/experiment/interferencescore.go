package experiment

import (
	"math"

	"github.com/tandem-gpu/tandem/evaluation/results"
)

// scored is a pair with the speeds of its tenants: measured ones and predicted ones.
type scored struct{ measured, predicted [2]float64 }

// admitted reports whether both speeds are at least so high.
func admitted(speeds [2]float64, least float64) bool {
	return speeds[0] >= least && speeds[1] >= least
}

// figures sums the runs of one row up, which are in the order of their seeds. A speed above least admits a pair. The
// mean leaves out a figure that is undefined for some seed (the precision without an admitted pair); a figure that is
// undefined for all is nil.
func figures(runs []predictedRun, least float64) results.InterferenceResult {
	var pairs []int
	var mae, r2, precision, recall, shown []float64
	for len(runs) > 0 {
		var all []scored
		seed, known := runs[0].seed, 0
		for len(runs) > 0 && runs[0].seed == seed {
			all = append(all, runs[0].pairs...)
			known += runs[0].known
			runs = runs[1:]
		}
		pairs = append(pairs, len(all))
		shown = appendDefined(shown, float64(known)/float64(2*len(all)))
		m, r := errorsOf(all)
		mae, r2 = appendDefined(mae, m), appendDefined(r2, r)
		p, c := admission(all, least)
		precision, recall = appendDefined(precision, p), appendDefined(recall, c)
	}
	sum := 0
	for _, n := range pairs {
		sum += n
	}
	return results.InterferenceResult{
		Pairs: int(math.Round(float64(sum) / float64(len(pairs)))), Seeds: len(pairs), Shown: seedMean(shown),
		MAE: seedMean(mae), MAESD: seedDeviation(mae), R2: seedMean(r2), Precision: seedMean(precision), Recall: seedMean(recall),
	}
}

func appendDefined(all []float64, v float64) []float64 {
	if math.IsNaN(v) {
		return all
	}
	return append(all, v)
}

func seedMean(all []float64) *float64 {
	if len(all) == 0 {
		return nil
	}
	mean := results.SpreadOf(all).Mean
	return &mean
}

func seedDeviation(all []float64) *float64 {
	if len(all) == 0 {
		return nil
	}
	sd := results.SpreadOf(all).SD
	return &sd
}

// errorsOf returns the mean absolute error of the speeds of all tenants, and by how much of their variance the predictions
// explain: 1 − Σ(measured − predicted)² ÷ Σ(measured − mean)². Both are NaN without pairs, the latter also where all
// tenants have the same speed.
//
// Example: measured 0.8 and 1, predicted 0.9 and 0.9: the error is 0.1, and the predictions explain 1 − 0.02 ÷ 0.02 = 0.
func errorsOf(all []scored) (mae, r2 float64) {
	n := float64(2 * len(all))
	mean, absolute := 0.0, 0.0
	for _, s := range all {
		for i := range s.measured {
			mean += s.measured[i] / n
			absolute += math.Abs(s.measured[i] - s.predicted[i])
		}
	}
	left, total := 0.0, 0.0
	for _, s := range all {
		for i := range s.measured {
			left += (s.measured[i] - s.predicted[i]) * (s.measured[i] - s.predicted[i])
			total += (s.measured[i] - mean) * (s.measured[i] - mean)
		}
	}
	if r2 = 1 - left/total; total == 0 {
		r2 = math.NaN()
	}
	return absolute / n, r2
}

// admission returns how many of the pairs that the predictions admit are rightly admitted, and how many of those that
// might have been are. Each is NaN where there are none.
func admission(all []scored, least float64) (precision, recall float64) {
	let, good, both := 0, 0, 0
	for _, s := range all {
		predicted, measured := admitted(s.predicted, least), admitted(s.measured, least)
		if predicted {
			let++
		}
		if measured {
			good++
		}
		if predicted && measured {
			both++
		}
	}
	return float64(both) / float64(let), float64(both) / float64(good)
}
