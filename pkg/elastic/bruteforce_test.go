package elastic_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestBruteForceLaw: on one node of up to 16 GPUs the exact policies divide as well as the best of all divisions. Up to
// four jobs run or wait there, and a change costs nothing.
func TestBruteForceLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := between(t, "GPUs", 1, 16)
		node, err := vgpu.NewNode("n0", testkit.A100.Devices("n0", gpus))
		if err != nil {
			t.Fatal(err)
		}
		w := &world{Cluster: clusterOf(node), now: 1_000_000}
		for i := range between(t, "jobs", 1, 4) {
			j := randomJob(t, w, string(rune('a'+i)))
			j.Worker, j.Cost, j.Remaining = worker(10), 0, 0
			w.jobs = append(w.jobs, j)
			w.start(t, &w.jobs[i])
			w.jobs[i].Arrived = w.now - int64(between(t, "age", 0, 3))*10_000
		}
		policy := uniform(t, "policy", "goodput", "ffdl")
		plan := w.decide(t, elastic.Config{Policy: policy})
		free, got := gpus, 0.0
		var lists [][]choice
		for i, target := range plan.Targets {
			j := &w.jobs[i]
			if target.Why == elastic.Waits {
				continue
			}
			free -= j.Sizes[0]
			list := choicesOf(policy, j, w.now)
			lists = append(lists, list)
			for _, c := range list {
				if c.size == target.Workers {
					got += c.value
				}
			}
		}
		best := bestOf(lists, gpus)
		if math.IsInf(best, -1) { // workers are missing, and there is no room for them
			for i, target := range plan.Targets {
				if target.Workers != w.jobs[i].Sizes[0] {
					t.Fatalf("%+v does not have its least size, and those of all jobs do not fit", target)
				}
			}
			return
		}
		if math.Abs(got-best) > 1e-9 {
			t.Fatalf("%s: targets %+v are worth %v, the best are worth %v", policy, plan.Targets, got, best)
		}
		for i, target := range plan.Targets {
			if target.Why == elastic.Waits && w.jobs[i].Sizes[0] <= free {
				t.Fatalf("%+v waits, and %d GPUs are left beside the least sizes of the others", target, free)
			}
		}
	})
}

// choice is a size that a job may have, and what it is worth.
type choice struct {
	size  int
	value float64
}

// choicesOf lists the sizes of a job as the documentation of the policies has them.
func choicesOf(policy string, j *elastic.Job, time int64) []choice {
	now, base := 0, j.Curve.Rate(j.Sizes[0], 1)
	for _, n := range j.Sizes { // where workers are missing, the job has the next larger size
		if len(j.Placed) > now {
			now = n
		}
	}
	var list []choice
	for _, n := range j.Sizes {
		rate := j.Curve.Rate(n, 1)
		if policy == "ffdl" {
			list = append(list, choice{n, rate / base})
			continue
		}
		if now == 0 || n <= now || rate >= 1.1*j.Curve.Rate(now, 1) {
			if n < now {
				rate /= 1.1
			}
			list = append(list, choice{n, math.Log(rate/base) * 7200 / (7200 + float64(time-j.Arrived))})
		}
	}
	return list
}

// bestOf tries all divisions.
func bestOf(lists [][]choice, gpus int) float64 {
	if len(lists) == 0 {
		return 0
	}
	best := math.Inf(-1)
	for _, c := range lists[0] {
		if c.size <= gpus {
			best = max(best, c.value+bestOf(lists[1:], gpus-c.size))
		}
	}
	return best
}
