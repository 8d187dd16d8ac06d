package experiment

import (
	"errors"
	"fmt"
	"math"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ScoreCurves returns the errors of the shipped curves on measurements of work on parts of the SMs. There is no fit, so
// any of the layouts alone suffices.
func ScoreCurves(files []*measurements.File) (*results.CurveScores, error) {
	points := map[interference.Class][]point{}
	for _, t := range files {
		found, err := measuredPoints(t)
		if err != nil {
			return nil, fmt.Errorf("score curves: %w", err)
		}
		for class, more := range found {
			points[class] = append(points[class], more...)
			points[interference.ClassUnknown] = append(points[interference.ClassUnknown], more...)
		}
	}
	out := &results.CurveScores{}
	for _, name := range interference.ClassNames() {
		class, err := interference.ClassByName(name)
		if err != nil {
			return nil, fmt.Errorf("score curves: %w", err)
		}
		if of := points[class]; len(of) > 0 {
			out.Results = append(out.Results, scoredClass(class, of))
		}
	}
	if len(out.Results) == 0 {
		return nil, errors.New("score curves: no workload was measured on 80 % of the SMs or more and on a smaller part too")
	}
	return out, nil
}

// scoredClass returns the errors of the shipped curve of a class on points, beside two speeds that need no measurement.
func scoredClass(class interference.Class, points []point) results.CurveScore {
	families := map[string]bool{}
	for i := range points {
		families[points[i].family] = true
	}
	c := class.Curve()
	mae, square := errorOf(points, c)
	proportional, _ := errorOf(points, interference.Curve{Fixed: 0})
	unaffected, _ := errorOf(points, interference.Curve{Fixed: 1})
	return results.CurveScore{
		Class: class.String(), Points: len(points), Families: len(families), Fixed: c.Fixed, Error: c.Error,
		MAE: report.Round(mae), RMSE: report.Round(math.Sqrt(square)),
		Proportional: report.Round(proportional), Unaffected: report.Round(unaffected), Below: report.Round(below(points)),
	}
}

// ScoreFeatures returns the errors of the shipped predictor on measured networks. There is no fit, so one network
// suffices.
func ScoreFeatures(networks []measurements.Network) (*results.FeatureScores, error) {
	if len(networks) == 0 {
		return nil, errors.New("score features: no networks")
	}
	p := interference.FittedPredictor()
	guesses := make([]interference.Estimate, len(networks))
	for i := range networks {
		x := featuresOf(&networks[i])
		var err error
		if guesses[i], err = p.Predict(x); err != nil {
			return nil, fmt.Errorf("score features: line %d: %w", networks[i].Line, err)
		}
	}
	predicted := map[string]func(*interference.Estimate) float64{
		"sm":         func(g *interference.Estimate) float64 { return g.Profile.SM },
		"memory_mib": func(g *interference.Estimate) float64 { return float64(g.Profile.Memory) / float64(vgpu.MiB) },
	}
	out := &results.FeatureScores{}
	for t := range targets {
		for _, where := range []struct {
			name    string
			outside bool
		}{{"inside", false}, {"outside", true}} {
			r := results.FeatureScore{Target: targets[t].name, Range: where.name}
			var wrong, constant errorSum
			mean := meanOf(networks, targets[t].value)
			for i := range networks {
				if g := &guesses[i]; (g.Outside > 0) == where.outside {
					value := targets[t].value(&networks[i])
					wrong.add(predicted[targets[t].name](g) - value)
					constant.add(mean - value)
				}
			}
			if r.Networks = wrong.n; r.Networks == 0 {
				continue
			}
			r.MAE, r.RMSE, r.Mean = wrong.mae(), wrong.rmse(), constant.mae()
			out.Results = append(out.Results, r)
		}
	}
	return out, nil
}

// errorSum adds errors up.
type errorSum struct {
	n                int
	absolute, square float64
}

func (s *errorSum) add(e float64) {
	s.n, s.absolute, s.square = s.n+1, s.absolute+math.Abs(e), s.square+e*e
}

func (s *errorSum) mae() float64  { return report.Round(s.absolute / float64(s.n)) }
func (s *errorSum) rmse() float64 { return report.Round(math.Sqrt(s.square / float64(s.n))) }

func meanOf(networks []measurements.Network, value func(*measurements.Network) float64) float64 {
	sum := 0.0
	for i := range networks {
		sum += value(&networks[i])
	}
	return sum / float64(len(networks))
}
