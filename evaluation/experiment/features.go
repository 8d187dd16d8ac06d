package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// FeatureFit fits the predictor of the use of training from features of the network, and measures its errors on
// networks outside of the fit.
type FeatureFit struct {
	// Networks as measured: at least MinNetworks.
	Networks []measurements.Network
	// Profiles have the SM and the Bandwidth of training, for the one from the other. Without them that stays as shipped.
	Profiles []measurements.Solo
	// Seeds draw the held-out fifths; at least one.
	Seeds []int64
}

// MinNetworks is the least number of networks to fit: five for each coefficient, and then a fifth more to hold out.
const MinNetworks = 5 * interference.UseTerms * 5 / 4

// folds is the number of parts of the networks, one of which is held out by each test.
const folds = 5

// target is a predicted quantity.
type target struct {
	name  string
	value func(*measurements.Network) float64
	terms func(*interference.Features) []float64
	// least and most are what the thing can be.
	least, most float64
}

var targets = []target{
	{
		"sm", func(n *measurements.Network) float64 { return n.Busy },
		func(f *interference.Features) []float64 { t := f.UseTerms(); return t[:] }, 0, 1,
	},
	{
		"memory_mib", func(n *measurements.Network) float64 { return float64(n.Memory) / float64(vgpu.MiB) },
		func(f *interference.Features) []float64 { t := f.MemoryTerms(); return t[:] }, 0, math.Inf(1),
	},
}

// featureModels are the ways to predict, with what each is linear in.
var featureModels = []struct {
	name string
	rows func(*target, *measurements.Network) []float64
}{
	{"mean", func(*target, *measurements.Network) []float64 { return []float64{1} }},
	{"least-squares", func(_ *target, n *measurements.Network) []float64 { return rawFeatures(n) }},
	{"features", func(t *target, n *measurements.Network) []float64 { f := featuresOf(n); return t.terms(&f) }},
}

// rawFeatures are the columns of the file as they stand there.
func rawFeatures(n *measurements.Network) []float64 {
	return []float64{
		1, float64(n.Depth), float64(n.Activations), float64(n.Parameters), float64(n.Batch), float64(n.Norms), float64(n.Dropouts),
	}
}

func featuresOf(n *measurements.Network) interference.Features {
	return interference.Features{
		Parameters: float64(n.Parameters), Activations: float64(n.Activations), Batch: float64(n.Batch), Depth: float64(n.Depth),
	}
}

// Run fits and tests.
func (f *FeatureFit) Run() (*results.FeatureFit, error) {
	if len(f.Networks) < MinNetworks || len(f.Seeds) == 0 {
		const want = "fit features: %d networks, %d seeds: want at least %d networks and one seed"
		return nil, fmt.Errorf(want, len(f.Networks), len(f.Seeds), MinNetworks)
	}
	for i := range f.Networks {
		x := featuresOf(&f.Networks[i])
		if err := x.Validate(); err != nil {
			return nil, fmt.Errorf("fit features: line %d: %w", f.Networks[i].Line, err)
		}
	}
	out := &results.FeatureFit{Networks: len(f.Networks)}
	for t := range targets {
		for _, held := range []struct {
			name  string
			parts [][]int
		}{{"fifth", f.fifths()}, {"five-fold", f.folds(f.Seeds[0])}} {
			for m := range featureModels {
				out.Results = append(out.Results, f.tested(&targets[t], m, held.name, held.parts))
			}
		}
	}
	if err := f.fit(out); err != nil {
		return nil, fmt.Errorf("fit features: %w", err)
	}
	return out, nil
}

// folds returns the numbers of the networks in five random parts of equal size, but for rounding.
func (f *FeatureFit) folds(seed int64) [][]int {
	n := len(f.Networks)
	order := rand.New(rand.NewPCG(uint64(seed), 0)).Perm(n)
	parts := make([][]int, folds)
	for k := range parts {
		parts[k] = order[k*n/folds : (k+1)*n/folds]
	}
	return parts
}

// fifths returns a random fifth for each seed.
func (f *FeatureFit) fifths() [][]int {
	all := make([][]int, 0, len(f.Seeds))
	for _, seed := range f.Seeds {
		all = append(all, f.folds(seed)[0])
	}
	return all
}

// tested returns the errors of a model on parts outside of its fit, a fit for each.
func (f *FeatureFit) tested(t *target, model int, split string, parts [][]int) results.FeatureResult {
	r := results.FeatureResult{Target: t.name, Split: split, Model: featureModels[model].name}
	mae, rmse := make([]float64, 0, len(parts)), make([]float64, 0, len(parts))
	for _, part := range parts {
		errors := f.errors(t, model, part)
		absolute, square := 0.0, 0.0
		for _, e := range errors {
			absolute += math.Abs(e) / float64(len(errors))
			square += e * e / float64(len(errors))
		}
		mae, rmse = append(mae, absolute), append(rmse, math.Sqrt(square))
		r.Networks += len(errors)
	}
	r.MAE, r.RMSE = results.SpreadOf(mae), results.SpreadOf(rmse)
	return r
}

// errors returns predicted − measured of the networks of a part, by a fit on all others.
func (f *FeatureFit) errors(t *target, model int, part []int) []float64 {
	held := make([]bool, len(f.Networks))
	for _, i := range part {
		held[i] = true
	}
	w := f.coefficients(t, model, func(i int) bool { return !held[i] })
	out := make([]float64, len(part))
	for k, i := range part {
		n := &f.Networks[i]
		for c, x := range featureModels[model].rows(t, n) {
			out[k] += w[c] * x
		}
		out[k] = min(max(out[k], t.least), t.most) - t.value(n)
	}
	return out
}

// coefficients fits a model on the networks for which want is true.
func (f *FeatureFit) coefficients(t *target, model int, want func(int) bool) []float64 {
	var rows [][]float64
	var y []float64
	for i := range f.Networks {
		if want(i) {
			rows = append(rows, featureModels[model].rows(t, &f.Networks[i]))
			y = append(y, t.value(&f.Networks[i]))
		}
	}
	return leastSquares(rows, y)
}

// fit fits the shipped predictor on all networks. Its errors are those on the held-out folds.
func (f *FeatureFit) fit(out *results.FeatureFit) error {
	ours := len(featureModels) - 1
	p := &out.Predictor
	all := func(int) bool { return true }
	copy(p.SM[:], f.coefficients(&targets[0], ours, all))
	copy(p.Memory[:], f.coefficients(&targets[1], ours, all))
	for i := range p.Memory {
		p.Memory[i] *= float64(vgpu.MiB)
	}
	parts := f.folds(f.Seeds[0])
	p.SMError = f.rms(&targets[0], parts)
	p.MemoryError = f.rms(&targets[1], parts) * float64(vgpu.MiB)
	p.Range = f.span()
	p.Widening = f.widening(p.SMError)
	shipped := interference.FittedPredictor()
	p.Bandwidth, p.BandwidthError = shipped.Bandwidth, shipped.BandwidthError
	if len(f.Profiles) > 0 {
		var err error
		if p.Bandwidth, p.BandwidthError, out.Profiles, err = bandwidth(f.Profiles); err != nil {
			return err
		}
	}
	if err := significant(p); err != nil {
		return err
	}
	out.Coefficients = results.CoefficientsOf(p)
	return nil
}

// rms is the root of the mean squared error on held-out parts.
func (f *FeatureFit) rms(t *target, parts [][]int) float64 {
	sum, n := 0.0, 0
	for _, part := range parts {
		for _, e := range f.errors(t, len(featureModels)-1, part) {
			sum += e * e
			n++
		}
	}
	return math.Sqrt(sum / float64(n))
}

// digits is the number of digits of coefficients, so that refits on other processors give the same.
const digits = 6

// significant rounds all of a predictor. Not a number is an error: it comes from measurements that no device gives.
func significant(p *interference.Predictor) error {
	all := []*float64{&p.Bandwidth, &p.SMError, &p.BandwidthError, &p.MemoryError, &p.Widening}
	for i := range p.SM {
		all = append(all, &p.SM[i])
	}
	for i := range p.Memory {
		all = append(all, &p.Memory[i])
	}
	for _, v := range all {
		if math.IsNaN(*v) || math.IsInf(*v, 0) {
			return fmt.Errorf("a coefficient is %v", *v)
		}
		*v, _ = strconv.ParseFloat(strconv.FormatFloat(*v, 'g', digits, 64), 64) // FormatFloat's output is always legal
	}
	return nil
}

// span is the least and the most of each feature.
func (f *FeatureFit) span() interference.Range {
	of := func(get func(*measurements.Network) int64) (least, most float64) {
		all := make([]int64, len(f.Networks))
		for i := range all {
			all[i] = get(&f.Networks[i])
		}
		return float64(slices.Min(all)), float64(slices.Max(all))
	}
	var r interference.Range
	r.Least.Parameters, r.Most.Parameters = of(func(n *measurements.Network) int64 { return n.Parameters })
	r.Least.Activations, r.Most.Activations = of(func(n *measurements.Network) int64 { return n.Activations })
	r.Least.Batch, r.Most.Batch = of(func(n *measurements.Network) int64 { return n.Batch })
	r.Least.Depth, r.Most.Depth = of(func(n *measurements.Network) int64 { return n.Depth })
	return r
}
