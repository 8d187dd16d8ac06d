package lifetimes

import (
	"cmp"
	"slices"
)

// ages at which a job that is still running is predicted, in seconds. Ages that depend on the length, such as half of it, would tell the
// predictions something: among jobs seen at an age, short ones would be too many.
var ages = []float64{0, 600, 3600, 6 * 3600}

// moment is a job at an age, to be predicted from what ended before.
type moment struct {
	job *job
	age float64
}

func (m moment) at() float64        { return m.job.start + m.age }
func (m moment) remaining() float64 { return m.job.length - m.age }

// momentsOf returns the moments of the jobs in the order of time.
func momentsOf(jobs []job) []moment {
	var all []moment
	for i := range jobs {
		for _, age := range ages {
			if age < jobs[i].length {
				all = append(all, moment{&jobs[i], age})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.at(), b.at()) })
	return all
}

// byEnd returns the jobs in the order in which they ended.
func byEnd(jobs []job) []*job {
	all := make([]*job, len(jobs))
	for i := range jobs {
		all[i] = &jobs[i]
	}
	slices.SortStableFunc(all, func(a, b *job) int { return cmp.Compare(a.end(), b.end()) })
	return all
}
