package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// reach is how far below a percentage the last arrivals may stay and still stand for it: a workload that ends at 130 %
// of the capacity is just below. Larger would give the value of an earlier moment.
const reach = 0.5

// ArrivedPercent returns what has arrived up to the sample, in percent of the capacity; 0 where there are no devices.
func (h *History) ArrivedPercent(s *Sample) float64 { return h.percent(s.Arrived) }

// AllocatedPercent returns the allocation at the sample, in percent of the capacity.
func (h *History) AllocatedPercent(s *Sample) float64 { return h.percent(s.Allocated) }

// FragmentationPercent returns the free compute that the usual requests cannot use, in percent of the capacity.
func (h *History) FragmentationPercent(s *Sample) float64 { return h.percent(s.Fragmentation) }

func (h *History) percent(m vgpu.MilliGPU) float64 {
	if h.Capacity == 0 {
		return 0
	}
	return 100 * float64(m) / float64(h.Capacity)
}

// IndexAt returns the place of the first sample at which requests for so many percent of the capacity have arrived. It
// is that of the last one if half a percent is missing at most; false where fewer arrive.
func (h *History) IndexAt(percentArrived float64) (int, bool) {
	i, _ := slices.BinarySearchFunc(h.Samples, percentArrived, func(s Sample, p float64) int {
		return cmp.Compare(h.percent(s.Arrived), p)
	})
	if last := len(h.Samples) - 1; i > last {
		return last, last >= 0 && h.percent(h.Samples[last].Arrived) >= percentArrived-reach
	}
	return i, true
}

// At returns the sample of IndexAt.
func (h *History) At(percentArrived float64) (Sample, bool) {
	if i, ok := h.IndexAt(percentArrived); ok {
		return h.Samples[i], true
	}
	return Sample{}, false
}

// AllocatedAt returns the allocation when requests for so many percent of the capacity have arrived, in percent of the
// capacity; see At. Weng et al. use this measure in USENIX ATC 2023, figure 9.
func (h *History) AllocatedAt(percentArrived float64) (percent float64, ok bool) {
	s, ok := h.At(percentArrived)
	return h.percent(s.Allocated), ok
}

// FragmentationAt is AllocatedAt for the free compute that the usual requests cannot use.
func (h *History) FragmentationAt(percentArrived float64) (percent float64, ok bool) {
	s, ok := h.At(percentArrived)
	return h.percent(s.Fragmentation), ok
}

// Span returns the times of the first and the last sample; zeros where nothing happens.
func (h *History) Span() (from, to time.Duration) {
	if len(h.Samples) == 0 {
		return 0, 0
	}
	return h.Samples[0].At, h.Samples[len(h.Samples)-1].At
}

// Preempts reports whether the run may have victims.
func (h *History) Preempts() bool { return h.setup.Preemption.Policy != PreemptNobody }

// Levels returns the keys of the levels of the cluster, sorted: those of GangOutcome.Spread.
func (h *History) Levels() []string {
	keys := make([]string, 0, len(h.levels))
	for i := range h.levels {
		keys = append(keys, h.levels[i].Key)
	}
	return keys
}

// Count returns how many jobs are in a state at the end.
func (h *History) Count(s State) int {
	count := 0
	for i := range h.Outcomes {
		if h.Outcomes[i].State == s {
			count++
		}
	}
	return count
}

// JCTs returns the completion times of the finished jobs, in the order of the jobs.
func (h *History) JCTs() []time.Duration {
	var all []time.Duration
	for i := range h.Outcomes {
		if h.Outcomes[i].State == Finished {
			all = append(all, h.Outcomes[i].JCT())
		}
	}
	return all
}

// MeanWait returns how long the placed pods waited on average, rounded down; false without placed pods.
func (h *History) MeanWait() (time.Duration, bool) {
	var all []time.Duration
	for i := range h.Outcomes {
		if h.Outcomes[i].State.Placed() {
			all = append(all, h.Outcomes[i].Wait())
		}
	}
	return Mean(all)
}

// Mean returns the average, rounded down; false for none. Sums beyond the range of a Duration do no harm.
func Mean(all []time.Duration) (time.Duration, bool) {
	if len(all) == 0 {
		return 0, false
	}
	n := time.Duration(len(all))
	whole, rest := time.Duration(0), time.Duration(0)
	for _, d := range all {
		whole, rest = whole+d/n, rest+d%n
	}
	return whole + rest/n, true
}

// Quantile returns the smallest value that at least q of the values do not exceed, q from 0 to 1; false for none.
// Example: 0.5 of 1, 2, 3, 4 is 2.
func Quantile(all []time.Duration, q float64) (time.Duration, bool) {
	if len(all) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(all))
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1], true
}

// Makespan returns the time from the first arrival to the last end; false where no pod finished.
func (h *History) Makespan() (time.Duration, bool) {
	from, to, some := time.Duration(0), time.Duration(0), false
	for i := range h.Outcomes {
		o := &h.Outcomes[i]
		if i == 0 || o.Arrived < from {
			from = o.Arrived
		}
		if o.State == Finished {
			to, some = max(to, o.Ended), true
		}
	}
	return to - from, some
}

// Utilisation returns the allocated part of the capacity between two times, on average: 0 to 1; false for an empty
// window or a cluster without devices. Before the first sample the cluster is in its initial state, after the last one
// it stays as it is.
func (h *History) Utilisation(from, to time.Duration) (float64, bool) {
	return h.over(from, to, h.initial, func(s *Sample) vgpu.MilliGPU { return s.Allocated })
}

// Fragmented returns the part of the capacity that is idle and of no use to the usual requests, like Utilisation for
// the allocation. Before the first sample it is none, since there was no request.
func (h *History) Fragmented(from, to time.Duration) (float64, bool) {
	return h.over(from, to, 0, func(s *Sample) vgpu.MilliGPU { return s.Fragmentation })
}

// over returns the mean of a figure of the samples between two times, as a part of the capacity. The figure is initial
// before the first sample.
func (h *History) over(from, to time.Duration, initial vgpu.MilliGPU, of func(*Sample) vgpu.MilliGPU) (float64, bool) {
	if from >= to || h.Capacity == 0 || len(h.Samples) == 0 {
		return 0, false
	}
	first, _ := slices.BinarySearchFunc(h.Samples, from, func(s Sample, t time.Duration) int {
		return cmp.Compare(s.At, t)
	})
	level := initial
	if first > 0 {
		level = of(&h.Samples[first-1])
	}
	sum, at := 0.0, from
	for i := first; i < len(h.Samples) && h.Samples[i].At < to; i++ {
		s := &h.Samples[i]
		sum += float64(level) * float64(s.At-at)
		at, level = s.At, of(s)
	}
	sum += float64(level) * float64(to-at)
	return sum / (float64(h.Capacity) * float64(to-from)), true
}
