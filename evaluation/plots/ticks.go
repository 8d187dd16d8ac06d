package plots

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// wantedTicks is how many labels an axis has at least where its range allows it. More run into each other on the
// horizontal axis.
const wantedTicks = 6

// ticks labels an axis at multiples of 1, 2 or 5 times a power of ten: the largest step that gives wantedTicks.
//
// Example: 0 to 130 has a label every 20, 0 to 100 too, 0 to 1.7 one every 0.2.
func ticks(from, to float64) []plot.Tick {
	power := math.Pow(10, math.Floor(math.Log10((to-from)/(wantedTicks-1))))
	step := power
	for _, s := range []float64{2, 5} {
		if s*power*(wantedTicks-1) <= to-from {
			step = s * power
		}
	}
	var all []plot.Tick
	for k := math.Ceil(from / step); k*step <= to; k++ {
		at := k * step
		all = append(all, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'g', 6, 64)})
	}
	return all
}
