package elastic

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// leastGain is by which part faster a job must be after a change that has repaid its cost, and by which part slower a job
	// that shrinks counts than it is then, so that the jobs that get its devices must gain more than it loses. A smaller value lets
	// jobs change for less.
	leastGain = .1
	// lindy is how much longer, as a part of the time that it has run, a job with an unknown end is expected to run. A
	// job of five minutes must repay a change sooner than a job of five hours. A larger value lets young jobs change more
	// often.
	lindy = .5
	// youngAge is the time in seconds since its arrival after which the progress of a job counts half. A smaller value favours
	// jobs that came later, most of which end soon.
	youngAge = 7200
)

// goodput divides the capacity for the largest sum, over the jobs, of
//
//	weight × log(rate ÷ rate of the least size × (1 − cost ÷ horizon, if the size changes) ÷ (1 + leastGain, if it falls))
//
// The logarithm makes the first doubling of a job's speed worth as much as the next one, so that GPUs go to the jobs that
// they speed up by the largest part (proportional fairness, Kelly 1997). The weight of a job falls with its age, by youngAge.
// The horizon is Config.Horizon, the time that remains of the job or lindy × the time that it has run, or the time since its last
// change, whichever is least: GPUs that come and go stay for about as long as the last ones did.
//
// A running job never grows unless that repays its cost within the horizon with a gain of leastGain. The present sizes are one
// of the divisions, without a cost, so that a job grows by the shrinking of another one only where both together gain more than
// the changes cost. Jobs that wait come first: they start in the order of the queue, where their least sizes fit, and running
// jobs shrink for them.
//
// Jobs of one age weigh the same for ever, whatever sizes they have had, and an older job never weighs more than a younger one. So no
// plan undoes an earlier one because of it: two equal jobs do not take devices from each other in turns, as they would if the job
// that has had less GPU time weighed more (least attained service, Tiresias, Gu et al., NSDI 2019).
//
// Capacity that is lent is divided afterwards: first what is lent for the longest, among jobs that may have it for as long, then the rest of
// it. A job that runs keeps the size that it has, or grows if that repays before the devices go back.
//
// The constants were chosen on the Saturn workload of Sia; docs/experiments/elastic.md has the figures on others.
func goodput(s *search, p *pool) []int {
	z := p.atLeast(nil)
	lists := make([][]option, len(p.entries))
	for i, e := range p.entries {
		e.lentFor = 0
		if z.want[i] == 0 {
			lists[i] = []option{{}}
			continue
		}
		lists[i] = s.options(e)
	}
	for i, at := range bestOptions(lists, p.capacity, &s.steps) {
		z.want[i] = lists[i][at].size
	}
	capacity := p.capacity
	for _, l := range slices.Backward(p.lent) {
		capacity += l.amount
		s.divideLent(p, z.want, l.lasts, capacity)
	}
	return z.want
}

// divideLent lets the running jobs of a pool grow beyond the sizes that they should have, into capacity that is lent for a time.
func (s *search) divideLent(p *pool, want []int, lasts float64, capacity vgpu.MilliGPU) {
	lists := make([][]option, len(p.entries))
	for i, e := range p.entries {
		lists[i] = []option{{size: want[i], takes: e.takes(want[i])}}
		if e.waits() {
			continue
		}
		for _, o := range s.options(e) { // worth what it was worth when it was chosen
			if o.size == want[i] {
				lists[i][0] = o
			}
		}
		before := e.lentFor
		e.lentFor = lasts
		for _, o := range s.options(e) {
			if o.size > want[i] {
				lists[i] = append(lists[i], o)
			}
		}
		e.lentFor = before
	}
	for i, at := range bestOptions(lists, capacity, &s.steps) {
		if size := lists[i][at].size; size > want[i] {
			want[i], p.entries[i].lentFor = size, lasts
		}
	}
}

// options lists the sizes that a job may have now, the present one first.
func (s *search) options(e *entry) []option {
	list := make([]option, 0, len(e.Sizes)+1)
	weight := s.weightOf(e)
	if !e.waits() {
		list = append(list, option{e.size, e.takes(e.size), weight * math.Log(e.current/e.base)})
	}
	for at, n := range e.Sizes {
		if n == e.size || n > max(e.limit, e.least()) || !e.waits() && n > e.size && !s.repays(e, e.rates[at]) {
			continue
		}
		kept := 1.0
		if !e.waits() {
			kept = s.kept(e)
		}
		if n < e.size {
			kept /= 1 + leastGain
		}
		list = append(list, option{n, e.takes(n), weight * math.Log(e.rates[at]/e.base*kept)})
	}
	return list
}

// leastKept bounds the part of the horizon in which a job works, so that its logarithm is finite.
const leastKept = 1e-3

// kept returns the part of the horizon in which a job works after a change of its size.
func (s *search) kept(e *entry) float64 {
	if e.Cost == 0 {
		return 1
	}
	horizon := min(s.cfg.Horizon, lindy*float64(s.now-e.Started))
	if e.Remaining > 0 {
		horizon = min(s.cfg.Horizon, e.Remaining*min(1, e.base/e.current))
	}
	if n := len(e.Moved); n > 0 {
		horizon = min(horizon, float64(s.now-e.Moved[n-1]))
	}
	if e.lentFor > 0 {
		horizon = min(horizon, e.lentFor)
	}
	if horizon <= e.Cost {
		return leastKept
	}
	return max(leastKept, 1-e.Cost/horizon)
}

// repays reports whether a running job with another rate makes at least leastGain more progress within the horizon than
// with the rate that it has.
func (s *search) repays(e *entry, rate float64) bool {
	return rate*s.kept(e) >= e.current*(1+leastGain)
}

// weightOf returns how much the progress of a job counts: 1 for a new job, less with its age.
func (s *search) weightOf(e *entry) float64 {
	return youngAge / (youngAge + max(0, float64(s.now-e.Arrived)))
}
