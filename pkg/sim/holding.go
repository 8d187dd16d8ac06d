package sim

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Holding is the time for which a job had a place.
type Holding struct {
	// Job is its index.
	Job int
	// From is when it got the place, To when it left it. To is that of the last event of the run for a job that never ends.
	From, To time.Duration
	// Assignment has the devices.
	Assignment vgpu.Assignment
}

// Holdings returns who had which place and when, in the order of their begin.
func (h *History) Holdings() []Holding {
	var all []Holding
	at := map[int]int{} // in all, by job
	for i := range h.log {
		switch e := &h.log[i]; e.what {
		case starts:
			at[e.job] = len(all)
			all = append(all, Holding{Job: e.job, From: e.at, To: -1, Assignment: h.starts[len(all)]})
		case ends, leaves:
			all[at[e.job]].To = e.at
		}
	}
	for i := range all {
		if all[i].To < 0 {
			all[i].To = h.Samples[len(h.Samples)-1].At
		}
	}
	return all
}

// Worked returns how much of its Duration a job, of an elastic gang the first member, has done at a time; of a job that never ends, how long
// it has run. Work that an eviction undid does not count, and work that it left counts once the job runs again.
func (h *History) Worked(job int, at time.Duration) time.Duration {
	o, j := &h.Outcomes[job], &h.setup.Jobs[job]
	switch g := h.groupOf[job]; {
	case o.State == Finished && o.Ended <= at:
		return j.Duration
	case g != nil && g.sizing != nil:
		return j.workedElastic(h.Gangs[g.number].Sizes, at)
	case !o.State.Placed() || o.Started >= at:
		return 0
	case j.Duration == 0:
		return at - o.Started
	}
	return j.Duration - (o.Ended - at)
}

// workedElastic adds up the work of the sizes of an elastic gang until a time.
func (j *Job) workedElastic(sizes []Size, at time.Duration) time.Duration {
	done := 0.0
	for i, s := range sizes {
		until := at
		if i+1 < len(sizes) {
			until = min(at, sizes[i+1].At)
		}
		if s.At >= at {
			break
		}
		if s.Workers == 0 {
			done = j.saves(done)
		}
		done += s.Speed * float64(max(0, until-max(s.At, s.Works)))
	}
	return time.Duration(done)
}
