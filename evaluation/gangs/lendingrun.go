package gangs

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// lendingRun plays jobs and fleets in one cluster. Time goes by in steps of inference.Interval.
type lendingRun struct {
	*gangBook
	*Lending
	now     float64
	jobs    []elasticJob
	fleets  []*servedFleet
	trainer trainer
	leaving []leaver
	// saved is what was left of each job at its last checkpoint, and savedAt when that was.
	saved, savedAt []float64
	replicas       int
	out            mixResult
	// audit is called after each step; nil for no check.
	audit func(r *lendingRun)
}

// leaver is a worker that has a device still, although its job does not count on it any more.
type leaver struct {
	vgpu.Assignment
	job   int
	until float64
	// killed says that it leaves before it has saved its state.
	killed bool
}

// play plays the rates of the day.
func (l *Lending) play(row *lendingRow, jobs []gangJob, seed int64) (mixResult, error) {
	loads := make([]inference.Load, l.Fleets)
	for i := range loads {
		loads[i] = l.Day
	}
	r, err := l.newRun(row, jobs, l.Before, loads, seed)
	if err != nil {
		return mixResult{}, err
	}
	if err := r.play(); err != nil {
		return mixResult{}, fmt.Errorf("policy %s with seed %d: %w", row.name, seed, err)
	}
	return r.sum(), nil
}

// newRun returns a run before its first step: the fleets have the replicas that they want by what was before.
func (l *Lending) newRun(row *lendingRow, jobs []gangJob, before inference.Load, loads []inference.Load, seed int64) (*lendingRun, error) {
	book, err := newGangBook(l.Nodes, l.GPUs)
	if err != nil {
		return nil, err
	}
	r := &lendingRun{gangBook: book, Lending: l, trainer: row.trains(), saved: slices.Repeat([]float64{1}, len(jobs)), savedAt: make([]float64, len(jobs))}
	if err := r.addJobs(jobs); err != nil {
		return nil, err
	}
	solo := row.share(l)
	wants := make([]int, len(loads))
	for i := range loads {
		f := l.fleet(i, solo)
		s := &servedFleet{Fleet: f, sizer: row.sizer(l, &f), slots: vgpu.Slots(slotsOf(solo.Share))}
		taught(s.sizer, &f, before, lendingStart, rand.New(rand.NewPCG(uint64(seed), uint64(100+i))))
		wants[i] = f.Variants[0].Wanted
		r.fleets = append(r.fleets, s)
	}
	if err := r.fillAll(wants); err != nil {
		return nil, err
	}
	truth := inference.Truth{LoadTimes: l.LoadTimes}
	for i, f := range r.fleets {
		if solo.Share < vgpu.WholeGPU {
			truth.Replicas = []traffic.Replica{f.Variants[0].Replica.Slowed(l.Neighbours)}
		}
		f.serve(truth, loads[i], uint64(seed)*1000+uint64(i))
	}
	return r, nil
}

func (r *lendingRun) addJobs(jobs []gangJob) error {
	for i := range jobs {
		j := elasticJob{gangJob: jobs[i], name: fmt.Sprintf("default/job-%04d", jobs[i].id), left: 1}
		if j.sizes = j.legalSizes(r.Nodes * r.GPUs); len(j.sizes) == 0 {
			return fmt.Errorf("job %d: no legal number of workers of %s was measured with a batch of %d", j.id, j.app.name, j.batch)
		}
		r.jobs = append(r.jobs, j)
	}
	return nil
}

// fillAll gives each fleet one replica, and then what it wants, as far as devices are idle.
func (r *lendingRun) fillAll(wants []int) error {
	for _, first := range []bool{true, false} {
		for i, f := range r.fleets {
			if f.wanted = wants[i]; first {
				f.wanted = 1
			}
			if err := r.fill(i); err != nil {
				return err
			}
			if len(f.placed) == 0 {
				return fmt.Errorf("%d fleets on %d GPUs: there is no room for a replica of each", len(r.fleets), r.Nodes*r.GPUs)
			}
		}
	}
	return nil
}

// play plays until the rates end.
func (r *lendingRun) play() error {
	defer func() {
		for _, f := range r.fleets {
			f.stop()
		}
	}()
	for {
		more, err := r.step()
		if err != nil || !more {
			return err
		}
	}
}

// step plays one interval. It reports whether the rates go on.
func (r *lendingRun) step() (more bool, err error) {
	held := 0.0
	for _, f := range r.fleets {
		held += float64(len(f.placed)) * float64(f.slots) / float64(slotsOfGPU)
		more = f.decide() || more
	}
	if !more {
		return false, nil
	}
	r.out.gpus += held
	r.out.hours += inference.Interval.Hours()
	r.now += inference.Interval.Seconds()
	there := r.advance()
	r.release()
	for i := range r.fleets {
		if err := r.fill(i); err != nil {
			return false, err
		}
	}
	if err := r.trainer.step(r, there); err != nil {
		return false, err
	}
	if r.audit != nil {
		r.audit(r)
	}
	return true, nil
}

// advance lets the jobs work for an interval, and returns those that are there.
func (r *lendingRun) advance() (there []int) {
	for i := range r.jobs {
		j := &r.jobs[i]
		if j.completed > 0 || j.arrive > r.now {
			continue
		}
		if len(j.places) > 0 {
			late := min(j.delay, inference.Interval.Seconds())
			j.delay -= late
			train := min(j.left/j.rate, inference.Interval.Seconds()-late)
			j.left -= train * j.rate
			j.service += float64(len(j.places)) * (late + train)
			if r.now-r.savedAt[i] >= r.Checkpoint.Seconds() {
				r.save(i)
			}
		}
		if j.left <= gangRounding {
			j.completed = r.now
			r.out.ended++
			r.drop(j.places)
			j.places = nil
			continue
		}
		there = append(there, i)
	}
	return there
}

func (r *lendingRun) save(i int) { r.saved[i], r.savedAt[i] = r.jobs[i].left, r.now }

// drop takes places out of the ledgers.
func (r *lendingRun) drop(places []vgpu.Assignment) {
	for _, a := range places {
		r.cluster.Nodes[r.byName[a.Node]].Remove(a.UID)
	}
}

// release takes out the workers whose time has come.
func (r *lendingRun) release() {
	r.leaving = slices.DeleteFunc(r.leaving, func(l leaver) bool {
		if l.until > r.now {
			return false
		}
		r.drop([]vgpu.Assignment{l.Assignment})
		if !l.killed {
			r.save(l.job)
		}
		return true
	})
}

// fill brings the replicas of a fleet to what is wanted, as far as devices are idle. The newest leave first.
func (r *lendingRun) fill(at int) error {
	f := r.fleets[at]
	if n := len(f.placed); n > f.wanted {
		r.drop(f.placed[f.wanted:])
		f.placed = f.placed[:f.wanted]
	}
	for f.missing() > 0 {
		m := r.replica(at)
		plan, err := gang.Place(&r.cluster, &gang.Group{Name: m.Request.Pod, Members: []gang.Member{m}, MinCount: 1}, gang.Config{SkipExplanation: true})
		if err != nil {
			return err
		}
		if plan.Refused != nil {
			break
		}
		if err := r.cluster.Nodes[r.byName[plan.Places[0].Node]].Add(plan.Places[0]); err != nil {
			return err
		}
		f.placed = append(f.placed, plan.Places[0])
		r.replicas++
		if len(f.since) > 0 {
			f.since = f.since[1:]
		}
	}
	for len(f.since) < f.missing() {
		f.since = append(f.since, r.now)
	}
	f.since = f.since[:f.missing()]
	return nil
}

// fleetPriority is the priority of replicas; jobs have 0.
const fleetPriority = 10

// replica is the request of the next replica of a fleet.
func (r *lendingRun) replica(at int) gang.Member {
	name := fmt.Sprintf("fleet-%02d-%06d", at, r.replicas)
	return gang.Member{Request: vgpu.Request{
		UID: vgpu.UID(name), Pod: name, Priority: fleetPriority, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: r.fleets[at].slots}},
	}}
}

// missing returns the slots that replicas wait for which have waited for so many seconds.
func (r *lendingRun) missing(seconds float64) (slots vgpu.Slots) {
	for _, f := range r.fleets {
		for _, since := range f.since {
			if r.now-since >= seconds {
				slots += f.slots
			}
		}
	}
	return slots
}

// shrink lets the workers of a job with the highest ranks leave. They have their devices until their state is saved.
func (r *lendingRun) shrink(i, size int) {
	j := &r.jobs[i]
	for _, a := range j.places[size:] {
		r.leaving = append(r.leaving, leaver{a, i, r.now + r.Notice.Seconds() + j.cost, false})
	}
	j.places, j.nodes = j.places[:size:size], j.nodes[:size:size]
	r.resized(i, true)
}

// resized sets the speed of a job after a change.
func (r *lendingRun) resized(i int, ran bool) {
	j := &r.jobs[i]
	switch {
	case len(j.places) == 0:
		j.delay = 0
		return
	case j.started == 0:
		j.started, j.delay = r.now, r.Restart.Seconds()
		r.savedAt[i] = r.now
	default:
		j.delay = max(j.delay, j.cost)
		if r.out.changes++; ran {
			j.moved = append(j.moved, lendingStart+int64(r.now))
		}
	}
	j.rate = j.speed(j.nodes)
}

// evict stops a job: its workers are killed after the grace period. It keeps what it can save in that time, or its last checkpoint.
func (r *lendingRun) evict(i int) {
	j := &r.jobs[i]
	for _, a := range j.places {
		r.leaving = append(r.leaving, leaver{a, i, r.now + r.Grace.Seconds(), true})
	}
	j.places, j.nodes = nil, nil
	r.out.preempted++
	r.lose(i)
	r.resized(i, true)
}

// lose takes from a job what it has not saved, where it needs longer to save it than the grace period.
func (r *lendingRun) lose(i int) {
	j := &r.jobs[i]
	if j.cost > r.Grace.Seconds() {
		r.out.lost += (r.saved[i] - j.left) * j.soloHours()
		j.left = r.saved[i]
	}
}

// soloHours is the work of a job: the GPU-hours that it takes with the workers that it asks for, alone and close together.
func (j *gangJob) soloHours() float64 { return j.expected * float64(j.workers) / 3600 }

// grow places workers of a job as the scheduler does, up to a size.
func (r *lendingRun) grow(i, size int) error {
	j := &r.jobs[i]
	before := len(j.places)
	g := &gang.Group{Name: j.name, Placed: j.places, MinCount: max(j.sizes[0], before), Wishes: together}
	for rank := before; rank < size; rank++ {
		m := j.worker(rank)
		m.Request.UID = vgpu.UID(fmt.Sprintf("%s-%d-%d", j.name, rank, int(r.now))) // one that leaves may still be there
		g.Members = append(g.Members, m)
	}
	plan, err := gang.Place(&r.cluster, g, gang.Config{SkipExplanation: true})
	if err != nil || plan.Refused != nil {
		return err
	}
	places := slices.DeleteFunc(plan.Places, func(a vgpu.Assignment) bool { return a.Node == "" })
	for _, a := range places[:max(0, largest(j.sizes, before+len(places))-before)] {
		node := r.byName[a.Node]
		if err := r.cluster.Nodes[node].Add(a); err != nil {
			return err
		}
		j.places, j.nodes = append(j.places, a), append(j.nodes, node)
	}
	if len(j.places) > before {
		r.resized(i, before > 0)
	}
	return nil
}

// newest returns the running job that started last, -1 for none.
func (r *lendingRun) newest(there []int) int {
	best := -1
	for _, i := range there {
		if j := &r.jobs[i]; len(j.places) > 0 && (best < 0 || cmp.Or(cmp.Compare(j.started, r.jobs[best].started), cmp.Compare(i, best)) > 0) {
			best = i
		}
	}
	return best
}

// leavingSlots returns the slots that workers hold which leave.
func (r *lendingRun) leavingSlots(killed bool) (slots vgpu.Slots) {
	for _, l := range r.leaving {
		if l.killed || !killed {
			slots += slotsOfGPU
		}
	}
	return slots
}

// sum returns what came of the run.
func (r *lendingRun) sum() mixResult {
	out := r.out
	out.gpus *= inference.Interval.Hours() / out.hours
	for _, f := range r.fleets {
		out.windows, out.broken = out.windows+f.result.Windows, out.broken+f.result.Broken
		out.requests, out.late = out.requests+f.result.Requests, out.late+f.result.Late
	}
	out.served = float64(out.requests) * r.whole().Latency.Hours()
	for i := range r.jobs {
		out.trained += (1 - r.jobs[i].left) * r.jobs[i].soloHours()
	}
	return out
}
