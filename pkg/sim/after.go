package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// validateOrder returns what is wrong with the jobs that come after others: these are there, end, and do not come after each other.
// jobs are the indexes by UID.
func (s *Setup) validateOrder(jobs map[vgpu.UID]int) error {
	for i := range s.Jobs {
		for k, steps := i, 0; s.Jobs[k].After != ""; steps++ {
			j := &s.Jobs[k]
			before, known := jobs[j.After]
			switch {
			case !known || before < 0:
				return fmt.Errorf("job %d (pod %s): comes after UID %q, which is that of no job", k, j.Request.Pod, j.After)
			case s.Jobs[before].Duration == 0:
				return fmt.Errorf("job %d (pod %s): comes after pod %s, which never ends", k, j.Request.Pod, s.Jobs[before].Request.Pod)
			case steps > len(s.Jobs):
				return fmt.Errorf("job %d (pod %s): comes after itself", i, s.Jobs[i].Request.Pod)
			}
			k = before
		}
	}
	return nil
}

// holdFollowers takes the jobs that come after others out of the arrivals, and notes after which.
func (e *engine) holdFollowers() {
	jobs := e.setup.Jobs
	e.arrivals = slices.DeleteFunc(e.arrivals, func(job int) bool {
		before := jobs[job].After
		if before == "" {
			return false
		}
		if e.followers == nil {
			e.followers = map[vgpu.UID][]int{}
			e.setup.Jobs = slices.Clone(jobs) // their times of arrival are those of this run
		}
		e.followers[before] = append(e.followers[before], job)
		return true
	})
}

// releaseFollowers makes the jobs arrive that come after one that has ended now.
func (e *engine) releaseFollowers(ended int) {
	for _, job := range e.followers[e.setup.Jobs[ended].Request.UID] {
		at := e.after(e.setup.Jobs[job].Arrive)
		for _, member := range e.unit(job) {
			e.setup.Jobs[member].Arrive, e.since[member], e.history.Outcomes[member].Arrived = at, at, at
		}
		if g := e.history.groupOf[job]; g != nil {
			g.since, e.history.Gangs[g.number].Arrived = at, at
		}
		i, _ := slices.BinarySearchFunc(e.arrivals, at, func(other int, at time.Duration) int {
			return cmp.Or(cmp.Compare(e.setup.Jobs[other].Arrive, at), -1)
		})
		e.arrivals = slices.Insert(e.arrivals, i, job)
	}
}
