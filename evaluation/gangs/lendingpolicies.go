package gangs

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// trainer decides on the jobs that are there, by index, after the replicas have got the idle devices.
type trainer interface {
	step(r *lendingRun, there []int) error
}

// lendingRow is a policy with its name.
type lendingRow struct {
	name string
	// shared: replicas have shares of devices, not whole ones.
	shared bool
	sizer  func(l *Lending, f *traffic.Fleet) sizer
	trains func() trainer
}

// lendingRows are in the order in which they are shown. The first is the base.
var lendingRows = []lendingRow{
	{"static, in order", false, sizedForPeak, func() trainer { return &wholeGangs{} }},
	{"static, others pass", false, sizedForPeak, func() trainer { return &wholeGangs{pass: true} }},
	{"HPA, in order", false, autoscaler, func() trainer { return &wholeGangs{evict: true} }},
	{"HPA, others pass", false, autoscaler, func() trainer { return &wholeGangs{pass: true, evict: true} }},
	{"tandem, not lent", true, decidedSizes, func() trainer { return &borrowers{keeps: true} }},
	{"tandem", true, decidedSizes, func() trainer { return &borrowers{} }},
}

// share returns what was measured of the share that replicas have.
func (w *lendingRow) share(l *Lending) *measurements.Solo {
	if w.shared {
		return l.best()
	}
	return l.whole()
}

func decidedSizes(*Lending, *traffic.Fleet) sizer { return &decided{} }

func autoscaler(l *Lending, _ *traffic.Fleet) sizer {
	return &autoscaled{inference.HPA{Utilisation: l.Utilisation}}
}

// sizedForPeak is a fixed size that serves, within the promise, the highest rate that was seen before.
func sizedForPeak(l *Lending, f *traffic.Fleet) sizer {
	v, n := &f.Variants[0], 1
	for n < v.Most && float64(n)*v.Replica.Capacity(f.Promise) < slices.Max(l.Before.Rates) {
		n++
	}
	return fixedSize(n)
}

// wholeGangs trains jobs with the workers that they ask for, in the order of their arrival.
type wholeGangs struct {
	// pass: a job that does not fit lets others pass. evict: jobs are stopped for replicas that wait, the newest first.
	pass, evict bool
}

func (w *wholeGangs) step(r *lendingRun, there []int) error {
	if w.evict {
		for r.missing(0) > r.leavingSlots(false) {
			i := r.newest(there)
			if i < 0 {
				break
			}
			r.evict(i)
		}
	}
	for _, i := range there {
		j := &r.jobs[i]
		if len(j.places) > 0 {
			continue
		}
		if j.sizes = []int{j.workers}; r.missing(0) == 0 {
			if err := r.grow(i, j.workers); err != nil {
				return err
			}
		}
		if len(j.places) == 0 && !w.pass {
			return nil
		}
	}
	return nil
}

// borrowers trains elastic jobs with what fleets do not need: what package elastic decides, which knows what they will need.
type borrowers struct {
	// keeps: devices that fleets will need are not lent.
	keeps bool
}

func (b *borrowers) step(r *lendingRun, there []int) error {
	r.preempt(there)
	jobs, view := r.elasticJobs(there), r.withoutLeaving()
	plan, err := elastic.Workers(view, jobs, b.reserved(r), lendingStart+int64(r.now), elastic.Config{})
	if err != nil {
		return err
	}
	for _, k := range plan.Order {
		if k >= len(there) {
			continue // a replica
		}
		i, t := there[k], &plan.Targets[k]
		if t.Err != nil {
			return t.Err
		}
		if n := len(r.jobs[i].places); t.Workers < n {
			r.shrink(i, t.Workers)
		} else if err := r.grow(i, t.Workers); err != nil {
			return err
		}
	}
	return nil
}

// elasticJobs are the jobs that are there, and then the replicas that wait.
func (r *lendingRun) elasticJobs(there []int) []elastic.Job {
	jobs := make([]elastic.Job, 0, len(there))
	for _, i := range there {
		j := &r.jobs[i]
		started := int64(0)
		if j.started > 0 {
			started = lendingStart + int64(j.started)
		}
		jobs = append(jobs, elastic.Job{
			Name: j.name, Arrived: lendingStart + int64(j.arrive), Started: started, Sizes: j.sizes, Placed: j.places,
			Worker: j.worker(0), Wishes: together, Curve: j.curve(r.GPUs), Cost: j.cost, Moved: j.moved,
		})
	}
	for at, f := range r.fleets {
		for k, since := range f.since {
			jobs = append(jobs, elastic.Job{
				Name: fmt.Sprintf("pod fleet-%02d-%03d", at, k), Priority: fleetPriority, Arrived: lendingStart + int64(since), Sizes: []int{1}, Worker: r.replica(at),
			})
		}
	}
	return jobs
}

// curve returns the measured speeds, and computes them once.
func (j *elasticJob) curve(perNode int) elastic.Curve {
	if j.known.Points == nil {
		j.known = j.measuredCurve(perNode)
	}
	return j.known
}

// withoutLeaving returns the cluster as it will be when the workers that leave are gone: jobs do not shrink again for the same replicas.
func (r *lendingRun) withoutLeaving() *gang.Cluster {
	c := r.cluster
	c.Nodes = slices.Clone(c.Nodes)
	cloned := map[int]bool{}
	for _, l := range r.leaving {
		at := r.byName[l.Node]
		if !cloned[at] {
			c.Nodes[at], cloned[at] = c.Nodes[at].Clone(), true
		}
		c.Nodes[at].Remove(l.UID)
	}
	return &c
}

// reserved returns what fleets will need, as the controller does.
func (b *borrowers) reserved(r *lendingRun) (all []elastic.Reserved) {
	for _, f := range r.fleets {
		one := vgpu.MilliGPU(int64(f.slots) * int64(vgpu.WholeGPU) / int64(slotsOfGPU))
		all = append(all, elastic.ReservedFor("GPU", one, f.wanted, f.later)...)
	}
	if b.keeps {
		for i := range all {
			all[i].From = 0
		}
	}
	return all
}

// preempt kills workers for replicas that have waited for longer than jobs may take to give devices back: first those that leave anyway, then
// the newest job as a whole.
func (r *lendingRun) preempt(there []int) {
	for r.missing(elastic.DefaultGiveBack) > r.leavingSlots(true) {
		at := slices.IndexFunc(r.leaving, func(l leaver) bool { return !l.killed })
		if at >= 0 {
			l := &r.leaving[at]
			l.killed = true
			if sooner := r.now + r.Grace.Seconds(); sooner < l.until {
				l.until = sooner
				r.out.preempted++
				r.lose(l.job)
			}
			continue
		}
		i := r.newest(there)
		if i < 0 {
			return
		}
		r.evict(i)
	}
}
