package inference

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Serving compares policies that size a fleet, whose variants are shares of one GPU model.
type Serving struct {
	// Loads with their names, played one by one.
	Loads []NamedLoad
	// Shares are what was measured of the model, a variant for each.
	Shares []measurements.Solo
	// Promises are p99 latencies, as multiples of the latency alone on the smallest share.
	Promises []float64
	// LoadTime is the time from the start of a replica until it serves, Variation the squared coefficient of variation of the time of a request.
	LoadTime  time.Duration
	Variation float64
	// LoadTimes are the true load times, of which each replica has a random one; nil is LoadTime. Policies know LoadTime only.
	LoadTimes []time.Duration
	// Misses, Utilisations and Rates are the settings of the policies, a run each: of traffic.Config, of autoscalers on utilisation, and of those
	// on rate as parts of what a replica serves when it is always busy.
	Misses, Utilisations, Rates []float64
	// Static are numbers of replicas, as multiples of what the mean of the load needs.
	Static []float64
	Seed   uint64
	// WarmUp is the first part of each load, in which policies learn and nothing counts.
	WarmUp time.Duration
	// Progress is called after each run; it may be nil.
	Progress func(done, total int)
}

// NamedLoad is a load with its name.
type NamedLoad struct {
	Name string
	Load
}

// shareCost is what a whole device costs.
const shareCost = 1000

// oneRun is one run of the experiment.
type oneRun struct {
	load            *NamedLoad
	times           float64
	policy, setting string
	shares          []measurements.Solo
	policyFor       func(f *traffic.Fleet, mean float64) Policy
}

// Run plays all runs.
func (s *Serving) Run() (*results.Inference, error) {
	slices.SortFunc(s.Shares, func(a, b measurements.Solo) int { return cmp.Compare(a.Share, b.Share) })
	if len(s.Shares) == 0 {
		return nil, fmt.Errorf("no share of the model was measured")
	}
	runs := s.runs()
	out := &results.Inference{Results: []results.InferenceResult{}}
	for i := range runs {
		out.Results = append(out.Results, s.play(&runs[i]))
		if s.Progress != nil {
			s.Progress(i+1, len(runs))
		}
	}
	return out, nil
}

// runs lists the runs. Rivals have one variant each: they divide nothing.
func (s *Serving) runs() (all []oneRun) {
	for i := range s.Loads {
		for _, times := range s.Promises {
			add := func(policy, setting string, shares []measurements.Solo, policyFor func(*traffic.Fleet, float64) Policy) {
				all = append(all, oneRun{&s.Loads[i], times, policy, setting, shares, policyFor})
			}
			for _, misses := range s.Misses {
				tandem := func(*traffic.Fleet, float64) Policy { return &Tandem{Config: traffic.Config{Misses: misses}} }
				add("tandem", fmt.Sprintf("misses %g", misses), s.Shares, tandem)
				for k := range s.Shares {
					add("tandem, one share", fmt.Sprintf("misses %g", misses), s.Shares[k:k+1], tandem)
				}
			}
			for k := range s.Shares {
				share := s.Shares[k : k+1]
				for _, u := range s.Utilisations {
					add("HPA on utilisation", fmt.Sprintf("target %g", u), share, func(*traffic.Fleet, float64) Policy { return &HPA{Utilisation: u} })
				}
				for _, part := range s.Rates {
					add("HPA on rate", fmt.Sprintf("target %g", part), share, func(f *traffic.Fleet, _ float64) Policy {
						return &HPA{Rate: part * f.Variants[0].Replica.Rate}
					})
				}
				for _, times := range s.Static {
					add("static", fmt.Sprintf("%g × mean", times), share, func(f *traffic.Fleet, mean float64) Policy {
						return &Static{[]int{needed(f, times*mean)}}
					})
				}
			}
		}
	}
	return all
}

// needed returns how many replicas of the first variant a rate keeps busy, one at least.
func needed(f *traffic.Fleet, rate float64) int {
	return max(1, int(rate/f.Variants[0].Replica.Rate+.999))
}

func (s *Serving) play(r *oneRun) results.InferenceResult {
	fleet := s.fleet(r)
	mean := 0.0
	for _, rate := range r.load.Rates {
		mean += rate / float64(len(r.load.Rates))
	}
	policy := r.policyFor(&fleet, mean)
	v := &fleet.Variants[len(fleet.Variants)-1]
	v.Wanted = max(1, int(2*r.load.Rates[0]/v.Replica.Rate))
	if fixed, ok := policy.(*Static); ok {
		v.Wanted = fixed.Replicas[0]
	}
	v.Ready, v.Part = v.Wanted, 1
	got := Run(fleet, Truth{LoadTimes: s.LoadTimes}, r.load.Load, s.WarmUp, policy, s.Seed)
	out := results.InferenceResult{
		Load: r.load.Name, PromiseMillis: float64(fleet.Promise.Within) / float64(time.Millisecond), Times: r.times, Policy: r.policy, Setting: r.setting,
		Share: "all", Windows: got.Windows, Broken: got.Broken, Requests: got.Requests, Late: got.Late, GPUs: got.Cost / shareCost, Moves: got.Moves,
		MeanMillis: float64(got.Mean) / float64(time.Millisecond), P99Millis: float64(got.P99) / float64(time.Millisecond),
	}
	if len(r.shares) == 1 {
		out.Share = percent(r.shares[0].Share)
	}
	return out
}

func percent(share vgpu.MilliGPU) string { return fmt.Sprintf("%g %%", float64(share)/10) }

// fleet returns a fleet of the shares without replicas.
func (s *Serving) fleet(r *oneRun) traffic.Fleet {
	f := traffic.Fleet{
		Name: r.shares[0].Family, Objective: traffic.Proportional,
		Promise: traffic.Promise{Quantile: .99, Within: time.Duration(r.times * float64(s.Shares[0].Latency))},
	}
	for _, m := range r.shares {
		f.Variants = append(f.Variants, traffic.Variant{
			Name: percent(m.Share), Cost: int64(m.Share), Most: 10_000, Load: s.LoadTime,
			Replica: traffic.Replica{Rate: 1 / m.Latency.Seconds(), Time: m.Latency, Variation: s.Variation},
		})
	}
	f.Variants[0].Least = 1
	return f
}
