package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/mig"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// checker holds a deployment to a set. The checker knows the deployment, the profile and the rules of MIG, and not the
// way to the deployment.
type checker struct {
	name       string
	deployed   []measurements.Deployed
	violations []results.Violation
}

// violate notes a violation.
func (c *checker) violate(model, gpu, format string, values ...any) {
	c.violations = append(c.violations, results.Violation{
		Deployment: c.name, Model: model, GPU: gpu, Reason: fmt.Sprintf(format, values...),
	})
}

// check looks for instances that are unknown to the profile or too slow, for models below their rates or without a
// demand, and for GPUs with more than fits.
func (r *Rightsizing) check(name string, set *measurements.SLOSet, deployed []measurements.Deployed) *checker {
	c := &checker{name: name, deployed: deployed}
	asked := map[string]*measurements.SLO{}
	for i := range set.SLOs {
		asked[set.SLOs[i].Model] = &set.SLOs[i]
	}
	reached := map[string]float64{}
	for i := range deployed {
		d := &deployed[i]
		slo, s := asked[d.Model], r.serving(d)
		switch {
		case slo == nil:
			c.violate(d.Model, "", "line %d serves it, but it is not in the set", d.Line)
		case s == nil:
			c.violate(d.Model, "", "the profile has no %d slices with batch %d and %d processes that run", d.Slices, d.Batch, d.Processes)
		case s.Latency > mig.Limit(slo.Latency, r.Permille):
			c.violate(d.Model, "", "a batch takes %v on %d slices with batch %d and %d processes, above %v", s.Latency, d.Slices, d.Batch,
				d.Processes, mig.Limit(slo.Latency, r.Permille))
		}
		if s != nil {
			reached[d.Model] += s.Rate
		}
	}
	for i := range set.SLOs {
		const rounding = 1e-6 // a rate is a number of millionths, and sums of decimals may be an ulp short
		if slo := &set.SLOs[i]; reached[slo.Model]+rounding < slo.Rate {
			c.violate(slo.Model, "", "it reaches %s of %s requests per second", short(reached[slo.Model]), short(slo.Rate))
		}
	}
	c.sizes()
	return c
}

// sizes looks for GPUs with more than fits.
func (c *checker) sizes() {
	on, gpus := byGPU(c.deployed)
	for _, gpu := range gpus {
		var sizes []mig.Slices
		for _, d := range on[gpu] {
			sizes = append(sizes, d.Slices)
		}
		if n, err := mig.Devices(sizes); err != nil || n > 1 {
			c.violate("", gpu.String(), "instances of %v slices do not fit on it, wherever they start", sizes)
		}
	}
}

func short(x float64) string { return strconv.FormatFloat(report.Round(x), 'f', -1, 64) }

// starts looks for instances that start where they may not, or on top of each other: one violation for each GPU.
func (c *checker) starts() {
	on, gpus := byGPU(c.deployed)
	for _, gpu := range gpus {
		taken := map[int]int{}
		for _, d := range on[gpu] {
			if reason := overlap(taken, d); reason != "" {
				c.violate("", gpu.String(), "%s", reason)
				break
			}
		}
	}
}

// overlap takes the memory slices of an instance, and says why it cannot: "" if it can. Taken has the size of the instance
// on each slice.
func overlap(taken map[int]int, d measurements.Deployed) string {
	if !slices.Contains(d.Slices.Starts(), d.Start) {
		return fmt.Sprintf("an instance of %d slices starts at %d: legal are %v", d.Slices, d.Start, d.Slices.Starts())
	}
	for i := d.Start; i < d.Start+d.Slices.Memory(); i++ {
		if taken[i] > 0 {
			return fmt.Sprintf("an instance of %d slices that starts at %d overlaps one of %d", d.Slices, d.Start, taken[i])
		}
		taken[i] = int(d.Slices)
	}
	return ""
}

// gpuOf is a GPU of a deployment.
type gpuOf struct{ node, gpu int }

// String names a GPU: its node and its number there.
func (g gpuOf) String() string { return fmt.Sprintf("%d/%d", g.node, g.gpu) }

// byGPU returns the instances on each GPU of a deployment, and the GPUs in order.
func byGPU(deployed []measurements.Deployed) (map[gpuOf][]measurements.Deployed, []gpuOf) {
	on := map[gpuOf][]measurements.Deployed{}
	for _, d := range deployed {
		g := gpuOf{d.Node, d.GPU}
		on[g] = append(on[g], d)
	}
	return on, slices.SortedFunc(maps.Keys(on), func(a, b gpuOf) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.gpu, b.gpu))
	})
}

// slicesOf returns the compute slices of a deployment.
func slicesOf(deployed []measurements.Deployed) int {
	sum := 0
	for i := range deployed {
		sum += int(deployed[i].Slices)
	}
	return sum
}

// servingKey is a way to serve a model.
type servingKey struct {
	model            string
	slices           mig.Slices
	batch, processes int
}

// index returns the ways to serve that run.
func index(profile []measurements.Serving) map[servingKey]*measurements.Serving {
	all := map[servingKey]*measurements.Serving{}
	for i := range profile {
		if s := &profile[i]; s.Rate > 0 {
			all[servingKey{s.Model, s.Slices, s.Batch, s.Processes}] = s
		}
	}
	return all
}

// serving returns what the profile says of an instance, nil where it does not know it or it did not run.
func (r *Rightsizing) serving(d *measurements.Deployed) *measurements.Serving {
	return r.ways[servingKey{d.Model, d.Slices, d.Batch, d.Processes}]
}
