package elastic

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/lifetime"
)

// Alike is what jobs that take about as long have in common. What is not known is empty, or zero.
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

// Ended learns from a job that no longer runs. Its workers had GPUs for so many seconds, added up. A job that was stopped would have run longer.
func (l *Lengths) Ended(a Alike, served float64, stopped bool) error {
	length, err := a.length(served)
	if err != nil {
		return err
	}
	return l.learner.Observe(lifetime.Observation{Pod: a.pod(), Length: length, Stopped: stopped})
}

// Remaining returns the seconds that a job still takes with its least number of workers, as in Job.Remaining: half of the jobs like it take
// longer. Where no job has ended, a job takes for as long again as it had GPUs.
func (l *Lengths) Remaining(a Alike, served float64) (float64, error) {
	age, err := a.length(served)
	if err != nil {
		return 0, err
	}
	curve, err := l.learner.Predict(a.pod(), age)
	if err != nil {
		return 0, err
	}
	return min(max(1, curve.Quantile(.5)), maxSeconds), nil
}

func (a Alike) length(served float64) (float64, error) {
	if a.Least < 1 || a.Least > MaxWorkers {
		return 0, fmt.Errorf("length of a job: at least %d workers, legal is 1 to %d", a.Least, MaxWorkers)
	}
	return served / float64(a.Least), nil
}

func (a Alike) pod() lifetime.Pod {
	return lifetime.Pod{User: a.Namespace, Workload: a.Workload, Model: a.Model, Size: a.Least * a.Slots}
}
