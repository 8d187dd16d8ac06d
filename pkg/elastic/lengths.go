package elastic

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/lifetime"
)

// Alike is what jobs that take about as long have in common. A field that is not known is empty, or zero.
type Alike struct {
	// Namespace of the job, Workload that it runs, and Model of its GPUs. Names of workloads count across namespaces: a caller that wants to
	// tell those of two namespaces apart puts the namespace into the name.
	Namespace, Workload, Model string
	// Least is the least number of workers, Slots what each of them takes of devices.
	Least, Slots int
}

// Lengths predicts how long jobs still take, by those that have ended. It is not safe for concurrent use.
//
// The length of a job is the time that its workers had GPUs, added up, ÷ its least number of workers. So it is about the same whatever sizes
// the job had: less exactly so, the worse the job scales.
type Lengths struct {
	learner *lifetime.Learner
}

// NewLengths returns a Lengths that knows no job.
func NewLengths() (*Lengths, error) {
	learner, err := lifetime.NewLearner(lifetime.Defaults())
	return &Lengths{learner}, err
}

// Had is what a job has had and done so far.
type Had struct {
	// Served is for how many seconds its workers had GPUs, added up.
	Served float64
	// Done is the part of its work that the job has done in this time, 0 to 1, where that is certain. Projected is the length, as in Lengths,
	// to which point the job's own words, or by which they are judged once it has ended (lifetime.Progress). It counts where Done is 0. Zero
	// stands for nothing known.
	Done, Projected float64
}

// Ended learns from a job that no longer runs. A job that was stopped would have run longer.
func (l *Lengths) Ended(a Alike, h Had, stopped bool) error {
	length, pod, err := a.pod(h)
	if err != nil {
		return err
	}
	return l.learner.Observe(lifetime.Observation{Pod: pod, Length: length, Stopped: stopped})
}

// Remaining returns the seconds that a job still takes with its least number of workers, as in Job.Remaining: half of the jobs like it take
// longer. If no job has ended, a job takes for as long again as it had GPUs, or for about as long as its progress says.
func (l *Lengths) Remaining(a Alike, h Had) (float64, error) {
	age, pod, err := a.pod(h)
	if err != nil {
		return 0, err
	}
	curve, err := l.learner.Predict(pod, age)
	if err != nil {
		return 0, err
	}
	return min(max(1, curve.Quantile(.5)), maxSeconds), nil
}

// pod returns a job as the learner knows pods, with its age. The part of its work that a job has done by an age says how long it takes as a
// whole.
func (a Alike) pod(h Had) (age float64, p lifetime.Pod, err error) {
	if a.Least < 1 || a.Least > MaxWorkers {
		return 0, p, fmt.Errorf("length of a job: at least %d workers, legal is 1 to %d", a.Least, MaxWorkers)
	}
	if !(h.Done >= 0 && h.Done <= 1) {
		return 0, p, fmt.Errorf("length of a job: %v of the work is done, legal is 0 to 1", h.Done)
	}
	age = h.Served / float64(a.Least)
	projected := h.Projected
	if h.Done > 0 {
		projected = lifetime.Project(age, h.Done)
	}
	return age, lifetime.Pod{User: a.Namespace, Workload: a.Workload, Model: a.Model, Size: a.Least * a.Slots, Projected: projected}, nil
}
