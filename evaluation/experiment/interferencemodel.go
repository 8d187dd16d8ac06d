package experiment

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// guesser is a model on trial.
type guesser interface {
	// predict returns the speed of each tenant.
	predict(*Pair) [2]float64
	// observe shows the model what came of pairs.
	observe([]*Pair) error
}

// fitting makes a model of a name for a set of pairs, with a fit to the seen ones, or with its shipped coefficients
// where seen is nil.
type fitting func(name string, set *PairSet, seen []*Pair) (guesser, error)

// setGPU is the number of the GPU model of a set; a set has only one.
const setGPU interference.GPU = 1

// settleRounds makes the traits of all workloads agree after several co-runs at once.
const settleRounds = 50

// booked is a model of package interference with what it learned of the workloads of a set.
type booked struct {
	model   interference.Model
	book    *interference.Book
	numbers map[string]interference.Workload
	// exact has the observed pairs, for the model table; nil for the others.
	exact *interference.Table
	out   []interference.Prediction
}

// fitted makes the models of package interference.
func fitted(name string, set *PairSet, seen []*Pair) (guesser, error) {
	m, err := interference.ByName(name)
	if err != nil {
		return nil, err
	}
	b := &booked{numbers: set.numbers()}
	if err := b.open(m, set); err != nil || seen == nil {
		return b, err
	}
	if m, err = interference.Fit(name, b.samples(seen)); err != nil {
		return nil, err
	}
	return b, b.open(m, set)
}

// open begins a book that goes by the model and knows the profiles of the set. If a workload has measurements under
// several caps, the book has the one under the largest.
func (b *booked) open(m interference.Model, set *PairSet) error {
	b.book = interference.NewBook(m, len(b.numbers))
	b.model, b.exact = m, nil
	if m.Name == "table" {
		b.exact = &interference.Table{}
		b.model = m.WithTable(b.exact)
	}
	widest := map[string]*measurements.Solo{}
	for i := range set.Pairs {
		for _, side := range set.Pairs[i].Sides {
			if known := widest[side.Workload]; side.Solo != nil && (known == nil || known.Share < side.Solo.Share) {
				widest[side.Workload] = side.Solo
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(widest)) {
		profile := profileOf(widest[name], soloClass(set.Layout, widest[name]))
		if err := b.book.Declare(b.numbers[name], setGPU, profile); err != nil {
			return fmt.Errorf("workload %q: %w", name, err)
		}
	}
	return nil
}

// numbers gives each workload of the set its number, from 1 in the order of their names.
func (s *PairSet) numbers() map[string]interference.Workload {
	numbers := map[string]interference.Workload{}
	for i := range s.Pairs {
		for _, side := range s.Pairs[i].Sides {
			numbers[side.Workload] = 0
		}
	}
	for i, name := range slices.Sorted(maps.Keys(numbers)) {
		numbers[name] = interference.Workload(i + 1)
	}
	return numbers
}

// profileOf returns the profile of a workload alone on a whole device. A measurement under a cap goes back to the whole
// device by the curve of its class. Without a measurement of SM, the SMs that the workload may use count.
func profileOf(s *measurements.Solo, class interference.Class) interference.Profile {
	p := interference.Unknown()
	p.Guessed = false
	if !math.IsNaN(s.SM) {
		p.SM = s.SM
	}
	speed := class.Speed(s.Share)
	if !math.IsNaN(s.Bandwidth) {
		p.Bandwidth = min(1, s.Bandwidth/math.Sqrt(speed))
	}
	p.Memory, p.Step, p.Class = s.Memory, soloStep(s)*speed, class
	return p
}

// soloStep returns the seconds of a step, 0 without a measurement.
func soloStep(s *measurements.Solo) float64 {
	switch {
	case s.Latency > 0:
		return s.Latency.Seconds()
	case s.Rate > 0:
		return float64(s.Batch) / s.Rate
	}
	return 0
}

// fillsFrom is from which use of the SMs on training fills a device (interference.ClassLight).
const fillsFrom = .7

// soloClass returns the class of a workload of a layout.
func soloClass(layout csvtable.Format, s *measurements.Solo) interference.Class {
	switch {
	case layout == measurements.IgniterPairs:
		return interference.ClassInference
	case s.SM < fillsFrom:
		return interference.ClassLight
	}
	return interference.ClassTraining
}

// tenant returns one side of a pair as the model sees it, with its learned traits. A measurement under the same cap
// counts directly, without the class.
func (b *booked) tenant(s *Side) interference.Tenant {
	t := b.book.Tenant(b.numbers[s.Workload], setGPU, s.Share)
	if s.Solo == nil || s.Solo.Share == vgpu.WholeGPU {
		return t
	}
	if !math.IsNaN(s.Solo.Bandwidth) {
		t.Bandwidth = s.Solo.Bandwidth
	}
	if step := soloStep(s.Solo); step > 0 {
		t.Brisk = interference.Brisk(step)
	}
	return t
}

func (b *booked) tenants(c *Pair) []interference.Tenant {
	return []interference.Tenant{b.tenant(&c.Sides[0]), b.tenant(&c.Sides[1])}
}

func (b *booked) samples(pairs []*Pair) []interference.Sample {
	samples := make([]interference.Sample, 0, 2*len(pairs))
	for _, c := range pairs {
		on := b.tenants(c)
		for i := range on {
			samples = append(samples, interference.Sample{On: on, Of: i, Speed: c.Sides[i].Speed})
		}
	}
	return samples
}

func (b *booked) predict(c *Pair) [2]float64 {
	b.out = b.model.Predict(b.tenants(c), b.out)
	return [2]float64{b.out[0].Speed, b.out[1].Speed}
}

// observe adds both sides of each pair to the book, and the pair to the table.
func (b *booked) observe(pairs []*Pair) error {
	if !b.model.Learns() {
		return nil
	}
	for _, c := range pairs {
		for i := range c.Sides {
			of, beside := &c.Sides[i], &c.Sides[1-i]
			o := interference.Observation{GPU: setGPU, Of: b.runner(of), Beside: []interference.Runner{b.runner(beside)}, Speed: of.Speed}
			if err := b.book.Observe(o); err != nil {
				return fmt.Errorf("%s beside %s: %w", of.Workload, beside.Workload, err)
			}
			if b.exact != nil {
				b.exact.Set(o.Of.Workload, o.Beside[0].Workload, o.Speed)
			}
		}
	}
	b.book.Settle(settleRounds)
	return nil
}

func (b *booked) runner(s *Side) interference.Runner {
	return interference.Runner{Workload: b.numbers[s.Workload], Cap: s.Share}
}

// ParsePredictingModels reads a list of models separated by commas, each once; All is every one.
func ParsePredictingModels(list string) ([]string, error) {
	if list == All {
		return interference.Models(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if !slices.Contains(interference.Models(), name) {
			return nil, fmt.Errorf("unknown model %q, known are %s, or %s for every one", name, strings.Join(interference.Models(), ", "), All)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%s appears twice", name)
		}
	}
	return names, nil
}
