package lifetimes

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
)

// job is a job of a trace that ended.
type job struct {
	pod           lifetime.Pod
	start, length float64
	// features are what the regressions know of it; category numbers its user and its kind.
	features []float64
	category [2]int
}

func (j *job) end() float64 { return j.start + j.length }

// jobsOf returns the jobs of a trace that ended, in the order of their starts. Two jobs without a kind of their own are the same workload
// where they ask for the same CPU and memory of the host.
func jobsOf(t *traces.Trace) []job {
	number := map[string]int{}
	all := make([]job, 0, len(t.Jobs))
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if j.Duration <= 0 {
			continue
		}
		kind := cmp.Or(j.App, j.Class)
		made := job{start: j.Arrive.Seconds(), length: j.Duration.Seconds()}
		made.pod = lifetime.Pod{User: j.Tenant, Workload: kind, Size: int(j.Total())}
		if j.Host.MilliCPU > 0 {
			made.pod.Workload = fmt.Sprintf("%s %d %d", kind, j.Host.MilliCPU, j.Host.Memory)
		}
		for k, name := range []string{"user " + j.Tenant, "kind " + kind} {
			if _, ok := number[name]; !ok {
				number[name] = len(number)
			}
			made.category[k] = number[name]
		}
		const day = 86_400.0
		made.features = []float64{
			math.Log1p(float64(j.Total())), math.Log1p(float64(j.Host.MilliCPU)), math.Log1p(float64(j.Host.Memory)),
			math.Mod(made.start, day) / day, math.Mod(made.start, 7*day) / (7 * day), made.start / (30 * day), math.Log1p(float64(j.Batch)),
		}
		all = append(all, made)
	}
	slices.SortStableFunc(all, func(a, b job) int { return cmp.Compare(a.start, b.start) })
	return all
}
