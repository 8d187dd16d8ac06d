package inference

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Splits plays divisions of requests over unlike GPUs, and compares what comes of them with the formulas of queueing.
//
// Each GPU is one replica that serves one request at a time, for an exponential time. Requests arrive at random times, and each goes to
// a random GPU by the parts of the division: each GPU is an M/M/1 queue.
type Splits struct {
	Mixes []Mix
	// Busy are rates of requests, as parts of what all GPUs serve together, each above 0 and below 1.
	Busy []float64
	// Requests are played in each run.
	Requests int
	Seed     uint64
	// Progress is called after each run; it may be nil.
	Progress func(done, total int)
}

// Mix is what each of several unlike GPUs serves when it is always busy, in requests a second.
type Mix []float64

// String writes a mix as users do: 10:5:3.3:1.
func (m Mix) String() string {
	words := make([]string, len(m))
	for i, rate := range m {
		words[i] = strconv.FormatFloat(rate, 'g', -1, 64)
	}
	return strings.Join(words, ":")
}

func (m Mix) sum() (sum float64) {
	for _, rate := range m {
		sum += rate
	}
	return sum
}

// division divides a rate of requests over the GPUs of a mix. played is what the controller does, and formula what SMIF's formulas
// and those of its rivals say.
type division struct {
	name            string
	played, formula func(m Mix, demand float64) []float64
}

func divisions() []division {
	return []division{
		{results.UniformSplit, uniform, uniform},
		{string(traffic.Proportional), decided(traffic.Proportional), proportional},
		{string(traffic.MeanOptimal), decided(traffic.MeanOptimal), meanOptimal},
		{string(traffic.TailOptimal), decided(traffic.TailOptimal), tailOptimal},
	}
}

// decided returns how the controller divides.
func decided(o traffic.Objective) func(Mix, float64) []float64 {
	return func(m Mix, demand float64) []float64 {
		pools := make([]traffic.Pool, len(m))
		for i, rate := range m {
			pools[i] = traffic.Pool{Replica: exponential(rate), Replicas: 1}
		}
		return traffic.Split(pools, demand, o, tail)
	}
}

// tail is the quantile of the latencies that are reported.
const tail = .99

// exponential returns a replica that serves one request at a time, for an exponential time.
func exponential(rate float64) traffic.Replica {
	return traffic.Replica{Rate: rate, Time: time.Duration(float64(time.Second) / rate), Variation: 1}
}

func uniform(m Mix, demand float64) []float64 {
	return slices.Repeat([]float64{demand / float64(len(m))}, len(m))
}

func proportional(m Mix, demand float64) []float64 {
	rates := make([]float64, len(m))
	for i, rate := range m {
		rates[i] = demand * rate / m.sum()
	}
	return rates
}

// meanOptimal has the least mean latency: λ = μ − √μ·(Σμ−Λ)/Σ√μ.
func meanOptimal(m Mix, demand float64) []float64 { return spare(m, demand, math.Sqrt) }

// tailOptimal has the least p99 of the slowest GPU: all GPUs have the same rate to spare.
func tailOptimal(m Mix, demand float64) []float64 {
	return spare(m, demand, func(float64) float64 { return 1 })
}

// spare gives each GPU all that it serves but its part, by the weights, of what all GPUs have to spare. A GPU that would get less than
// nothing gets nothing, and the others are divided over anew. Example: at 3:1 and 2 requests a second with the same weight for both, 2
// are to spare, and the GPUs get 3 − 1 = 2 and 1 − 1 = 0.
func spare(m Mix, demand float64, weight func(rate float64) float64) []float64 {
	rates, out := make([]float64, len(m)), make([]bool, len(m))
	if demand >= m.sum() {
		return proportional(m, demand)
	}
	for again := true; again; {
		again = false
		left, weights := -demand, 0.0
		for i, rate := range m {
			if !out[i] {
				left, weights = left+rate, weights+weight(rate)
			}
		}
		for i, rate := range m {
			if rates[i] = 0; out[i] {
				continue
			}
			if rates[i] = rate - weight(rate)*left/weights; rates[i] < 0 {
				out[i], again = true, true
			}
		}
	}
	return rates
}

// Run plays all divisions.
func (s *Splits) Run() *results.Splits {
	out := &results.Splits{}
	all, total := divisions(), len(s.Mixes)*len(divisions())*(len(s.Busy)+1)
	step := func() {
		if s.Progress != nil {
			s.Progress(len(out.Latencies)+len(out.Sustained), total)
		}
	}
	for _, m := range s.Mixes {
		for _, busy := range s.Busy {
			for k := range all {
				out.Latencies = append(out.Latencies, s.latency(m, busy, &all[k]))
				step()
			}
		}
		for k := range all {
			out.Sustained = append(out.Sustained, s.sustained(m, &all[k]))
			step()
		}
	}
	return out
}

// latency plays a division at a rate.
func (s *Splits) latency(m Mix, busy float64, d *division) results.SplitLatency {
	demand := busy * m.sum()
	parts := d.played(m, demand)
	out := results.SplitLatency{Mix: m.String(), Busy: busy, Division: d.name, Rates: rounded(parts)}
	r := s.play(m, parts, demand)
	formula := steadyQueues(m, d.formula(m, demand))
	if out.Overloaded = formula == nil || r.overloaded(); out.Overloaded {
		return out
	}
	out.Mean = compared(r.mean(), formula.mean())
	out.P99 = compared(quantile(slices.Concat(r.took...)), formula.quantile())
	slowest := 0.0
	for _, took := range r.took {
		slowest = max(slowest, quantile(took))
	}
	out.SlowestP99 = compared(slowest, formula.slowest())
	return out
}

// compared turns seconds into milliseconds.
func compared(played, formula float64) *results.Compared {
	return &results.Compared{Played: report.Round(1000 * played), Formula: report.Round(1000 * formula)}
}

func rounded(rates []float64) []float64 {
	out := make([]float64, len(rates))
	for i, rate := range rates {
		out[i] = report.Round(rate)
	}
	return out
}

// sustained finds the highest rate of requests at which no GPU is overloaded.
func (s *Splits) sustained(m Mix, d *division) results.SplitSustained {
	const halvings = 12
	low, high := 0.0, 1.1*m.sum()
	for range halvings {
		mid := (low + high) / 2
		if r := s.play(m, d.played(m, mid), mid); r.overloaded() {
			high = mid
		} else {
			low = mid
		}
	}
	return results.SplitSustained{
		Mix: m.String(), Division: d.name, Compared: results.Compared{Played: report.Round(low), Formula: report.Round(holds(m, d))},
	}
}

// holds returns the highest rate at which the formula of a division overloads no GPU. Equal parts are too much when they are for the slowest GPU.
func holds(m Mix, d *division) float64 {
	if d.name == results.UniformSplit {
		return float64(len(m)) * slices.Min(m)
	}
	return m.sum()
}

// splitRun is a run of a division.
type splitRun struct {
	fleet *fleet
	// took are the latencies of each GPU in seconds, and now is when the last request arrived.
	took [][]float64
	now  float64
}

// play lets requests arrive at random times at a rate of demand, and divides them in proportion to the parts.
func (s *Splits) play(m Mix, parts []float64, demand float64) *splitRun {
	replicas := make([]traffic.Replica, len(m))
	for i, rate := range m {
		replicas[i] = exponential(rate)
	}
	return s.playReplicas(replicas, parts, demand)
}

// playReplicas is play for any replicas that serve one request at a time.
func (s *Splits) playReplicas(replicas []traffic.Replica, parts []float64, demand float64) *splitRun {
	r := &splitRun{
		fleet: &fleet{rng: rand.New(rand.NewPCG(s.Seed, 7)), parts: parts},
		took:  make([][]float64, len(replicas)),
	}
	for i := range replicas {
		p := pool{variant: &traffic.Variant{}, truth: replicas[i], channels: 1, loads: &loading{}}
		p.resize(1, 0)
		r.fleet.pools = append(r.fleet.pools, p)
		r.took[i] = make([]float64, 0, int(1.1*float64(s.Requests)*parts[i]/demand)+1)
	}
	for range s.Requests {
		r.now += r.fleet.rng.ExpFloat64() / demand
		i := r.fleet.pick(r.now)
		r.took[i] = append(r.took[i], r.fleet.pools[i].serve(r.now, r.fleet.rng))
	}
	return r
}

// fallsBehind is the part of a run that a GPU may be behind at its end. One that is busy for 0.999 of the time is behind by a thousand requests,
// which is less than that in a run of millions.
const fallsBehind = .005

// overloaded reports whether a GPU fell behind.
func (r *splitRun) overloaded() bool {
	for i := range r.fleet.pools {
		if r.fleet.pools[i].replicas[0].free[0]-r.now > fallsBehind*r.now {
			return true
		}
	}
	return false
}

// mean returns the mean latency of all requests in seconds.
func (r *splitRun) mean() float64 {
	sum, count := 0.0, 0
	for _, took := range r.took {
		count += len(took)
		for _, t := range took {
			sum += t
		}
	}
	return sum / float64(count)
}

// quantile returns the p99 of latencies, which it sorts; 0 for none.
func quantile(took []float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[int(tail*float64(len(took)-1))]
}

// queue is an M/M/1 queue: requests a second that arrive, and that the GPU has to spare.
type queue struct{ arrivals, spare float64 }

type queues []queue

// steadyQueues returns the queues of the GPUs that get requests, nil where one of them is overloaded.
func steadyQueues(m Mix, rates []float64) (all queues) {
	for i, rate := range m {
		if rates[i] >= rate*(1-1e-9) {
			return nil
		}
		if rates[i] > 0 {
			all = append(all, queue{rates[i], rate - rates[i]})
		}
	}
	return all
}

// mean returns the mean latency in seconds. A request takes 1 ÷ spare on average.
func (q queues) mean() float64 {
	sum, arrivals := 0.0, 0.0
	for _, x := range q {
		sum, arrivals = sum+x.arrivals/x.spare, arrivals+x.arrivals
	}
	return sum / arrivals
}

// slowest returns the highest p99 of a GPU in seconds: ln 100 ÷ spare.
func (q queues) slowest() float64 {
	least := math.Inf(1)
	for _, x := range q {
		least = min(least, x.spare)
	}
	return -math.Log(1-tail) / least
}

// quantile returns the p99 of all requests in seconds: of those at a queue, e^(−spare·t) take longer than t.
func (q queues) quantile() float64 {
	low, high := 0.0, q.slowest()
	for range 60 {
		mid, longer, arrivals := (low+high)/2, 0.0, 0.0
		for _, x := range q {
			longer, arrivals = longer+x.arrivals*math.Exp(-x.spare*mid), arrivals+x.arrivals
		}
		if longer/arrivals > 1-tail {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
