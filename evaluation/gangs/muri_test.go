package gangs

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/test/must"
)

// muriFile draws a trace of Muri: job, GPUs, arrival and duration in milliseconds, steps, model.
func muriFile(t testing.TB, lines ...string) *measurements.File {
	t.Helper()
	f := traceOf(t, "trace.csv", "job_id,num_gpu,submit_time,duration,iterations,model_name\n"+strings.Join(lines, "\n")+"\n")
	return f
}

// muriElastic plays a workload of Pollux and a trace of Muri, in which an oak stands for vgg16 and an elm for bert.
func muriElastic(t testing.TB, lines ...string) *Elastic {
	t.Helper()
	e := &Elastic{Training: *training(t), Jobs: 160, Models: map[string]StandIn{"vgg16": {"oak", 8}, "bert": {"elm", 4}, "gpt2": {"fir", 4}}}
	e.Policies = []string{staticGangs, "elastic-kubeflow", "elastic-fifo", "goodput"}
	e.Workloads = []*measurements.File{muriFile(t, lines...)}
	return e
}

// TestMuriJobs: a job takes on the nodes as long as its trace says, with a legal batch, and a multiple of the work of its
// application. Jobs that are too large and those that were not measured are left out.
func TestMuriJobs(t *testing.T) {
	e := muriElastic(t, "a,2,60000,450000,100,vgg16", "b,1,0,60000,100,bert", "c,5,0,1000,100,bert", "d,1,0,1000,100,gpt2", "e,4,90000,1000,100,vgg16")
	sets, leftOut, err := e.sets()
	if err != nil || len(sets) != 1 || leftOut != 2 {
		t.Fatalf("%d sets, %d left out, %v", len(sets), leftOut, err)
	}
	jobs, err := e.muriJobs(t4Apps(t), e.Workloads[0])
	if err != nil || len(jobs) != 3 {
		t.Fatal(jobs, err)
	}
	for i, want := range []struct {
		app      string
		batch    int64
		expected float64
	}{{"elm", 4, 60}, {"oak", 16, 450}, {"oak", 32, 1}} {
		j := &jobs[i]
		if j.app.name != want.app || j.batch != want.batch || j.expected != want.expected || j.id != i {
			t.Errorf("job %d: %s with a batch of %d for %v s, want %+v", j.id, j.app.name, j.batch, j.expected, want)
		}
		if took := 1 / j.speed(compactly(j.workers, e.GPUs)); math.Abs(took-want.expected) > 1e-9 {
			t.Errorf("job %d takes %v s as asked for, want %v", j.id, took, want.expected)
		}
		if r := newGangRun(&e.Training, nil, jobs); math.Abs(r.states[i].work*j.app.stepTime(j.batch, compactly(j.workers, e.GPUs))-want.expected) > 1e-9 {
			t.Errorf("job %d has %v steps with static sizes", j.id, r.states[i].work)
		}
	}
}

// TestMuriLoads: at each load the jobs are the same, and ask for that many times the GPU time until the last arrival; another
// seed has other jobs.
func TestMuriLoads(t *testing.T) {
	e := muriElastic(t, "a,2,0,450000,1,vgg16", "b,1,60000,60000,1,bert", "c,1,80000,30000,1,bert", "d,4,200000,10000,1,bert", "e,1,300000,20000,1,vgg16")
	e.Jobs, e.Loads = 3, []float64{.5, 2}
	sets, _, err := e.sets()
	if err != nil || len(sets) != 2 {
		t.Fatal(sets, err)
	}
	starts := map[float64]bool{}
	for seed := int64(1); seed < 20; seed++ {
		half, twice := sets[0].batches[0].jobs(seed), sets[1].batches[0].jobs(seed)
		if len(half) != 3 || len(twice) != 3 || half[0].arrive != 0 {
			t.Fatalf("%d and %d jobs, the first arrives at %v s", len(half), len(twice), half[0].arrive)
		}
		if a, b := asked(half, 4), asked(twice, 4); math.Abs(a-.5) > 1e-9 || math.Abs(b-2) > 1e-9 {
			t.Errorf("seed %d: they ask for %v and %v times the GPU time, want .5 and 2", seed, a, b)
		}
		for i := range half {
			if math.Abs(half[i].arrive-4*twice[i].arrive) > 1e-9 || half[i].expected != twice[i].expected {
				t.Errorf("seed %d: job %d arrives at %v s and %v s", seed, i, half[i].arrive, twice[i].arrive)
			}
		}
		starts[half[0].expected] = true
	}
	if len(starts) != 3 {
		t.Errorf("the first jobs take %v s, want all three windows of five jobs", starts)
	}
}

// TestWorkloadLoads: a load of a workload is a part of its jobs, or all of them and others, and each table has its load.
func TestWorkloadLoads(t *testing.T) {
	e := muriElastic(t, "a,2,0,450000,1,vgg16")
	e.Workloads, e.Loads = append(training(t).Workloads, e.Workloads...), []float64{.5, 1, 1.5}
	sets, _, err := e.sets()
	must.OK(t, err)
	var got []string
	for _, s := range sets {
		for _, b := range s.batches {
			got = append(got, string(s.format)+" "+b.name)
		}
	}
	pollux := []string{"pollux-jobs jobs.csv", "pollux-jobs more.csv"}
	if diff := cmp.Diff(slices.Concat(pollux, pollux, pollux, slices.Repeat([]string{"muri-jobs trace.csv"}, 3)), got); diff != "" {
		t.Error(diff)
	}
	own := sets[1].batches[0].jobs(1)
	for i, want := range []int{2, 4, 6} {
		jobs := sets[i].batches[0].jobs(7)
		shared := 0
		for _, j := range jobs {
			if slices.ContainsFunc(own, func(o gangJob) bool { return o.app == j.app && o.arrive == j.arrive && o.workers == j.workers }) {
				shared++
			}
		}
		if len(jobs) != want || shared != min(want, 4) {
			t.Errorf("load %v: %d jobs, %d of the workload, want %d", sets[i].load, len(jobs), shared, want)
		}
	}
	if sets[1].batches[0].draws || !sets[0].batches[0].draws || !sets[3].batches[0].draws {
		t.Error("a workload as it is draws, or another load does not")
	}
}

// TestMuriRefuse: an error names the file, the line, the field and what is legal.
func TestMuriRefuse(t *testing.T) {
	const job = "a,2,0,450000,1,vgg16"
	for want, change := range map[string]func(e *Elastic){
		`trace.csv line 2 column model_name: found "t5", want a model for which an application stands: bert, gpt2, vgg16`: func(e *Elastic) {
			e.Workloads = []*measurements.File{muriFile(t, "a,2,0,1000,1,t5")}
		},
		"no job of an application that was measured on t4": func(e *Elastic) {
			e.Workloads = []*measurements.File{muriFile(t, "a,2,0,1000,1,gpt2")}
		},
		"trace.csv line 2 column num_gpu: batch_size 32 of 64 workers, legal for oak is 8 to 32": func(e *Elastic) {
			e.Nodes, e.Workloads = 40, []*measurements.File{muriFile(t, "a,64,0,1000,1,vgg16")}
		},
		"least sizes of 1.5 times what jobs ask for, legal is 0 to 1": func(e *Elastic) { e.Least = 1.5 },
		"least sizes of NaN times":                                    func(e *Elastic) { e.Least = math.NaN() },
		"0 jobs of a trace, legal is 1 to 10000":                      func(e *Elastic) { e.Jobs = 0 },
		"10001 jobs of a trace":                                       func(e *Elastic) { e.Jobs = 10_001 },
	} {
		e := muriElastic(t, job)
		change(e)
		if _, err := e.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for _, text := range []string{"", "vgg16", "vgg16=oak", "=oak:8", "vgg16=:8", "vgg16=oak:0", "vgg16=oak:x"} {
		if _, err := ParseModels(text); err == nil || !strings.Contains(err.Error(), "samples of a worker from 1 to 1000000000") {
			t.Errorf("%q: error %v", text, err)
		}
	}
	if _, err := ParseModels("a=oak:8,a=elm:8"); err == nil || !strings.Contains(err.Error(), "a appears twice") {
		t.Errorf("twice: error %v", err)
	}
	if models, err := ParseModels(MuriModels); err != nil || len(models) != 8 || models["vgg19"] != (StandIn{"yolov3", 16}) {
		t.Errorf("%v, %v", models, err)
	}
}

// TestLeast: the least size is a part of what a job asks for, or the next measured number below.
func TestLeast(t *testing.T) {
	j := gangJob{app: t4Apps(t)["oak"], workers: 4, batch: 16}
	for least, want := range map[int][]int{0: {1, 2, 3, 4, 8}, 2: {2, 3, 4, 8}, 4: {4, 8}, 6: {4, 8}} {
		j.least = least
		if diff := cmp.Diff(want, j.legalSizes(16)); diff != "" {
			t.Errorf("at least %d of 4 workers: %s", least, diff)
		}
	}
}

// TestElasticCompared: the changes of a policy are those of its figures against another one's, of the same column and seed.
func TestElasticCompared(t *testing.T) {
	run := func(jct, wait, unfair float64, changes int) elasticResult {
		return elasticResult{outcome: outcome{jcts: []float64{jct}}, waits: []float64{wait}, unfairness: []float64{unfair}, changes: changes}
	}
	base := grid[elasticResult]{{run(4, 1, 2, 10), run(8, 2, 2, 0)}}
	got := changesOf(base, grid[elasticResult]{{run(3, .5, 3, 5), run(8, 3, 1, 1)}})
	spread := func(x float64) results.Spread { return results.SpreadOf([]float64{x}) }
	want := []results.ElasticChange{
		{Hours: spread(-.25), Wait: spread(-.5), Run: spread(2.5/3 - 1), Changes: spread(-.5), P99Unfairness: spread(.5), WorstUnfairness: spread(.5)},
		{Wait: spread(.5), Run: spread(5./6 - 1), P99Unfairness: spread(-.5), WorstUnfairness: spread(-.5)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestElasticGroups: a policy has the same figures whatever others are compared, and each pair that was played is compared.
func TestElasticGroups(t *testing.T) {
	e := muriElastic(t, "a,2,0,450000,1,vgg16", "b,1,60000,60000,1,bert", "c,2,80000,300000,1,bert")
	e.Workloads = append(training(t).Workloads, e.Workloads...)
	out, err := e.Run()
	if err != nil || len(out.Groups) != 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	e.Policies = []string{"goodput"}
	alone, err := e.Run()
	must.OK(t, err)
	for i, g := range out.Groups {
		if diff := cmp.Diff(g.Results[3], alone.Groups[i].Results[0]); diff != "" {
			t.Errorf("goodput of %s by itself: %s", g.Jobs, diff)
		}
		if len(g.Compared) != 2 || g.Compared[0].Policy != "elastic-kubeflow" || g.Compared[1].Base != "elastic-fifo" {
			t.Errorf("%s: compared are %+v", g.Jobs, g.Compared)
		}
		if of := g.Results[0]; of.WaitChange.Mean != 0 || of.RunChange.Mean != 0 || of.Gain.Mean <= 0 {
			t.Errorf("static against itself: %+v", of)
		}
	}
}
