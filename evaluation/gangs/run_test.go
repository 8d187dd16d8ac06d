package gangs

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/test/must"
)

// audited looks at what another policy does, and writes it down: where the workers of each job are after each round.
type audited struct {
	gangPolicy
	t       rapid.TB
	partial bool
	rounds  []map[int]seat
}

// seat is where the workers of a job are, and how often they moved.
type seat struct {
	nodes []int
	moves int
}

func (a *audited) round(c *gangCluster) error {
	if err := a.gangPolicy.round(c); err != nil {
		return err
	}
	used := make([]int, len(c.free))
	seats := map[int]seat{}
	for _, j := range c.jobs {
		if n := j.placed(); n != 0 && n != j.workers && !a.partial {
			a.t.Fatalf("at %v s job %d has %d of %d workers", c.now, j.id, n, j.workers)
		}
		for _, n := range j.nodes {
			if n != nowhere {
				used[n]++
			}
		}
		seats[j.id] = seat{slices.Clone(j.nodes), j.moves}
	}
	for n := range used {
		if used[n] > c.perNode || c.free[n] != c.perNode-used[n] {
			a.t.Fatalf("at %v s node %d has %d workers and %d free of %d GPUs", c.now, n, used[n], c.free[n], c.perNode)
		}
	}
	a.rounds = append(a.rounds, seats)
	return a.ledgers(c)
}

// ledgers compares the ledgers that the scheduler decides by with where the workers are.
func (a *audited) ledgers(c *gangCluster) error {
	var b *gangBook
	switch p := a.gangPolicy.(type) {
	case *tandemGangs:
		b = p.gangBook
	case *preemptive:
		b = p.book
	}
	if b == nil {
		return nil
	}
	for n, node := range b.cluster.Nodes {
		if err := node.Check(); err != nil {
			return err
		}
		taken, of := node.Taken()
		if int(of) != c.perNode*int(slotsOfGPU) || int(taken) != (c.perNode-c.free[n])*int(slotsOfGPU) {
			return fmt.Errorf("node %d has %d of %d slots taken, %d of %d GPUs free", n, taken, of, c.free[n], c.perNode)
		}
	}
	return nil
}

// hours plays what was written down once more, job by job, and returns when each should have ended.
func (a *audited) hours(g *Training, j *gangState) float64 {
	steps, delay, interval := j.work, 0.0, g.Interval.Seconds()
	moves := 0
	for k, seats := range a.rounds {
		s, there := seats[j.id]
		if !there || slices.Contains(s.nodes, nowhere) {
			continue
		}
		now := float64(k+1) * interval
		if s.moves != moves {
			moves, delay = s.moves, g.Restart.Seconds()
		}
		per := j.app.stepTime(j.batch, s.nodes)
		loads := min(delay, interval)
		delay -= loads
		if need := steps * per; need < interval-loads+1e-9 {
			return now + loads + need
		}
		steps -= (interval - loads) / per
	}
	return math.NaN()
}

// drawnGangs draws jobs and a cluster that holds each of them.
func drawnGangs(t *rapid.T, apps map[string]*gangApp) (*Training, []gangJob) {
	g := &Training{
		Nodes: rapid.IntRange(1, 5).Draw(t, "nodes"), GPUs: rapid.IntRange(1, 4).Draw(t, "GPUs"),
		Interval: time.Duration(rapid.IntRange(1, 60).Draw(t, "interval")) * time.Second,
		Restart:  time.Duration(rapid.IntRange(0, 90).Draw(t, "restart")) * time.Second,
	}
	var jobs []gangJob
	for range rapid.IntRange(1, 12).Draw(t, "jobs") {
		app := apps[rapid.SampledFrom([]string{"oak", "elm"}).Draw(t, "app")]
		j := gangJob{app: app, cost: g.Restart.Seconds(), workers: rapid.IntRange(1, min(8, g.Nodes*g.GPUs)).Draw(t, "workers"), batch: rapid.Int64Range(8, 32).Draw(t, "batch")}
		j.arrive = float64(rapid.IntRange(0, 600).Draw(t, "arrive"))
		if app.legal(j.batch, j.workers) != nil {
			continue
		}
		j.expected = app.work(j.batch, j.workers) * app.stepTime(j.batch, compactly(j.workers, g.GPUs))
		j.loss = lossOf(app, j.batch, j.workers, g.GPUs)
		jobs = append(jobs, j)
	}
	return g, inArrival(jobs)
}

// TestPropertyGangs: under every policy there are never more workers on a node than GPUs, a job has all its workers or none
// (but pod by pod), every job ends, and it ends when the work is done that its places give: no more and no less.
func TestPropertyGangs(t *testing.T) {
	apps := t4Apps(t)
	for _, name := range Policies() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g, jobs := drawnGangs(t, apps)
				p, err := gangPolicyOf(g, name, rapid.Int64().Draw(t, "seed"))
				must.OK(t, err)
				a := &audited{gangPolicy: p, t: t, partial: name == stockGangs}
				r := newGangRun(g, a, jobs)
				must.OK(t, r.play())
				for i := range r.states {
					s := &r.states[i]
					if want := a.hours(g, s); !(math.Abs(s.completed-want) < 1e-6) || s.starts < 1 {
						t.Fatalf("job %d of %s ends at %v s after %d starts, its places give %v s", i, s.app.name, s.completed, s.starts, want)
					}
				}
				if r.trained > r.held+1e-6 || r.cluster.idle() != g.Nodes*g.GPUs {
					t.Fatalf("%v s of work in %v s of GPUs, %d GPUs free in the end", r.trained, r.held, r.cluster.idle())
				}
			})
		})
	}
}

// TestGangRounds: a job of 18 steps of 1.25 s that arrives 70 s after the start is seen at 120 s, and has loaded its state at
// 150 s, so it ends at 172.5 s.
func TestGangRounds(t *testing.T) {
	g := training(t)
	jobs, err := g.jobs(t4Apps(t), jobsFile(t, "oak-0,70,oak,2,8"))
	must.OK(t, err)
	p, err := gangPolicyOf(g, "tandem", 1)
	must.OK(t, err)
	r := newGangRun(g, p, jobs)
	must.OK(t, r.play())
	if got := r.jcts()[0] * 3600; math.Abs(got-102.5) > 1e-9 || r.restarts() != 0 {
		t.Errorf("it takes %v s and %d restarts, want 102.5 and none", got, r.restarts())
	}
	if math.Abs(r.held-105) > 1e-9 || math.Abs(r.trained-45) > 1e-9 {
		t.Errorf("two GPUs work for %v of %v GPU-seconds, want 45 of 105", r.trained, r.held)
	}
}

// TestGangIsDoneButForRounding: three times 0.1 s of 0.3 s leave 3e-17 s, and a job that had its GPU for 0.1 + 0.9 s has not had more.
func TestGangIsDoneButForRounding(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		work, interval, delay float64
		rounds                int
	}{{.3, .1, 0, 3}, {.3, .1, .1, 4}, {1, .7, .1, 2}, {1.3, .7, .1, 2}, {1.3 + 1e-6, .7, .1, 3}} {
		job := gangJob{app: t4Apps(t)["oak"], workers: 1, nodes: []int{0}}
		r := &gangRun{interval: tc.interval, cluster: gangCluster{free: []int{0}}, states: []gangState{{gangJob: &job, work: tc.work, steps: tc.work, step: 1, delay: tc.delay}}}
		rounds := 1
		for r.advance() == 0 && rounds < 9 {
			rounds++
		}
		if got, want := r.states[0].completed, tc.delay+tc.work; rounds != tc.rounds || math.Abs(got-want) > 1e-9 {
			t.Errorf("%+v: done after %d intervals at %v s, want %v s", tc, rounds, got, want)
		}
	}
}

func TestGangsAreTheSameEveryTime(t *testing.T) {
	text := func(processors int) string {
		before := runtime.GOMAXPROCS(processors)
		defer runtime.GOMAXPROCS(before)
		g := training(t)
		g.Loads = []float64{.5, 3}
		out, err := g.Run()
		must.OK(t, err)
		var b bytes.Buffer
		must.OK(t, report.JSON(&b, out))
		return b.String()
	}
	if one, eight := text(1), text(8); one != eight {
		t.Errorf("one processor and eight differ:\n%s", cmp.Diff(one, eight))
	}
}

// TestGangsCompare: the hours are those of the jobs by workload, gains are against the default scheduler with the same seed,
// which need not be in the list, and policies that do not draw are the same for all seeds.
func TestGangsCompare(t *testing.T) {
	g := training(t)
	out, err := g.Run()
	must.OK(t, err)
	batches, _, err := g.prepare()
	must.OK(t, err)
	row := func(name string) results.TrainingResult {
		return out.Results[slices.IndexFunc(out.Results, func(r results.TrainingResult) bool { return r.Policy == name })]
	}
	var hours, gains [2][]float64
	var means []float64
	for _, seed := range g.Seeds {
		mean := 0.0
		for b := range batches {
			of, err := g.play("tandem", batches[b].jobs(seed), seed)
			must.OK(t, err)
			base, err := g.play(stockGangs, batches[b].jobs(seed), seed)
			must.OK(t, err)
			hours[b] = append(hours[b], results.Mean(of.jcts))
			gains[b] = append(gains[b], results.Mean(base.jcts)/results.Mean(of.jcts))
			mean += results.Mean(of.jcts) / 2
		}
		means = append(means, mean)
	}
	var gain []float64
	for i := range g.Seeds {
		gain = append(gain, (gains[0][i]+gains[1][i])/2)
	}
	got := row("tandem")
	want := results.TrainingResult{
		Policy: "tandem", Hours: []results.Spread{results.SpreadOf(hours[0]), results.SpreadOf(hours[1])}, MeanHours: results.SpreadOf(means),
		Gain: results.SpreadOf(gain), GainUnstuck: got.GainUnstuck, Idle: got.Idle, LargeWait: got.LargeWait,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tandem (-want +got):\n%s", diff)
	}
	if got.MeanHours.SD != 0 || row(stockGangs).Restarts.Mean != 0 || row(stockGangs).Gain != (results.Spread{Mean: 1}) || row(stockGangs).GainUnstuck != (results.Spread{Mean: 1}) {
		t.Errorf("tandem %+v, kubernetes %+v", got, row(stockGangs))
	}
	g.Policies = []string{"tandem"}
	if out, err = g.Run(); err != nil || len(out.Results) != 1 || !cmp.Equal(out.Results[0], got) {
		t.Errorf("without kubernetes %+v, %v; want %+v", out, err, got)
	}
}

// TestGangGains: of two columns with one seed, the second job of the first is stuck by default: 6 ÷ 3 and 4 ÷ 2 hours are gained,
// without the stuck one 2 ÷ 2 and 4 ÷ 2.
func TestGangGains(t *testing.T) {
	run := func(restarts int, stuck map[int]bool, jcts ...float64) gangResult {
		return gangResult{outcome: outcome{jcts: jcts, stuck: stuck}, restarts: restarts}
	}
	base := grid[gangResult]{{run(0, map[int]bool{1: true}, 2, 10), run(0, nil, 4, 4)}}
	got := gangsComparedTo(base, "some", grid[gangResult]{{run(3, nil, 2, 4), run(0, nil, 1, 3)}})
	if got.Gain.Mean != 2 || got.GainUnstuck.Mean != 1.5 || got.Restarts.Mean != 1.5 || got.MeanHours.Mean != 2.5 || got.Hours[1].Mean != 2 {
		t.Errorf("%+v", got)
	}
}

// TestLargeWait: of three jobs, those of two workers and more wait for 1 and 3 hours.
func TestLargeWait(t *testing.T) {
	r := &gangRun{}
	for i, workers := range []int{1, 2, 4} {
		r.states = append(r.states, gangState{gangJob: &gangJob{workers: workers, arrive: 3600}, started: 3600 * float64(1+[]int{9, 1, 3}[i])})
	}
	if got := r.largeWait(2); got != 2 {
		t.Errorf("they wait for %v h, want 2", got)
	}
	if got := r.largeWait(5); got != 0 {
		t.Errorf("none of five workers wait for %v h", got)
	}
}

// TestGangLoads: a load draws as many times as many jobs as a workload has on average, each once before any comes twice, and
// the same for all policies.
func TestGangLoads(t *testing.T) {
	g := training(t)
	g.Loads = []float64{.1, 1, 2, 5}
	batches, out, err := g.prepare()
	must.OK(t, err)
	if diff := cmp.Diff([]string{"load 0.1", "load 1", "load 2", "load 5"}, out.Columns); diff != "" {
		t.Error(diff)
	}
	for i, want := range []int{1, 3, 6, 15} {
		jobs := batches[i].jobs(7)
		if again := batches[i].jobs(7); len(jobs) != want || !slices.EqualFunc(jobs, again, func(a, b gangJob) bool { return a.arrive == b.arrive && a.app == b.app && a.id == b.id }) {
			t.Errorf("%s: %d jobs, want %d; once more %v", batches[i].name, len(jobs), want, again)
		}
		kinds := map[string]int{}
		for k, j := range jobs {
			if k > 0 && jobs[k-1].arrive > j.arrive || j.id != k {
				t.Errorf("%s: job %d is %+v", batches[i].name, k, j)
			}
			kinds[fmt.Sprint(j.app.name, j.arrive, j.workers)]++
		}
		for kind, n := range kinds {
			if most := (want + 5) / 6; n > most {
				t.Errorf("%s: %s appears %d times, want at most %d", batches[i].name, kind, n, most)
			}
		}
	}
}

func TestGangsRefuse(t *testing.T) {
	for want, change := range map[string]func(*Training){
		"no policy, no seed or no workload":       func(g *Training) { g.Seeds = nil },
		"run gangs: no policy":                    func(g *Training) { g.Policies = nil },
		"no seed or no workload":                  func(g *Training) { g.Workloads = nil },
		"0 nodes, legal is 1 to 1000":             func(g *Training) { g.Nodes = 0 },
		"1001 nodes":                              func(g *Training) { g.Nodes = 1001 },
		"0 GPUs of each node, legal is 1 to 64":   func(g *Training) { g.GPUs = 0 },
		"65 GPUs of each node":                    func(g *Training) { g.GPUs = 65 },
		"an interval of 999ms, legal is 1s to 1h": func(g *Training) { g.Interval = 999 * time.Millisecond },
		"an interval of 1h0m1s":                   func(g *Training) { g.Interval = time.Hour + time.Second },
		"a restart of -1ns, legal is 0s to 1h":    func(g *Training) { g.Restart = -1 },
		"a restart of 1h0m1s":                     func(g *Training) { g.Restart = time.Hour + time.Second },
		"load 0, legal is above 0 to 10":          func(g *Training) { g.Loads = []float64{1, 0} },
		"load 10.5":                               func(g *Training) { g.Loads = []float64{10.5} },
		"load NaN":                                func(g *Training) { g.Loads = []float64{math.NaN()} },
		`unknown policy "tetris"`:                 func(g *Training) { g.Policies = []string{"tetris"} },
		`no step times on nodes of kind "a100"`:   func(g *Training) { g.Kind = "a100" },
		"oak-t4.csv: pollux-placements, 8 measured steps: want pollux-jobs": func(g *Training) { g.Workloads = g.Measured[:1] },
		"no job of an application that was measured on t4":                  func(g *Training) { g.Workloads = []*measurements.File{jobsFile(t, "fir-0,0,fir,2,8")} },
		"jobs.csv line 3: 5 workers on 4 GPUs": func(g *Training) {
			g.Workloads = []*measurements.File{jobsFile(t, "oak-0,0,oak,2,8", "oak-1,0,oak,5,8")}
		},
		"jobs.csv line 2: batch_size 64 of 2 workers": func(g *Training) { g.Workloads = []*measurements.File{jobsFile(t, "oak-0,0,oak,2,64")} },
	} {
		g := training(t)
		change(g)
		if _, err := g.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
