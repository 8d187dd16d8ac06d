package experiment

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Weighing fills a cluster as a Filling does, and compares the costs and gains of the weight of interference: allocated
// GPU, and work that tenants lose by each other. Every pod with a part of a device is one of the workloads of the
// profiles, drawn by the seed. The true speeds come from the model that placement uses, so that the figures are about
// the weight, not about errors of prediction.
type Weighing struct {
	Filling
	// Profiles of workloads alone on a whole device; Weighing skips those without SM and bandwidth.
	Profiles []measurements.Solo
	// Sample is how many of the nodes take part, drawn by the seed; all where there are no more.
	Sample int
	// Burst says that every share may use all SMs of its device, as compute limits of 100 % allow; else its request is
	// its cap.
	Burst bool
	// Weights of interference in percent, 0 to 1000.
	Weights []int64
}

// weighed is what came of one run.
type weighed struct{ allocated, lost, slowdown, worst float64 }

// Run plays every weight with every seed.
func (w *Weighing) Run() (*results.Weights, error) {
	workloads := w.workloads()
	if len(workloads) == 0 {
		return nil, errors.New("weigh interference: no profile says its GPU and memory utilisation")
	}
	runs := make([]weighed, len(w.Weights)*len(w.Seeds))
	err := scenario.Each(len(runs), w.Progress, func(i int) error {
		weight, seed := w.Weights[i/len(w.Seeds)], w.Seeds[i%len(w.Seeds)]
		var err error
		if runs[i], err = w.run(workloads, weight, seed); err != nil {
			return fmt.Errorf("weigh interference at %d with seed %d: %w", weight, seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &results.Weights{}
	for k, weight := range w.Weights {
		mine := runs[k*len(w.Seeds) : (k+1)*len(w.Seeds)]
		of := func(figure func(weighed) float64) results.Spread {
			var all []float64
			for _, r := range mine {
				all = append(all, figure(r))
			}
			return results.SpreadOf(all)
		}
		out.Results = append(out.Results, results.WeightResult{
			Weight:           weight,
			AllocatedPercent: of(func(r weighed) float64 { return r.allocated }),
			LostPercent:      of(func(r weighed) float64 { return r.lost }),
			SlowdownMean:     of(func(r weighed) float64 { return r.slowdown }),
			SlowdownMax:      of(func(r weighed) float64 { return r.worst }),
		})
	}
	return out, nil
}

// workloads returns the usable profiles, in the order of the file.
func (w *Weighing) workloads() []interference.Profile {
	var list []interference.Profile
	for i := range w.Profiles {
		s := &w.Profiles[i]
		if s.Share == vgpu.WholeGPU && !math.IsNaN(s.SM) && !math.IsNaN(s.Bandwidth) {
			p := interference.Profile{SM: s.SM, Bandwidth: s.Bandwidth}
			if s.Rate > 0 {
				p.Step = float64(s.Batch) / s.Rate
			}
			list = append(list, p)
		}
	}
	return list
}

// run plays one run.
func (w *Weighing) run(workloads []interference.Profile, weight, seed int64) (weighed, error) {
	draw := rand.New(rand.NewPCG(uint64(seed), 5))
	some := w.Filling
	some.Nodes = slices.Clone(w.Nodes)
	draw.Shuffle(len(some.Nodes), func(i, j int) { some.Nodes[i], some.Nodes[j] = some.Nodes[j], some.Nodes[i] })
	some.Nodes = some.Nodes[:min(len(some.Nodes), w.Sample)]
	setup, err := some.Setup(seed)
	if err != nil {
		return weighed{}, err
	}
	model, err := interference.ByName("default")
	if err != nil {
		return weighed{}, err
	}
	if setup.Policy, err = placement.ByName("tandem"); err != nil {
		return weighed{}, err
	}
	truth := func(number interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
		return workloads[number-1].On(part)
	}
	setup.Policy = setup.Policy.Among(&placement.Neighbours{
		Model: model, Scarce: true, Weights: placement.Weights{Fragmentation: 100, Interference: weight},
		Tenant: func(number interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
			if number == 0 {
				return interference.Tenant{}
			}
			return truth(number, "", part)
		},
	})
	for i := range setup.Jobs {
		r := &setup.Jobs[i].Request
		if len(r.Containers) > 0 && r.Containers[0].Slots < traces.SlotsPerDevice {
			r.Workload = uint32(draw.IntN(len(workloads)) + 1)
			if w.Burst {
				r.ComputeLimit = vgpu.WholeGPU
			}
		}
	}
	h, err := sim.Run(setup)
	if err != nil {
		return weighed{}, err
	}
	return result(h, &model, truth), nil
}

// result looks at the end of a run.
func result(h *sim.History, model *interference.Model, truth func(interference.Workload, string, vgpu.MilliGPU) interference.Tenant) weighed {
	type tenant struct {
		share int64
		interference.Tenant
	}
	on, order := map[vgpu.DeviceID][]tenant{}, []vgpu.DeviceID{}
	for i := range h.Outcomes {
		a := &h.Outcomes[i].Assignment
		if a.Workload == 0 || len(a.Containers) == 0 {
			continue
		}
		id, share := a.Containers[0].Devices[0], a.Containers[0].Share
		if on[id] == nil {
			order = append(order, id)
		}
		on[id] = append(on[id], tenant{int64(share.Slots), truth(interference.Workload(a.Workload), "", share.ComputeLimit)})
	}
	out := weighed{worst: 1}
	pods, lost := 0, 0.
	for _, id := range order {
		var tenants []interference.Tenant
		for _, t := range on[id] {
			tenants = append(tenants, t.Tenant)
		}
		for k, p := range model.Predict(tenants, nil) {
			pods++
			out.slowdown += p.Slowdown()
			out.worst = max(out.worst, p.Slowdown())
			lost += float64(on[id][k].share) * (1 - 1/p.Slowdown())
		}
	}
	out.slowdown /= float64(max(1, pods))
	if capacity := float64(h.Capacity); capacity > 0 {
		last := h.Samples[len(h.Samples)-1]
		out.allocated, out.lost = 100*float64(last.Allocated)/capacity, 100*lost/capacity
	}
	return out
}
