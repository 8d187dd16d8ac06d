package gangs

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
)

// nowhere is the node of a worker that has none.
const nowhere = -1

// gangJob is a job as a policy sees it. The policy does not know its duration, only the expectation of its user.
type gangJob struct {
	// id is its place in the order of arrival, and arrive its time in seconds.
	id     int
	arrive float64
	app    *gangApp
	// workers of one GPU each, which share a batch.
	workers int
	batch   int64
	// passes is how often it makes the progress of all epochs of its application, 0 for once.
	passes float64
	// least is the fewest workers that it has where sizes change, 0 for one.
	least int
	// nodes of the workers, by rank; nowhere for those that have none.
	nodes []int
	// service is the GPU-seconds that its workers had while all of them had a GPU.
	service float64
	// expected is the seconds that it takes on as few nodes as can hold it.
	expected float64
	// loss is as lossOf has it.
	loss int64
	// cost is the seconds in which it does no work after a start that is not its first one, or after a change of its
	// size.
	cost float64
	// moves counts the workers that got or lost a GPU.
	moves int
}

// work returns how many steps so many workers take for the job.
func (j *gangJob) work(workers int) float64 {
	return cmp.Or(j.passes, 1) * j.app.work(j.batch, workers)
}

// placed returns how many workers have a GPU.
func (j *gangJob) placed() int {
	n := 0
	for _, node := range j.nodes {
		if node != nowhere {
			n++
		}
	}
	return n
}

// waits reports whether a worker has no GPU.
func (j *gangJob) waits() bool { return slices.Contains(j.nodes, nowhere) }

// gangCluster is the policy's view of the cluster, and its means of action.
type gangCluster struct {
	// now is the time in seconds.
	now float64
	// perNode is the GPUs of each node, free how many of each have no worker.
	perNode int
	free    []int
	// jobs that have arrived and not ended, in the order of their arrival.
	jobs []*gangJob
}

// put gives a worker a GPU of a node.
func (c *gangCluster) put(j *gangJob, rank, node int) {
	if j.nodes[rank] != nowhere || c.free[node] < 1 {
		panic(fmt.Sprintf("put rank %d of job %d on node %d: it is on node %d, %d GPUs are free", rank, j.id, node, j.nodes[rank], c.free[node]))
	}
	j.nodes[rank] = node
	c.free[node]--
	j.moves++
}

// start gives every worker a GPU.
func (c *gangCluster) start(j *gangJob, nodes []int) {
	for rank, node := range nodes {
		c.put(j, rank, node)
	}
}

// stop takes the GPUs of all workers away. The job keeps its finished work.
func (c *gangCluster) stop(j *gangJob) {
	for rank, node := range j.nodes {
		if node != nowhere {
			c.free[node]++
			j.nodes[rank] = nowhere
			j.moves++
		}
	}
}

// idle returns how many GPUs have no worker.
func (c *gangCluster) idle() int {
	sum := 0
	for _, n := range c.free {
		sum += n
	}
	return sum
}

// gangPolicy decides which workers have which GPUs.
type gangPolicy interface {
	// The run calls round once per interval, without the jobs that have ended.
	round(c *gangCluster) error
}

// gangState is what becomes of a job.
type gangState struct {
	*gangJob
	// steps is the rest, of work in all. A step takes so many seconds since the job has all its workers, after delay
	// seconds.
	work, steps, step, delay float64
	seen                     int
	starts                   int
	// started is when the job had all its workers for the first time, completed when it ended; both in seconds.
	started, completed float64
}

// gangRun plays jobs under one policy.
type gangRun struct {
	cluster  gangCluster
	policy   gangPolicy
	interval float64
	restart  float64
	states   []gangState
	// held and trained are GPU-seconds: of workers with a GPU, and of those whose job did its work meanwhile.
	held, trained float64
}

// gangRounding bounds the error of sums of steps, as a part of a job's work. A job with less left has ended, and does
// not wait for a place to do nothing at.
const gangRounding = 1e-9

// mostGangRounds bounds a run: policies that leave work undone for so long leave it for ever.
const mostGangRounds = 200_000

// play runs until all jobs have ended. Policies decide at whole multiples of the interval; jobs end in between.
func (r *gangRun) play() error {
	left := len(r.states)
	for range mostGangRounds {
		if left == 0 {
			return nil
		}
		left -= r.advance()
		r.arrive()
		if err := r.policy.round(&r.cluster); err != nil {
			return err
		}
		r.settle()
	}
	return fmt.Errorf("%d jobs are left after %d intervals", left, mostGangRounds)
}

// advance lets an interval go by, and returns how many jobs ended in it.
func (r *gangRun) advance() (ended int) {
	r.cluster.now += r.interval
	for i := range r.states {
		s := &r.states[i]
		if s.completed > 0 {
			continue
		}
		had := float64(s.placed())
		if had < float64(s.workers) {
			r.held += had * r.interval
			continue
		}
		late := min(s.delay, r.interval)
		s.delay -= late
		train := min(s.steps*s.step, r.interval-late)
		s.steps -= train / s.step
		s.service += had * (late + train)
		r.held += had * (late + train)
		r.trained += had * train
		if s.steps <= gangRounding*s.work {
			s.steps, s.completed = 0, r.cluster.now-r.interval+late+train
			r.cluster.stop(s.gangJob)
			ended++
		}
	}
	return ended
}

// arrive lists the jobs that are there now.
func (r *gangRun) arrive() {
	r.cluster.jobs = r.cluster.jobs[:0]
	for i := range r.states {
		if s := &r.states[i]; s.completed == 0 && s.arrive <= r.cluster.now {
			r.cluster.jobs = append(r.cluster.jobs, s.gangJob)
		}
	}
}

// settle starts the jobs whose workers moved and that have all of them: they load their state first.
func (r *gangRun) settle() {
	for i := range r.states {
		s := &r.states[i]
		if s.moves == s.seen {
			continue
		}
		s.seen = s.moves
		if !s.waits() {
			s.step, s.delay = s.app.stepTime(s.batch, s.nodes), r.restart
			if s.starts > 0 {
				s.delay = s.cost
			} else {
				s.started = r.cluster.now
			}
			s.starts++
		}
	}
}

// jcts returns the hours from arrival to end, by job.
func (r *gangRun) jcts() []float64 {
	all := make([]float64, 0, len(r.states))
	for i := range r.states {
		all = append(all, (r.states[i].completed-r.states[i].arrive)/3600)
	}
	return all
}

// restarts counts the starts after the first one of each job.
func (r *gangRun) restarts() int {
	n := 0
	for i := range r.states {
		n += r.states[i].starts - 1
	}
	return n
}

// largePart: jobs are large that have this part of the GPUs.
const largePart = 4

// largeWait returns the mean hours from arrival to the first start of the jobs with so many workers or more, 0 where there are none.
func (r *gangRun) largeWait(workers int) float64 {
	var waits []float64
	for i := range r.states {
		if s := &r.states[i]; s.workers >= workers {
			waits = append(waits, (s.started-s.arrive)/3600)
		}
	}
	if len(waits) == 0 {
		return 0
	}
	return results.Mean(waits)
}

// newGangRun prepares a run of jobs, which stay as they are.
func newGangRun(g *Training, p gangPolicy, jobs []gangJob) *gangRun {
	r := &gangRun{policy: p, interval: g.Interval.Seconds(), restart: g.Restart.Seconds()}
	r.cluster = gangCluster{perNode: g.GPUs, free: slices.Repeat([]int{g.GPUs}, g.Nodes)}
	for _, j := range jobs {
		j.nodes = slices.Repeat([]int{nowhere}, j.workers)
		work := j.work(j.workers)
		r.states = append(r.states, gangState{gangJob: &j, work: work, steps: work})
	}
	return r
}

// compactly returns nodes for workers on as few nodes of an empty cluster as can hold them.
func compactly(workers, perNode int) []int {
	nodes := make([]int, workers)
	for rank := range nodes {
		nodes[rank] = rank / perNode
	}
	return nodes
}

// lossOf returns the part of its work that a gang loses on two nodes where it could be on one, else on twice as many
// nodes as it needs, in thousandths. The measured steps give it. The loss is 0 for a gang that gains by it.
func lossOf(app *gangApp, batch int64, workers, perNode int) int64 {
	together := compactly(workers, perNode)
	nodes := min(workers, 2*(together[workers-1]+1))
	apart := make([]int, workers)
	for rank := range apart {
		apart[rank] = rank * nodes / workers
	}
	part := 1 - app.stepTime(batch, together)/app.stepTime(batch, apart)
	return int64(math.Round(1000 * max(0, part)))
}
