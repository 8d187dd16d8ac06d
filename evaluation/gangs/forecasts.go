package gangs

import (
	"maps"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// forecasts predict when jobs end, as the scheduler does: from the jobs that ended before in the same run, by their application and size.
// No job has a user, and none says how far it has come.
type forecasts struct {
	learner *lifetime.Learner
	// jobs that run, by id, and the times at which they started.
	jobs    map[int]*gangJob
	started map[int]float64
	// ends are predicted since the time at; of are the jobs of pods.
	ends map[int]int64
	at   float64
	of   map[vgpu.UID]int
}

const (
	// surely is the probability with which a job has ended by its predicted end.
	surely = .9
	// enoughEnded is how many jobs have to have ended before any end is predicted.
	enoughEnded = 8
)

func newForecasts() (*forecasts, error) {
	learner, err := lifetime.NewLearner(lifetime.Defaults())
	return &forecasts{learner: learner, jobs: map[int]*gangJob{}, started: map[int]float64{}, of: map[vgpu.UID]int{}}, err
}

func lifetimeOf(j *gangJob) lifetime.Pod {
	return lifetime.Pod{Workload: j.app.name, Size: j.workers}
}

// begin notes that a job starts.
func (f *forecasts) begin(j *gangJob, now float64, pods []vgpu.UID) {
	f.jobs[j.id], f.started[j.id] = j, now
	for _, uid := range pods {
		f.of[uid] = j.id
	}
}

// learn learns from the jobs that have ended.
func (f *forecasts) learn(c *gangCluster) error {
	runs := make(map[int]bool, len(c.jobs))
	for _, j := range c.jobs {
		runs[j.id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		if runs[id] {
			continue
		}
		if err := f.learner.Observe(lifetime.Observation{Pod: lifetimeOf(f.jobs[id]), Length: c.now - f.started[id]}); err != nil {
			return err
		}
		delete(f.jobs, id)
	}
	f.ends, f.at = map[int]int64{}, c.now
	return nil
}

// end predicts when a job ends that has run since a time, 0 where too few have ended.
func (f *forecasts) end(j *gangJob, since float64) (int64, error) {
	if f.learner.Known(lifetimeOf(j)) < enoughEnded {
		return 0, nil
	}
	curve, err := f.learner.Predict(lifetimeOf(j), f.at-since)
	if err != nil {
		return 0, err
	}
	return int64(f.at + curve.Quantile(surely)), nil
}

// endOf predicts when a pod ends, 0 where that is not known.
func (f *forecasts) endOf(uid vgpu.UID) int64 {
	id, known := f.of[uid]
	j := f.jobs[id]
	if !known || j == nil {
		return 0
	}
	end, seen := f.ends[id]
	if !seen {
		end, _ = f.end(j, f.started[id]) // legal jobs have legal ages
		f.ends[id] = end
	}
	return end
}

// longest is what counts of a predicted length, in seconds.
const longest = 48 * 3600

// size predicts the GPU-seconds that a job takes.
func (f *forecasts) size(j *gangJob) float64 {
	curve, _ := f.learner.Predict(lifetimeOf(j), 0) // legal jobs can be predicted
	return curve.Mean(longest) * float64(j.workers)
}

// pays reports whether devices are kept for a job: it is predicted to take no more than the mean of the others that wait. A job that takes
// more delays them by more than it gains.
func (f *forecasts) pays(c *gangCluster, j *gangJob) bool {
	sum, others := 0.0, 0.0
	for _, o := range c.jobs {
		if o != j && o.waits() {
			sum, others = sum+f.size(o), others+1
		}
	}
	return others*f.size(j) <= sum || others == 0
}
