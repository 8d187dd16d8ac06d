package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/mig"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Rightsizing finds how many GPUs serve sets of models under their SLOs, and checks the result, and published
// deployments, against the demands.
type Rightsizing struct {
	// Profile is what the models reach.
	Profile []measurements.Serving
	Sets    []measurements.SLOSet
	// Published deployments by the number of the set; none is needed.
	Published map[int][]measurements.Deployed
	// Permille is how many thousandths of its SLO a batch may take.
	Permille int

	ways map[servingKey]*measurements.Serving
}

// Run looks at every set. Violations are part of the result; an error means that there is no size at all.
func (r *Rightsizing) Run() (*results.Rightsize, error) {
	r.ways = index(r.Profile)
	out := &results.Rightsize{Results: []results.SizedSet{}}
	for i := range r.Sets {
		one, err := r.size(&r.Sets[i])
		if err != nil {
			return nil, fmt.Errorf("right-size set %d: %w", r.Sets[i].Number, err)
		}
		out.Results = append(out.Results, *one)
	}
	return out, nil
}

// size sizes one set.
func (r *Rightsizing) size(set *measurements.SLOSet) (*results.SizedSet, error) {
	plan, err := mig.Size(r.demands(set), mig.Config{Permille: r.Permille})
	if err != nil {
		return nil, err
	}
	out := r.judge(set, plan)
	if published, given := r.Published[set.Number]; given {
		r.compare(out, set, published)
	}
	return out, nil
}

// judge reports a plan, held to the set.
func (r *Rightsizing) judge(set *measurements.SLOSet, plan *mig.Plan) *results.SizedSet {
	deployed := deployedOf(plan)
	c := r.check("tandem", set, deployed)
	c.starts()
	for _, refused := range plan.Refused {
		c.violations = slices.DeleteFunc(c.violations, func(v results.Violation) bool { return v.Model == refused.Model })
		c.violate(refused.Model, "", "%s", refused.Why())
	}
	return &results.SizedSet{
		Set: set.Number, GPUs: len(plan.Devices), Slices: slicesOf(deployed), LowerBound: plan.LowerBound, Optimal: plan.Optimal,
		Models: r.models(set, deployed), Violations: append([]results.Violation{}, c.violations...), Notes: []string{},
	}
}

// compare holds a published deployment to the set, and the result to the deployment.
func (r *Rightsizing) compare(out *results.SizedSet, set *measurements.SLOSet, published []measurements.Deployed) {
	c := r.check("published", set, published)
	_, all := byGPU(published)
	gpus, compute := len(all), slicesOf(published)
	out.PublishedGPUs, out.PublishedSlices = &gpus, &compute
	out.Violations = append(out.Violations, c.violations...)
	if out.GPUs > gpus {
		out.Violations = append(out.Violations, results.Violation{
			Deployment: "tandem", Reason: fmt.Sprintf("%d GPUs, the published deployment has %d", out.GPUs, gpus),
		})
	}
	c.violations = nil
	if c.starts(); len(c.violations) > 0 && len(out.Violations) == 0 {
		// ParvaGPU's own scripts leave the starts to the driver, so that starts which overlap are no fault of it.
		out.Notes = append(out.Notes, fmt.Sprintf(
			"published: the starts in the file overlap on %d of %d GPUs; with other starts the instances fit", len(c.violations), gpus))
	}
}

// demands returns the demands, with the servings of the profile.
func (r *Rightsizing) demands(set *measurements.SLOSet) []mig.Demand {
	all := make([]mig.Demand, 0, len(set.SLOs))
	for _, slo := range set.SLOs {
		d := mig.Demand{Model: slo.Model, Rate: rateOf(slo.Rate), SLO: slo.Latency}
		for i := range r.Profile {
			if s := &r.Profile[i]; s.Model == slo.Model && s.Rate > 0 {
				d.Variants = append(d.Variants, mig.Variant{
					Slices: s.Slices, Batch: s.Batch, Processes: s.Processes, Rate: rateOf(s.Rate), Latency: s.Latency,
				})
			}
		}
		all = append(all, d)
	}
	return all
}

// rateOf returns a rate in millionths. The result is at least one: the files have no rate below that.
func rateOf(perSecond float64) mig.Rate { return mig.Rate(max(1, math.Round(perSecond*1e6))) }

// deployedOf writes a plan as a deployment.
func deployedOf(plan *mig.Plan) []measurements.Deployed {
	var all []measurements.Deployed
	for gpu, device := range plan.Devices {
		for _, one := range device {
			all = append(all, measurements.Deployed{
				GPU: gpu, Start: one.Start, Model: one.Model, Slices: one.Slices, Batch: one.Batch, Processes: one.Processes,
			})
		}
	}
	return all
}

// models returns what serves the models of a set.
func (r *Rightsizing) models(set *measurements.SLOSet, deployed []measurements.Deployed) []results.SizedModel {
	all := []results.SizedModel{}
	for _, slo := range set.SLOs {
		m := results.SizedModel{
			Model: slo.Model, Rate: report.Round(slo.Rate), SLO: milliseconds(slo.Latency),
			Limit: milliseconds(mig.Limit(slo.Latency, r.Permille)), Instances: []results.SizedInstance{},
		}
		throughput, latency := 0.0, time.Duration(0)
		for i := range deployed {
			d := &deployed[i]
			s := r.serving(d)
			if d.Model != slo.Model || s == nil {
				continue
			}
			throughput, latency = throughput+s.Rate, max(latency, s.Latency)
			m.Instances = append(m.Instances, results.SizedInstance{
				GPU: d.GPU, Start: d.Start, Slices: int(d.Slices), Batch: d.Batch, Processes: d.Processes,
				Throughput: report.Round(s.Rate), Latency: milliseconds(s.Latency),
			})
		}
		m.Throughput, m.Latency = report.Round(throughput), milliseconds(latency)
		all = append(all, m)
	}
	return all
}

func milliseconds(d time.Duration) float64 {
	return report.Round(float64(d) / float64(time.Millisecond))
}
