package gangs

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// elasticRun plays elastic jobs under one policy. The scheduler starts jobs and places further workers, by the function
// that it has for gangs.
type elasticRun struct {
	*gangBook
	now, interval, restart float64
	nodes, perNode         int
	jobs                   []elasticJob
	policy                 elasticPolicy
}

// elasticPolicy decides once per interval which jobs should have which size.
type elasticPolicy interface {
	// sizes returns the sizes of the jobs that are there, and the order in which they change: jobs of the list by index.
	// A size of 0 lets a job wait.
	sizes(r *elasticRun, there []*elasticJob) (want, order []int, err error)
}

func newElasticRun(g *Training, p elasticPolicy, jobs []gangJob) (*elasticRun, error) {
	book, err := newGangBook(g.Nodes, g.GPUs)
	if err != nil {
		return nil, err
	}
	r := &elasticRun{
		gangBook: book, interval: g.Interval.Seconds(), restart: g.Restart.Seconds(), nodes: g.Nodes, perNode: g.GPUs, policy: p,
	}
	for i := range jobs {
		j := elasticJob{gangJob: jobs[i], name: fmt.Sprintf("default/job-%04d", jobs[i].id), left: 1}
		j.sizes = j.legalSizes(g.Nodes * g.GPUs)
		if len(j.sizes) == 0 {
			return nil, fmt.Errorf("job %d: no legal number of workers of %s was measured with a batch of %d", j.id, j.app.name, j.batch)
		}
		r.jobs = append(r.jobs, j)
	}
	return r, nil
}

// play runs until all jobs have ended.
func (r *elasticRun) play() error {
	left := len(r.jobs)
	for range mostGangRounds {
		if left == 0 {
			return nil
		}
		r.now += r.interval
		var there []*elasticJob
		for i := range r.jobs {
			j := &r.jobs[i]
			switch {
			case j.completed > 0 || j.arrive > r.now:
			case r.advance(j):
				left--
			default:
				there = append(there, j)
			}
		}
		want, order, err := r.policy.sizes(r, there)
		if err != nil {
			return err
		}
		for _, i := range order {
			if err := r.resize(there[i], want[i]); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%d jobs are left after %d intervals", left, mostGangRounds)
}

// advance lets a job work for an interval, and reports whether it ended.
func (r *elasticRun) advance(j *elasticJob) (ended bool) {
	if len(j.places) == 0 {
		return false
	}
	late := min(j.delay, r.interval)
	j.delay -= late
	train := min(j.left/j.rate, r.interval-late)
	j.left -= train * j.rate
	j.service += float64(len(j.places)) * (late + train)
	if j.left > gangRounding {
		return false
	}
	j.completed = r.now - r.interval + late + train
	r.remove(j, 0)
	return true
}

// remove takes the GPUs of the workers with the highest ranks away.
func (r *elasticRun) remove(j *elasticJob, size int) {
	for _, a := range j.places[size:] {
		r.cluster.Nodes[r.byName[a.Node]].Remove(a.UID)
	}
	j.places, j.nodes = j.places[:size:size], j.nodes[:size:size]
}

// resize gives a job another size, or as many more workers as there is room for, and lets it pay for that.
func (r *elasticRun) resize(j *elasticJob, size int) error {
	before := len(j.places)
	if size < before {
		r.remove(j, size)
	} else if err := r.add(j, size); err != nil {
		return err
	}
	switch {
	case len(j.places) == before:
		return nil
	case len(j.places) == 0:
		j.delay = 0
		return nil
	case j.started == 0:
		j.started, j.delay = r.now, r.restart
	default:
		j.delay = max(j.delay, j.cost)
		j.changes++
		j.moved = append(j.moved, int64(r.now))
	}
	j.rate = j.speed(j.nodes)
	return nil
}

// add places further workers as the scheduler does.
func (r *elasticRun) add(j *elasticJob, size int) error {
	g := &gang.Group{Name: j.name, Placed: j.places, MinCount: max(j.sizes[0], len(j.places)), Wishes: together}
	for rank := len(j.places); rank < size; rank++ {
		g.Members = append(g.Members, j.worker(rank))
	}
	plan, err := gang.Place(&r.cluster, g, gang.Config{})
	if err != nil || plan.Refused != nil {
		return err
	}
	places := slices.DeleteFunc(plan.Places, func(a vgpu.Assignment) bool { return a.Node == "" })
	for _, a := range places[:max(0, largest(j.sizes, len(j.places)+len(places))-len(j.places))] {
		node := r.byName[a.Node]
		if err := r.cluster.Nodes[node].Add(a); err != nil {
			return err
		}
		j.places, j.nodes = append(j.places, a), append(j.nodes, node)
	}
	return nil
}

// largest returns the largest size up to a number, 0 for none.
func largest(sizes []int, most int) int {
	i, found := slices.BinarySearch(sizes, most)
	switch {
	case found:
		return most
	case i == 0:
		return 0
	}
	return sizes[i-1]
}
