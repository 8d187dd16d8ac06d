package gangs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
)

// mostSamples bounds the samples of a worker between two exchanges, where the simulator of Pollux bounds them below the
// largest measured one.
var mostSamples = map[string]int64{"yolov3": 8}

// gangApp is an application that trains: how long a step takes where, and how many steps it takes.
type gangApp struct {
	name  string
	steps stepTable
	// epochs by batch size.
	epochs map[int64][]measurements.Epoch
	// batches that have epochs, in order: the first and the last bound what the batch of a job may be.
	batches []int64
}

// gangApps reads the measurements on one kind of node, and skips others.
func gangApps(measured []*measurements.File, kind string) (map[string]*gangApp, error) {
	steps := map[string][]measurements.Step{}
	epochs := map[string]map[int64][]measurements.Epoch{}
	for _, t := range measured {
		switch {
		case len(t.Steps) > 0:
			app, nodes := measurements.PlacementsOf(t.File)
			if app == "" {
				return nil, fmt.Errorf("%s: its name says no application and kind of node, as \"bert-aws.csv\" does", t.File)
			}
			if nodes == kind {
				steps[app] = append(steps[app], t.Steps...)
			}
		case len(t.Epochs) > 0:
			app, batch := measurements.EpochsOf(t.File)
			if app == "" {
				return nil, fmt.Errorf("%s: its name says no application and batch size, as \"bert-validation-48.csv\" does", t.File)
			}
			if epochs[app] == nil {
				epochs[app] = map[int64][]measurements.Epoch{}
			}
			epochs[app][batch] = t.Epochs
		default:
			return nil, fmt.Errorf("%v: it has neither step times nor epochs", t)
		}
	}
	apps := map[string]*gangApp{}
	for name := range steps {
		a := newGangApp(name, steps[name], epochs[name])
		if a.steps.most == 0 || len(a.batches) == 0 {
			return nil, fmt.Errorf("application %s on %s: no measured placements, or no epochs of any batch size", name, kind)
		}
		apps[name] = a
	}
	if len(apps) == 0 {
		return nil, fmt.Errorf("no step times on nodes of kind %q", kind)
	}
	return apps, nil
}

func newGangApp(name string, steps []measurements.Step, epochs map[int64][]measurements.Epoch) *gangApp {
	a := &gangApp{name: name, steps: newStepTable(steps), epochs: epochs, batches: slices.Sorted(maps.Keys(epochs))}
	if m, bounded := mostSamples[name]; bounded {
		a.steps.most = min(a.steps.most, m)
	}
	return a
}

// split returns the division of a batch: each of the workers computes so many samples at once, and exchanges gradients
// after extra more such rounds. A single worker with more than the least batch accumulates at least once, and the batch
// never exceeds the largest known one.
func (a *gangApp) split(batch int64, workers int) (samples, extra int64) {
	each := ceil(batch, int64(workers))
	extra = ceil(each, a.steps.most) - 1
	if workers == 1 && batch > a.batches[0] {
		extra = max(extra, 1)
	}
	samples = ceil(each, extra+1)
	return min(samples, a.batches[len(a.batches)-1]/(int64(workers)*(extra+1))), extra
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// legal returns an error for a batch without a measurement.
func (a *gangApp) legal(batch int64, workers int) error {
	least, largest := a.batches[0], a.batches[len(a.batches)-1]
	if batch < least || batch > largest || int64(workers) > largest {
		return fmt.Errorf("batch_size %d of %d workers, legal for %s is %d to %d", batch, workers, a.name, least, largest)
	}
	samples, extra := a.split(batch, workers)
	if total := samples * (extra + 1) * int64(workers); total < least {
		return fmt.Errorf("%d workers make a batch of %d, the least for %s is %d", workers, total, a.name, least)
	}
	return nil
}

// work returns how many steps a job takes until it has made the progress of all epochs, and so the same model, whatever
// its batch is. Larger batches advance by the gain of the gradient's noise in each epoch. The batch is legal.
func (a *gangApp) work(batch int64, workers int) float64 {
	samples, extra := a.split(batch, workers)
	total := samples * (extra + 1) * int64(workers)
	scale := float64(total) / float64(a.batches[0])
	low, high := a.nearest(total)
	count := math.MaxInt
	for _, list := range a.epochs {
		count = min(count, len(list))
	}
	steps, before := 0.0, 0.0
	for e := range count {
		after := math.Inf(1)
		for _, list := range a.epochs {
			after = min(after, list[e].Progress)
		}
		noise := between(&a.epochs[low][e], &a.epochs[high][e], float64(total-low), float64(high-low))
		steps += (after - before) / noise.Gain(scale)
		before = after
	}
	return steps
}

// nearest returns the batches with epochs next below and above one, itself twice if it has epochs.
func (a *gangApp) nearest(batch int64) (low, high int64) {
	i, found := slices.BinarySearchFunc(a.batches, batch, cmp.Compare[int64])
	if found {
		return batch, batch
	}
	return a.batches[i-1], a.batches[i]
}

// between mixes the noise of two epochs, a part of the way from the first to the second.
func between(a, b *measurements.Epoch, part, of float64) measurements.Epoch {
	if of == 0 {
		return *a
	}
	return measurements.Epoch{
		Square: a.Square + part/of*(b.Square-a.Square), Variance: a.Variance + part/of*(b.Variance-a.Variance),
	}
}

// stepTime returns the seconds of one step of a job with its workers on these nodes, in the order of their ranks.
func (a *gangApp) stepTime(batch int64, nodes []int) float64 {
	samples, extra := a.split(batch, len(nodes))
	t := a.steps.at(nodes, samples)
	return t.step + float64(extra)*(t.step-t.sync)
}
