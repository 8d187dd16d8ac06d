package elastic

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Job is a training job. A job with one legal size is rigid: Workers never changes its size, but lets other jobs shrink
// for it while it waits.
type Job struct {
	// Name is "namespace/name". No two jobs have the same name.
	Name string
	// Priority orders the jobs that wait, the highest first.
	Priority int32
	// Arrived is the Unix time in seconds at which the job was submitted.
	Arrived int64
	// Started is the Unix time in seconds at which the job started to run, 0 for a job that waits.
	Started int64
	// Sizes are the legal numbers of workers, ascending and above 0. The first is the least number that may run. See
	// Steps.
	Sizes []int
	// Placed are the places of the workers that run, in the order of their ranks. A job without any waits. If their number
	// is no legal size, workers are missing, and Workers counts on their return.
	Placed []vgpu.Assignment
	// Worker is the request of each worker; its UID, Pod and Rank do not matter.
	Worker gang.Member
	// Wishes and Losses of the workers' gang, as in gang.Group.
	Wishes gang.Wishes
	Losses []gang.Loss
	// Curve is how fast the job is with how many workers.
	Curve Curve
	// Cost is the time in seconds for which the job does no work after a change of its size. The value is 0 for a job
	// whose workers join and leave while it runs.
	Cost float64
	// Remaining is the time in seconds that the job still takes with its fewest workers. 0 stands for an unknown time. See Lengths.
	Remaining float64
	// Moved are the Unix times in seconds of the last changes of the job's size, ascending.
	Moved []int64
}

// size returns the legal size that the job has: where workers are missing, the next larger one, since they come back. It
// is 0 for a job that waits.
func (j *Job) size() int {
	switch n := len(j.Placed); {
	case n == 0:
		return 0
	case n >= j.most():
		return j.most()
	default:
		return j.above(n - 1)
	}
}

// least and most return the bounds of the job's size.
func (j *Job) least() int { return j.Sizes[0] }
func (j *Job) most() int  { return j.Sizes[len(j.Sizes)-1] }

// Bounds of input. Beyond them it is taken for a mistake.
const (
	// MaxWorkers is the largest legal size.
	MaxWorkers = 1 << 16
	// maxSeconds bounds times, about 30 years.
	maxSeconds = 1e9
)

// Validate returns an error for a job that Workers cannot decide on.
func (j *Job) Validate() error {
	switch {
	case len(j.Sizes) == 0:
		return fmt.Errorf("validate job %s: no legal number of workers", j.Name)
	case j.Sizes[0] < 1 || j.most() > MaxWorkers:
		return fmt.Errorf("validate job %s: %d to %d workers, legal is 1 to %d", j.Name, j.Sizes[0], j.most(), MaxWorkers)
	case !ascends(j.Sizes):
		return fmt.Errorf("validate job %s: the numbers of workers %v do not ascend", j.Name, j.Sizes)
	case !(j.Cost >= 0 && j.Cost <= maxSeconds):
		return fmt.Errorf("validate job %s: a change of size costs %v seconds, legal is 0 to %g", j.Name, j.Cost, maxSeconds)
	case !(j.Remaining >= 0 && j.Remaining <= maxSeconds):
		return fmt.Errorf("validate job %s: %v seconds remain, legal is 0 to %g", j.Name, j.Remaining, maxSeconds)
	}
	if err := j.Curve.Validate(); err != nil {
		return fmt.Errorf("validate job %s: %w", j.Name, err)
	}
	worker := j.Worker.Request
	worker.UID = vgpu.UID(j.Name)
	if err := worker.Validate(); err != nil {
		return fmt.Errorf("validate job %s: %w", j.Name, err)
	}
	return nil
}

func ascends(sizes []int) bool {
	for i := 1; i < len(sizes); i++ {
		if sizes[i] <= sizes[i-1] {
			return false
		}
	}
	return true
}

// Steps returns the sizes from least to most in steps: 2, 4, 6, 8 for 2 to 9 in steps of 2. A job whose workers come in
// whole replica groups has steps of one group.
func Steps(least, most, step int) ([]int, error) {
	switch {
	case least < 1 || most > MaxWorkers:
		return nil, fmt.Errorf("list sizes: %d to %d workers, legal is 1 to %d", least, most, MaxWorkers)
	case least > most:
		return nil, fmt.Errorf("list sizes: at least %d workers and at most %d", least, most)
	case step < 1:
		return nil, fmt.Errorf("list sizes: steps of %d workers, legal is 1 or more", step)
	}
	var sizes []int
	for n := least; n <= most; n += step {
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// sizeBelow returns the largest legal size that is at most n, and false where there is none.
func (j *Job) sizeBelow(n int) (size int, legal bool) {
	i, found := slices.BinarySearch(j.Sizes, n)
	if found {
		i++
	}
	if i == 0 {
		return 0, false
	}
	return j.Sizes[i-1], true
}

// above returns the least legal size above n, which is less than the largest size.
func (j *Job) above(n int) int {
	i, _ := slices.BinarySearch(j.Sizes, n+1)
	return j.Sizes[i]
}
