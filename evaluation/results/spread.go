package results

import (
	"fmt"
	"math"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Spread is the mean of a figure over the runs of several seeds, with the standard deviation of a sample (n − 1), which
// is 0 for a single run.
type Spread struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"`
}

// SpreadOf sums figures up, rounded by Round. Without figures it is zero.
//
// Example: 95.3 and 95.5 have the mean 95.4 and the deviation √(2 × 0.1²) = 0.1414.
func SpreadOf(figures []float64) Spread {
	n := float64(len(figures))
	if n == 0 {
		return Spread{}
	}
	mean := 0.0
	for _, f := range figures {
		mean += f / n
	}
	squares := 0.0
	for _, f := range figures {
		squares += (f - mean) * (f - mean)
	}
	return Spread{Mean: report.Round(mean), SD: report.Round(math.Sqrt(squares / max(n-1, 1)))}
}

// String writes "95.39 ± 0.08".
func (s Spread) String() string { return fmt.Sprintf("%.2f ± %.2f", s.Mean, s.SD) }

// precise writes three decimals: "1.085 ± 0.012".
func (s Spread) precise() string { return fmt.Sprintf("%.3f ± %.3f", s.Mean, s.SD) }

// Mean returns the mean of one figure or more, not rounded.
func Mean(figures []float64) float64 {
	sum := 0.0
	for _, f := range figures {
		sum += f
	}
	return sum / float64(len(figures))
}
