package gangs

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Lending plays training jobs on GPUs that fleets of inference replicas do not need at the moment. Fleets come first: where a replica waits for
// a device, jobs give one back.
//
// All fleets serve the same model, and the same rates arrive at each. Requests are played one by one, by package inference.
type Lending struct {
	// Training has the jobs of one workload, which come again and again until the rates end. Its fields Policies, Interval and Loads are
	// not used for anything else than their names say.
	Training
	// Fleets is how many there are.
	Fleets int
	// Before are the rates that policies know at the start, and Day those that are played.
	Before, Day inference.Load
	// Shares are what was measured of the model, the whole device among them. The promised p99 is Times the latency alone on the least.
	Shares []measurements.Solo
	Times  float64
	// LoadTime is what policies know of the time from the start of a replica until it serves, LoadTimes are the true ones, nil for the same.
	LoadTime  time.Duration
	LoadTimes []time.Duration
	// Variation is the squared coefficient of variation of the time of a request. Neighbours is by which factor a request takes longer on a share
	// than it does where the device is not shared.
	Variation, Neighbours float64
	// Utilisation is the target of the autoscaler.
	Utilisation float64
	// Notice is the time from the decision until workers that leave begin to save their state, Grace what an evicted pod has until it is killed.
	Notice, Grace time.Duration
	// Checkpoint is the time between two checkpoints that a job makes by itself.
	Checkpoint time.Duration
	// Spikes is how many of them are played.
	Spikes int
}

const (
	// MaxFleets bounds the fleets.
	MaxFleets = 64
	// MaxSpikes bounds the spikes.
	MaxSpikes = 10_000
	// shareCost is what a whole device costs.
	shareCost = 1000
)

// mixResult is what came of one run.
type mixResult struct {
	windows, broken, requests, late int
	// trained and served are the GPU-hours at solo speed of jobs and of requests, gpus the mean devices that fleets hold.
	trained, served, gpus float64
	hours                 float64
	ended, changes        int
	preempted             int
	lost                  float64
}

// Run plays every policy at every load with every seed, and the spikes.
func (l *Lending) Run() (*results.Lending, error) {
	jobs, err := l.prepare()
	if err != nil {
		return nil, fmt.Errorf("run lending: %w", err)
	}
	out := &results.Lending{Setting: l.setting(), Fleets: l.Fleets, PromiseMillis: float64(l.promise().Within) / float64(time.Millisecond), Spikes: l.Spikes}
	type cell struct{ load, row, seed int }
	var cells []cell
	for load := range l.Loads {
		for row := range lendingRows {
			for seed := range l.Seeds {
				cells = append(cells, cell{load, row, seed})
			}
		}
	}
	spiked := spikedRows()
	got, spikes := make([]mixResult, len(cells)), make([]spikeResult, l.Spikes*len(spiked))
	err = scenario.Each(len(cells)+len(spikes), l.Progress, func(i int) (err error) {
		if i < len(cells) {
			c := cells[i]
			got[i], err = l.play(&lendingRows[c.row], l.repeated(jobs, l.Loads[c.load], l.Seeds[c.seed]), l.Seeds[c.seed])
			return err
		}
		i -= len(cells)
		spikes[i], err = l.spike(spiked[i/l.Spikes], jobs, int64(1+i%l.Spikes))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("run lending: %w", err)
	}
	for i := 0; i < len(got); i += len(l.Seeds) {
		c := cells[i]
		out.Results = append(out.Results, l.sumUp(l.Loads[c.load], lendingRows[c.row].name, got[i:i+len(l.Seeds)], got[c.load*len(lendingRows)*len(l.Seeds):]))
	}
	for k, row := range spiked {
		out.SpikeResults = append(out.SpikeResults, sumSpikes(row.name, spikes[k*l.Spikes:(k+1)*l.Spikes]))
	}
	return out, nil
}

// prepare checks the fields and returns the jobs of the workload, with their least sizes.
func (l *Lending) prepare() ([]gangJob, error) {
	l.Policies, l.Interval = []string{"lending"}, inference.Interval
	switch {
	case l.Fleets < 1 || l.Fleets > MaxFleets:
		return nil, fmt.Errorf("%d fleets, legal is 1 to %d", l.Fleets, MaxFleets)
	case l.Spikes < 0 || l.Spikes > MaxSpikes:
		return nil, fmt.Errorf("%d spikes, legal is 0 to %d", l.Spikes, MaxSpikes)
	case len(l.Before.Rates) == 0 || len(l.Day.Rates) == 0:
		return nil, errors.New("no rates before the start, or none after it")
	case len(l.Workloads) != 1:
		return nil, errors.New("not one workload")
	case len(l.Shares) == 0 || l.Shares[len(l.Shares)-1].Share != vgpu.WholeGPU:
		return nil, errors.New("the latency on the whole device was not measured")
	}
	apps, err := l.apps()
	if err != nil {
		return nil, err
	}
	return l.jobs(apps, l.Workloads[0])
}

// repeated returns as many times as many jobs as the workload has, again and again until the rates end. The seed draws them.
func (l *Lending) repeated(jobs []gangJob, load float64, seed int64) (all []gangJob) {
	end := l.Day.Span.Seconds() * float64(len(l.Day.Rates))
	period := max(1, math.Ceil(jobs[len(jobs)-1].arrive/3600)) * 3600
	for k := 0; float64(k)*period < end; k++ {
		for _, j := range times([]elasticWorkload{{jobs: jobs}}, 0, load, 1000*seed+int64(k)) {
			if j.arrive += float64(k) * period; j.arrive < end {
				all = append(all, j)
			}
		}
	}
	return inArrival(all)
}

func (l *Lending) promise() traffic.Promise {
	return traffic.Promise{Quantile: .99, Within: time.Duration(l.Times * float64(l.Shares[0].Latency))}
}

// fleet returns a fleet of one variant without replicas.
func (l *Lending) fleet(at int, solo *measurements.Solo) traffic.Fleet {
	return traffic.Fleet{Name: fmt.Sprintf("fleet-%02d", at), Objective: traffic.Proportional, Promise: l.promise(), Variants: []traffic.Variant{{
		Name: "share", Cost: int64(solo.Share) * shareCost / int64(vgpu.WholeGPU), Least: 1, Most: l.Nodes * l.GPUs * int(slotsOfGPU), Load: l.LoadTime,
		Replica: traffic.Replica{Rate: 1 / solo.Latency.Seconds(), Time: solo.Latency, Variation: l.Variation},
	}}}
}

// whole returns what was measured of the whole device.
func (l *Lending) whole() *measurements.Solo { return &l.Shares[len(l.Shares)-1] }

// best returns the share whose replicas, as many as fit, let a device serve the most within the promise; of equal ones the smaller one.
func (l *Lending) best() *measurements.Solo {
	best, most := l.whole(), -1.0
	for i := range l.Shares {
		s := &l.Shares[i]
		fits := int64(slotsOfGPU) / slotsOf(s.Share)
		one := traffic.Replica{Rate: 1 / s.Latency.Seconds(), Time: s.Latency, Variation: l.Variation}
		if serves := float64(fits) * one.Capacity(l.promise()); serves > most {
			best, most = s, serves
		}
	}
	return best
}

// slotsOf returns the slots that hold a share, rounded up.
func slotsOf(share vgpu.MilliGPU) int64 {
	return ceil(int64(share)*int64(slotsOfGPU), int64(vgpu.WholeGPU))
}

// sumUp sums up the runs of a policy. The base is the first policy at the same load.
func (l *Lending) sumUp(load float64, policy string, runs, base []mixResult) results.LendingResult {
	of := func(figure func(x *mixResult) float64) results.Spread {
		return overSeeds(len(runs), func(s int) float64 { return figure(&runs[s]) })
	}
	out := results.LendingResult{
		Load: load, Policy: policy,
		Trained: of(func(x *mixResult) float64 { return x.trained / x.hours }), Served: of(func(x *mixResult) float64 { return x.served / x.hours }),
		Useful: of((*mixResult).useful), GPUs: of(func(x *mixResult) float64 { return x.gpus }), Ended: of(func(x *mixResult) float64 { return float64(x.ended) }),
		Changes: of(func(x *mixResult) float64 { return float64(x.changes) }), Preempted: of(func(x *mixResult) float64 { return float64(x.preempted) }),
		Lost: of(func(x *mixResult) float64 { return x.lost }),
		More: overSeeds(len(runs), func(s int) float64 { return changed(base[s].useful(), runs[s].useful()) }),
	}
	for i := range runs {
		out.Windows += runs[i].windows
		out.Broken += runs[i].broken
		out.Requests += runs[i].requests
		out.Late += runs[i].late
	}
	return out
}

// useful returns the GPU-hours at solo speed that were done in an hour.
func (x *mixResult) useful() float64 { return (x.trained + x.served) / x.hours }
