package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/mig"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// wholeDevice is the MIG instance that has all compute slices of a device.
const wholeDevice mig.Slices = 7

// way is how a whole device serves a model.
type way struct {
	model            string
	batch, processes int
}

// Batches compares what whole devices serve over the batch size: one process alone, several at a time, and several by turns.
//
// One process and several at a time are as measured. Several by turns are a model: a batch takes as long as alone, and the others wait
// meanwhile. A device then completes as much as with one process, and a batch takes as many times as long as there are processes. A
// change from one process to the next is taken to cost nothing, which is too good.
func Batches(servings []measurements.Serving, processes []int) (*results.Batches, error) {
	measured := map[way]*measurements.Serving{}
	var alone []*measurements.Serving
	for i := range servings {
		s := &servings[i]
		if s.Slices != wholeDevice || s.Rate == 0 {
			continue
		}
		measured[way{s.Model, s.Batch, s.Processes}] = s
		if s.Processes == 1 {
			alone = append(alone, s)
		}
	}
	slices.SortFunc(alone, func(a, b *measurements.Serving) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Batch, b.Batch))
	})
	out := &results.Batches{Results: []results.BatchResult{}}
	for _, one := range alone {
		for _, n := range processes {
			if shared := measured[way{one.Model, one.Batch, n}]; shared != nil {
				out.Results = append(out.Results, batchResult(one, shared, measured[way{one.Model, n * one.Batch, 1}]))
			}
		}
	}
	if len(out.Results) == 0 {
		return nil, fmt.Errorf("compare batches: %w", errNoShared)
	}
	out.Means = batchMeans(out.Results)
	return out, nil
}

// errNoShared says that there is nothing to compare.
var errNoShared = errors.New("no model was measured on a whole GPU both with one process and with as many as wanted")

// batchResult compares one process, several, and one with a batch as large as theirs together, which may be nil.
func batchResult(one, shared, larger *measurements.Serving) results.BatchResult {
	r := results.BatchResult{
		Model: one.Model, Batch: one.Batch, Processes: shared.Processes, Exclusive: throughput(one), Shared: throughput(shared),
	}
	r.TimeSliced = results.Throughput{Rate: r.Exclusive.Rate, Millis: report.Round(r.Exclusive.Millis * float64(shared.Processes))}
	if larger != nil {
		t := throughput(larger)
		r.Larger = &t
	}
	return r
}

func throughput(s *measurements.Serving) results.Throughput {
	return results.Throughput{Rate: report.Round(s.Rate), Millis: report.Round(float64(s.Latency) / float64(time.Millisecond))}
}

// batchMeans returns the geometric means of all models by batch and number of processes.
func batchMeans(all []results.BatchResult) (means []results.BatchMean) {
	type group struct{ batch, processes int }
	sums, latencies, larger := map[group][]float64{}, map[group][]float64{}, map[group][]float64{}
	var order []group
	for i := range all {
		r := &all[i]
		g := group{r.Batch, r.Processes}
		if sums[g] == nil {
			order = append(order, g)
		}
		sums[g] = append(sums[g], r.Shared.Rate/r.TimeSliced.Rate)
		latencies[g] = append(latencies[g], r.Shared.Millis/r.TimeSliced.Millis)
		if r.Larger != nil {
			larger[g] = append(larger[g], r.Shared.Rate/r.Larger.Rate)
		}
	}
	slices.SortFunc(order, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.processes, b.processes), cmp.Compare(a.batch, b.batch))
	})
	for _, g := range order {
		m := results.BatchMean{
			Batch: g.batch, Processes: g.processes, Models: len(sums[g]), Rate: geometric(sums[g]), Least: report.Round(slices.Min(sums[g])),
			Most: report.Round(slices.Max(sums[g])), Latency: geometric(latencies[g]),
		}
		if of := larger[g]; of != nil {
			x := geometric(of)
			m.OfLarger = &x
		}
		means = append(means, m)
	}
	return means
}

// geometric returns the geometric mean of numbers above 0, of which there is at least one.
func geometric(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += math.Log(x)
	}
	return report.Round(math.Exp(sum / float64(len(all))))
}
