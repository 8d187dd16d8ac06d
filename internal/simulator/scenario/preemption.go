package scenario

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
)

const (
	// grace is how long an evicted pod stays where the scenario does not say, as in Kubernetes.
	grace    = 30 * time.Second
	maxGrace = 24 * time.Hour
)

// preemption reads the configuration of evictions.
func (r *reader) preemption(f *preemptionFile, queue sim.Queue) sim.PreemptionConfig {
	if f == nil {
		return sim.PreemptionConfig{}
	}
	p, err := sim.PreemptionByName(string(f.Policy))
	if err != nil {
		r.wrong("preemption.policy", quote(f.Policy), "one of "+strings.Join(sim.PreemptionPolicies(), ", "))
	}
	if p != sim.PreemptNobody && queue == sim.Drop {
		r.wrong("preemption.policy", quote(f.Policy)+" and queue: drop", "a queue in which those who are evicted wait: fifo or skip")
	}
	c := sim.PreemptionConfig{Policy: p, Grace: grace, KeepBudgets: r.yes("preemption.keep_budgets", f.KeepBudgets)}
	if f.Grace != "" {
		d, err := time.ParseDuration(string(f.Grace))
		if err != nil || d < 0 || d > maxGrace || d%time.Millisecond != 0 {
			r.wrong("preemption.grace", quote(f.Grace), fmt.Sprintf("a time such as 30s from 0s to %v in whole milliseconds", maxGrace))
		}
		c.Grace = d
	}
	return c
}

// standing is what the pods of a job, or of a generator, have in common when it comes to evictions.
type standing struct {
	priority   int32
	checkpoint time.Duration
	budget     *sim.Budget
}

// standing reads it. The name is that of the budget.
func (r *reader) standing(path string, f *standingFile, name string) standing {
	var s standing
	if f.Priority != "" {
		s.priority = int32(r.whole(path+".priority", f.Priority, math.MinInt32, math.MaxInt32))
	}
	if f.Checkpoint != "" {
		s.checkpoint = r.duration(path+".checkpoint", f.Checkpoint, time.Millisecond)
	}
	if f.MaxUnavailable != "" {
		s.budget = &sim.Budget{Name: name, MaxUnavailable: int(r.whole(path+".max_unavailable", f.MaxUnavailable, 0, maxJobs))}
	}
	return s
}

// give gives it to jobs.
func (s *standing) give(jobs []sim.Job) []sim.Job {
	for i := range jobs {
		jobs[i].Request.Priority, jobs[i].Checkpoint, jobs[i].Budget = s.priority, s.checkpoint, s.budget
	}
	return jobs
}
