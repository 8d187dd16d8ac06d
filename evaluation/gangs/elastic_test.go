package gangs

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

// auditedSizes checks the state of the cluster whenever the policy decides.
type auditedSizes struct {
	elasticPolicy
	t *rapid.T
	// work is the part of each job that its places have done, at the last decision.
	seconds map[int]float64
}

func (a *auditedSizes) sizes(r *elasticRun, there []*elasticJob) (want, order []int, err error) {
	used := 0
	for _, j := range there {
		if n := len(j.places); n > 0 && !slices.Contains(j.sizes, n) || n != len(j.nodes) {
			a.t.Fatalf("job %d has %d workers on %v, its sizes are %v", j.id, n, j.nodes, j.sizes)
		}
		used += len(j.places)
		a.seconds[j.id] += r.interval * float64(len(j.places))
	}
	for _, n := range r.cluster.Nodes {
		must.OK(a.t, n.Check())
		used -= len(n.Assignments())
	}
	if used != 0 {
		a.t.Fatalf("the jobs have %d workers more than the ledgers", used)
	}
	return a.elasticPolicy.sizes(r, there)
}

// TestPropertyElastic: under every policy each job has a legal number of workers, those of the ledgers. Every job ends,
// not before its work can be done, and its GPU time is that of its workers.
func TestPropertyElastic(t *testing.T) {
	apps := t4Apps(t)
	for _, row := range elasticPolicies {
		if row.make == nil {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g, jobs := drawnGangs(t, apps)
				for i := range jobs {
					// Policies that do not weigh costs may change sizes in each interval: then a job that loses the
					// whole interval never ends.
					jobs[i].cost = g.Interval.Seconds() * float64(rapid.IntRange(0, 9).Draw(t, "cost")) / 10
					if strings.HasPrefix(row.name, "goodput") {
						jobs[i].cost = float64(rapid.IntRange(0, 200).Draw(t, "cost"))
					}
				}
				a := &auditedSizes{row.make(), t, map[int]float64{}}
				r, err := newElasticRun(g, a, jobs)
				must.OK(t, err)
				must.OK(t, r.play())
				for i := range r.jobs {
					j := &r.jobs[i]
					best := 0.0
					for _, n := range j.sizes {
						for on := 1; on <= min(n, g.Nodes); on++ {
							if n <= on*g.GPUs {
								best = max(best, j.speed(evenly(n, on, g.GPUs)))
							}
						}
					}
					if took := j.completed - j.started; j.started < j.arrive || took < min(g.Restart.Seconds(), j.cost)+.5/best {
						t.Fatalf("job %d runs for %v s from %v s on, it arrived at %v s and takes %v s at its fastest", j.id, took, j.started, j.arrive, 1/best)
					}
					if j.service > a.seconds[j.id]+r.interval*float64(j.sizes[len(j.sizes)-1]) {
						t.Fatalf("job %d had GPUs for %v s, its workers for %v s", j.id, j.service, a.seconds[j.id])
					}
				}
			})
		})
	}
}

// TestElasticWork is a job of 18 steps of 1.25 s on two workers, of two sizes. It arrives at once, starts at 60 s with as
// many workers as are free, and loads its state for 30 s.
func TestElasticWork(t *testing.T) {
	g := training(t)
	jobs, err := g.jobs(t4Apps(t), jobsFile(t, "oak-0,10,oak,2,8"))
	must.OK(t, err)
	r, err := newElasticRun(g, &fixedSizes{2}, jobs)
	must.OK(t, err)
	must.OK(t, r.play())
	if j := &r.jobs[0]; j.started != 60 || math.Abs(j.completed-112.5) > 1e-9 || j.changes != 0 {
		t.Errorf("the job starts at %v s and ends at %v s after %d changes, want 60, 112.5, 0", j.started, j.completed, j.changes)
	}
}

// fixedSizes gives every job so many workers.
type fixedSizes struct{ workers int }

func (f *fixedSizes) sizes(_ *elasticRun, there []*elasticJob) (want, order []int, err error) {
	for i := range there {
		want = append(want, f.workers)
		if len(there[i].places) == 0 {
			order = append(order, i)
		}
	}
	return want, order, nil
}

// TestPolluxLike: two jobs that speed up alike share the GPUs, and a job that a change would cost its whole age stays.
func TestPolluxLike(t *testing.T) {
	g := training(t)
	jobs, err := g.jobs(t4Apps(t), jobsFile(t, "oak-0,0,oak,4,16\noak-1,0,oak,4,16"))
	must.OK(t, err)
	r, err := newElasticRun(g, nil, jobs)
	must.OK(t, err)
	r.now = 60
	p := &polluxLike{known: known{}}
	there := []*elasticJob{&r.jobs[0], &r.jobs[1]}
	want, order, err := p.sizes(r, there)
	if err != nil || want[0] != want[1] || want[0] < 1 {
		t.Fatalf("two equal jobs get %v workers, %v", want, err)
	}
	for _, i := range order {
		must.OK(t, r.resize(there[i], 1))
		there[i].cost = 1000
	}
	if want, _, err = p.sizes(r, there); err != nil || !cmp.Equal(want, []int{1, 1}) {
		t.Errorf("after a minute, with a cost of 1000 s, the sizes are %v, %v", want, err)
	}
}

// TestRoundRobin: of two jobs of the whole cluster each runs for ten minutes in turn.
func TestRoundRobin(t *testing.T) {
	g := training(t)
	jobs, err := g.jobs(t4Apps(t), jobsFile(t, "oak-0,0,oak,4,16\noak-1,0,oak,4,16"))
	must.OK(t, err)
	r, err := newElasticRun(g, nil, jobs)
	must.OK(t, err)
	p := &roundRobin{}
	there := []*elasticJob{&r.jobs[0], &r.jobs[1]}
	var runs []int
	for r.now = 60; r.now <= 1860; r.now += 300 {
		want, order, err := p.sizes(r, there)
		must.OK(t, err)
		for _, i := range order {
			must.OK(t, r.resize(there[i], want[i]))
		}
		runs = append(runs, slices.IndexFunc(there, func(j *elasticJob) bool { return len(j.places) > 0 }))
	}
	if diff := cmp.Diff([]int{0, 0, 1, 1, 0, 0, 1}, runs); diff != "" {
		t.Errorf("which job runs every five minutes: %s", diff)
	}
}

// TestAlone: with three jobs on average a job has a third of the GPUs. Alone on a quarter of a GPU it takes four times as
// long as on one.
func TestAlone(t *testing.T) {
	g := training(t)
	jobs, err := g.jobs(t4Apps(t), jobsFile(t, "oak-0,0,oak,2,8"))
	must.OK(t, err)
	s := &stay{&jobs[0], 10, 110}
	one := 1/jobs[0].speed([]int{0}) + g.Restart.Seconds()
	if got := g.alone(s, float64(g.Nodes*g.GPUs)); math.Abs(got-one) > 1e-9 {
		t.Errorf("on one GPU it takes %v s, want %v", got, one)
	}
	if got := g.alone(s, float64(4*g.Nodes*g.GPUs)) - g.Restart.Seconds(); math.Abs(got-4*(one-g.Restart.Seconds())) > 1e-9 {
		t.Errorf("on a quarter of a GPU it works for %v s, want %v", got, 4*(one-g.Restart.Seconds()))
	}
	stays := []stay{{&gangJob{}, 0, 100}, {&gangJob{arrive: 50}, 50, 200}, {&gangJob{arrive: 100}, 100, 150}}
	if got := meanJobs(stays, &stays[0]); got != 1.5 {
		t.Errorf("while the first job is there, there are %v jobs, want 1.5", got)
	}
}
