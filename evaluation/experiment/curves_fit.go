package experiment

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// CurveFit fits how the speed of each class of work follows its part of the SMs.
type CurveFit struct {
	// Traces have workloads alone on parts of a device: iGniter's, MISO's, MuxServe's and ParvaGPU's.
	Traces []*measurements.File
}

// point is one measurement of a workload on a part of the SMs beside the measurement on the largest part.
type point struct {
	family, model string
	part, whole   vgpu.MilliGPU
	// speed is that on the part as a part of that on the whole. A value above 1 in the file becomes 1: no work is
	// faster with less, so the measurement on the whole was too slow.
	speed float64
	// bandwidth is like speed, but may exceed 1; NaN without a measurement on the part.
	bandwidth float64
}

// leastWhole is the least part of the SMs that stands for all of them. iGniter has 80 % for most batches.
const leastWhole vgpu.MilliGPU = 800

// doubled is how many times as long a batch of twice the size takes at least, on the device alone, if the batch fills the
// device. Between 1.2 and 1.5 the errors of all classes together differ by less than a tenth.
const doubled = 1.3

// busyTraining is the least SM of training that fills the device.
const busyTraining = 0.7

// solo is one workload by its parts of the SMs.
type solo struct {
	class interference.Class // of work that fills the device
	by    map[vgpu.MilliGPU]*measurements.Solo
	whole vgpu.MilliGPU
	// rated says that steps are from the rate.
	rated bool
}

// Run fits every class, and tests rules for the bandwidth.
func (f *CurveFit) Run() (*results.CurveFit, error) {
	points := map[interference.Class][]point{}
	out := &results.CurveFit{}
	for _, t := range f.Traces {
		out.Profiles += len(t.Solos)
		found, err := measuredPoints(t)
		if err != nil {
			return nil, fmt.Errorf("fit curves: %w", err)
		}
		for class, more := range found {
			points[class] = append(points[class], more...)
			points[interference.ClassUnknown] = append(points[interference.ClassUnknown], more...)
		}
	}
	for _, name := range interference.ClassNames() {
		class, err := interference.ClassByName(name)
		if err != nil {
			return nil, fmt.Errorf("fit curves: %w", err)
		}
		if len(points[class]) == 0 {
			return nil, fmt.Errorf("fit curves: class %s: no workload of it was measured on several parts of the SMs", class)
		}
		out.Results = append(out.Results, fittedClass(class, points[class]))
	}
	out.Bandwidth = bandwidthRules(points[interference.ClassUnknown])
	return out, nil
}

// measuredPoints returns the points of a file by class.
func measuredPoints(t *measurements.File) (map[interference.Class][]point, error) {
	solos := map[string]*solo{}
	for i := range t.Solos {
		s := &t.Solos[i]
		class, ok := classOf(t.Format, s)
		if !ok {
			return nil, fmt.Errorf("%v: it has no speeds by part of the SMs", t)
		}
		one := solos[s.Workload]
		if one == nil {
			one = &solo{class: class, rated: t.Format == measurements.ParvaProfile, by: map[vgpu.MilliGPU]*measurements.Solo{}}
			solos[s.Workload] = one
		}
		one.by[s.Share] = s
		one.whole = max(one.whole, s.Share)
	}
	points := map[interference.Class][]point{}
	for _, name := range slices.Sorted(maps.Keys(solos)) {
		one := solos[name]
		if one.whole < leastWhole {
			continue
		}
		class := one.class
		if one.light(solos) {
			class = interference.ClassLight
		}
		points[class] = append(points[class], one.points(t.Format == measurements.IgniterCurves)...)
	}
	return points, nil
}

// classOf returns the class of a measurement as if it filled the device, false for a format without parts of the SMs.
func classOf(format csvtable.Format, s *measurements.Solo) (interference.Class, bool) {
	switch format {
	case measurements.IgniterCurves, measurements.ParvaProfile:
		return interference.ClassInference, true
	case measurements.MISOSlices:
		return interference.ClassTraining, true
	case measurements.MuxServeLatencies:
		if strings.HasSuffix(s.Workload, "prefill") {
			return interference.ClassPrefill, true
		}
		return interference.ClassDecode, true
	}
	return 0, false
}

// light reports whether the workload does not fill the device: by its SM if it is training, else by how long twice the
// batch takes.
func (o *solo) light(all map[string]*solo) bool {
	s := o.by[o.whole]
	if o.class == interference.ClassTraining {
		return s.SM < busyTraining
	}
	twice := strings.Replace(s.Workload, fmt.Sprintf("batch %d", s.Batch), fmt.Sprintf("batch %d", 2*s.Batch), 1)
	other := all[twice]
	if other == nil || other.by[o.whole] == nil {
		return false
	}
	return other.step(o.whole) < doubled*o.step(o.whole)
}

// step is how long one took, in seconds. ParvaGPU's latencies have three decimals only, so there it is from the rate.
func (o *solo) step(part vgpu.MilliGPU) float64 {
	s := o.by[part]
	if o.rated {
		return float64(s.Batch) / s.Rate
	}
	return s.Latency.Seconds()
}

// points returns the workload's measurements on less than the largest part, by part. counted says that each part has a
// measurement of the bandwidth.
func (o *solo) points(counted bool) []point {
	whole := o.by[o.whole]
	model, _, _ := strings.Cut(whole.Workload, " ")
	all := make([]point, 0, len(o.by)-1)
	for _, part := range slices.Sorted(maps.Keys(o.by)) {
		if part == o.whole {
			continue
		}
		s := o.by[part]
		p := point{
			family: whole.Family, model: model, part: part, whole: o.whole,
			speed: min(1, o.step(o.whole)/o.step(part)), bandwidth: math.NaN(),
		}
		if counted && whole.Bandwidth > 0 {
			p.bandwidth = s.Bandwidth / whole.Bandwidth
		}
		all = append(all, p)
	}
	return all
}

// predicted is the speed on the part as a part of that on the whole.
func (p *point) predicted(c interference.Curve) float64 { return c.Speed(p.part) / c.Speed(p.whole) }

// errorOf returns the mean absolute error and the mean squared error of a curve.
func errorOf(points []point, c interference.Curve) (absolute, square float64) {
	for i := range points {
		e := points[i].predicted(c) - points[i].speed
		absolute += math.Abs(e) / float64(len(points))
		square += e * e / float64(len(points))
	}
	return absolute, square
}

// best returns the curve with the least mean absolute error, of those whose fixed part is a whole number of hundredths.
// It returns the lower one of two that differ by rounding only. Unknown work has the curve in proportion to the SMs,
// whatever the measurements: a promise must hold for the worst of it.
func best(class interference.Class, points []point) interference.Curve {
	var c interference.Curve
	if class == interference.ClassUnknown || len(points) == 0 {
		return c
	}
	least := math.Inf(1)
	for hundredths := range 101 {
		candidate := interference.Curve{Fixed: float64(hundredths) / 100}
		const rounding = 1e-9
		if e, _ := errorOf(points, candidate); e < least-rounding {
			c, least = candidate, e
		}
	}
	return c
}

// fittedClass fits a class, and tests it on every family of models outside of the fit; where all are of one family, on
// every model.
func fittedClass(class interference.Class, points []point) results.CurveResult {
	key := func(p point) string { return p.family }
	if !slices.ContainsFunc(points, func(p point) bool { return p.family != points[0].family }) {
		key = func(p point) string { return p.model }
	}
	groups := map[string][]point{}
	for _, p := range points {
		groups[key(p)] = append(groups[key(p)], p)
	}
	held, squares := 0.0, 0.0
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		others := slices.DeleteFunc(slices.Clone(points), func(p point) bool { return key(p) == name })
		absolute, square := errorOf(groups[name], best(class, others))
		weight := float64(len(groups[name])) / float64(len(points))
		held += weight * absolute
		squares += weight * square
	}
	c := best(class, points)
	mae, _ := errorOf(points, c)
	proportional, _ := errorOf(points, interference.Curve{Fixed: 0})
	unaffected, _ := errorOf(points, interference.Curve{Fixed: 1})
	return results.CurveResult{
		Class: class.String(), Points: len(points), Families: len(groups),
		Fixed: c.Fixed, Error: math.Round(100*math.Sqrt(squares)) / 100,
		MAE: report.Round(mae), HeldOut: report.Round(held), Proportional: report.Round(proportional),
		Unaffected: report.Round(unaffected), Below: report.Round(below(points)),
	}
}

// below is the part of the points that are slower than in proportion to the SMs by more than measuring twice may differ.
func below(points []point) float64 {
	const noise = 0.05
	n := 0
	for i := range points {
		p := &points[i]
		if p.speed < (1-noise)*float64(p.part)/float64(p.whole) {
			n++
		}
	}
	return float64(n) / float64(len(points))
}

// bandwidthRules tests what the bandwidth on a part of the SMs could follow. Profile.Under has the square root.
func bandwidthRules(points []point) []results.BandwidthResult {
	var out []results.BandwidthResult
	for _, rule := range []struct {
		name string
		part func(*point) float64
	}{
		{"unaffected", func(*point) float64 { return 1 }},
		{"proportional", func(p *point) float64 { return float64(p.part) / float64(p.whole) }},
		{"speed", func(p *point) float64 { return p.speed }},
		{"square root of speed", func(p *point) float64 { return math.Sqrt(p.speed) }},
	} {
		r := results.BandwidthResult{Rule: rule.name}
		for i := range points {
			if p := &points[i]; !math.IsNaN(p.bandwidth) {
				e := rule.part(p) - p.bandwidth
				r.Points, r.MAE, r.Bias = r.Points+1, r.MAE+math.Abs(e), r.Bias+e
			}
		}
		if r.Points > 0 {
			r.MAE, r.Bias = report.Round(r.MAE/float64(r.Points)), report.Round(r.Bias/float64(r.Points))
			out = append(out, r)
		}
	}
	return out
}
