package experiment

import (
	"github.com/tandem-gpu/tandem/evaluation/plots"
)

// curve is a figure of one run at even steps of what goes on: value k belongs to step k.
type curve []float64

// sample takes values at n steps from 0. If there is none any more, the last one holds on.
func sample(n int, at func(step int) (float64, bool)) curve {
	c := make(curve, n)
	for step := range c {
		v, ok := at(step)
		if !ok && step > 0 {
			v = c[step-1]
		}
		c[step] = v
	}
	return c
}

// mean returns the mean of runs of equally many steps as the points of a line; steps are width apart.
func mean(runs []curve, width float64) []plots.Point {
	points := make([]plots.Point, 0, len(runs[0]))
	for step := range runs[0] {
		sum := 0.0
		for _, c := range runs {
			sum += c[step]
		}
		points = append(points, plots.Point{X: float64(step) * width, Y: sum / float64(len(runs))})
	}
	return points
}
