package gangs

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/evaluation/results"
)

// Times of a spike, in seconds: jobs and fleets run for a while before it, and it lasts for a while.
const (
	beforeSpike = 900
	spikeLasts  = 600
	// mostRamp bounds how long the rate takes to reach its height; it is leastHeight to mostHeight times the rate before.
	mostRamp                = 60
	leastHeight, mostHeight = 2., 4.
	// metricsAge is how old measurements are when they are seen, in seconds.
	metricsAge = 15
)

// spikeResult is what came of a spike. Times are seconds since its begin.
type spikeResult struct {
	// broken says that the p99 of a minute was above the promise, for the first time at breaks.
	broken bool
	breaks float64
	// needed are the replicas that keep the promise at the height of the spike. back is when so many had devices, serving when so many served:
	// spikeLasts where that did not happen.
	needed int
	// asks is when so many were wanted.
	asks, back, serving float64
	preempted           int
}

// asked reports whether the fleet wanted the devices before the promise broke.
func (s *spikeResult) asked() bool { return !s.broken || s.asks <= s.breaks }

// inTime reports whether the fleet had its devices before the promise broke.
func (s *spikeResult) inTime() bool { return !s.broken || s.back <= s.breaks }

// spikedRows are the policies of which spikes are played: all that change sizes of fleets, with the best of the two orders of jobs.
func spikedRows() (rows []*lendingRow) {
	for i := range lendingRows {
		if name := lendingRows[i].name; name == "HPA, others pass" || lendingRows[i].shared {
			rows = append(rows, &lendingRows[i])
		}
	}
	return rows
}

// spike plays one spike: it hits the first fleet at a random moment of the day, while jobs use all that fleets do not need. All rates are
// constant from then on but for the spike.
func (l *Lending) spike(row *lendingRow, pool []gangJob, seed int64) (out spikeResult, err error) {
	random := rand.New(rand.NewPCG(uint64(seed), 3))
	jobs := drawJobs(pool, max(1, l.Nodes*l.GPUs/2), seed)
	for i := range jobs {
		jobs[i].arrive = 0
	}
	span := int(l.Day.Span / time.Second)
	begins := random.IntN(len(l.Day.Rates))
	begin := beforeSpike + random.Float64()*inference.Interval.Seconds()
	ramp, height := mostRamp*random.Float64(), leastHeight+(mostHeight-leastHeight)*random.Float64()
	loads := make([]inference.Load, l.Fleets)
	at := l.rates(begins)
	past := inference.Load{Span: l.Day.Span, Rates: at[:len(at)-beforeSpike/span]}
	for i := range loads {
		loads[i].Span = time.Second
		for s := range beforeSpike + spikeLasts {
			rate := at[min(len(at)-1, len(past.Rates)+s/span)]
			if since := float64(s) - begin; i == 0 && since >= 0 {
				rate *= 1 + (height-1)*min(1, (since+1)/(ramp+1))
			}
			loads[i].Rates = append(loads[i].Rates, rate)
		}
	}
	r, err := l.newRun(row, inArrival(jobs), past, loads, seed)
	if err != nil {
		return out, err
	}
	one := l.fleet(0, row.share(l)).Variants[0].Replica
	most := height * at[len(at)-1]
	out = spikeResult{needed: int(math.Ceil(most / one.Capacity(l.promise()))), asks: spikeLasts, back: spikeLasts, serving: spikeLasts}
	r.audit = func(r *lendingRun) { out.see(r, begin) }
	err = r.play()
	out.preempted = r.out.preempted
	return out, err
}

// rates returns all rates up to a minute of the day, those before the day among them.
func (l *Lending) rates(minute int) []float64 {
	return append(append([]float64(nil), l.Before.Rates...), l.Day.Rates[:minute+1]...)
}

// see notes what happened in a step.
func (s *spikeResult) see(r *lendingRun, begin float64) {
	since, f := r.now-begin, r.fleets[0]
	if since < 0 {
		return
	}
	if q := f.last; !s.broken && q.seen.Latency > q.fleet.Promise.Within && since > metricsAge {
		s.broken, s.breaks = true, since-metricsAge
	}
	if max(f.wanted, f.last.replicas) >= s.needed {
		s.asks = min(s.asks, since)
	}
	if max(len(f.placed), f.last.replicas) >= s.needed {
		s.back = min(s.back, since)
	}
	if q := f.last; q.fleet.Variants[0].Ready >= s.needed {
		s.serving = min(s.serving, since)
	}
}

// sumSpikes sums up the spikes of a policy.
func sumSpikes(policy string, spikes []spikeResult) results.SpikeResult {
	out := results.SpikeResult{Policy: policy}
	back, serving, waits := make([]float64, 0, len(spikes)), make([]float64, 0, len(spikes)), make([]float64, 0, len(spikes))
	for i := range spikes {
		s := &spikes[i]
		if s.inTime() {
			out.InTime++
		}
		if s.asked() {
			out.Asked++
		}
		if !s.broken {
			out.Kept++
		}
		out.Preempted += s.preempted
		back, serving, waits = append(back, s.back), append(serving, s.serving), append(waits, s.back-s.asks)
	}
	if len(spikes) > 0 {
		out.BackMedian, out.BackWorst = quantile(back, .5), quantile(back, 1)
		out.WaitP90, out.WaitWorst = quantile(waits, .9), quantile(waits, 1)
		out.ServingMedian, out.ServingWorst = quantile(serving, .5), quantile(serving, 1)
	}
	return out
}
