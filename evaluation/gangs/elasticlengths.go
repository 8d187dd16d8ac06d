package gangs

import (
	"fmt"
	"math"

	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// lengths says how long jobs still take.
type lengths interface {
	// learn looks at the jobs that have ended since the last call.
	learn(r *elasticRun) error
	// remaining returns the seconds that a job still takes with its fewest workers.
	remaining(r *elasticRun, j *elasticJob) (float64, error)
}

// trueLengths are known beforehand.
type trueLengths struct{}

func (trueLengths) learn(*elasticRun) error { return nil }

func (trueLengths) remaining(r *elasticRun, j *elasticJob) (float64, error) {
	return j.left / j.speed(compactly(j.sizes[0], r.perNode)), nil
}

// predictedLengths are what the controller predicts, by the jobs that have ended in this run.
type predictedLengths struct {
	*elastic.Lengths
	ended map[int]bool
	// progress says that jobs tell how many hundredths of their work are done.
	progress bool
}

// newPredictedLengths knows no job.
func newPredictedLengths(progress bool) *predictedLengths {
	l, err := elastic.NewLengths()
	if err != nil {
		panic(err) // it has no input
	}
	return &predictedLengths{l, map[int]bool{}, progress}
}

func (l *predictedLengths) learn(r *elasticRun) error {
	for i := range r.jobs {
		j := &r.jobs[i]
		if j.completed == 0 || l.ended[j.id] {
			continue
		}
		l.ended[j.id] = true
		if err := l.Ended(alike(j), l.had(j), false); err != nil {
			return err
		}
	}
	return nil
}

func (l *predictedLengths) remaining(_ *elasticRun, j *elasticJob) (float64, error) {
	return l.Remaining(alike(j), l.had(j))
}

// hundredths are what jobs tell of their progress.
const hundredths = 100

func (l *predictedLengths) had(j *elasticJob) elastic.Had {
	h := elastic.Had{Served: j.service}
	if l.progress {
		h.Done = math.Floor((1-j.left)*hundredths) / hundredths
	}
	return h
}

// alike takes an application with a batch for the workload.
func alike(j *elasticJob) elastic.Alike {
	return elastic.Alike{Namespace: "default", Workload: fmt.Sprintf("%s-%d", j.app.name, j.batch), Least: j.sizes[0], Slots: int(slotsOfGPU)}
}
