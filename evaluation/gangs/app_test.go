package gangs

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/test/must"
)

// stepsOf reads step times: "21 4 1.5 .5" is a placement, samples of each worker, seconds of a step and of its
// exchange; "6/8 4 1.5 .5" has numbers of nodes and workers.
func stepsOf(t testing.TB, file string, lines ...string) *measurements.File {
	t.Helper()
	head := "placement,local_bsz,step_time,sync_time\n"
	if strings.Contains(lines[0], "/") {
		head = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
	}
	return traceOf(t, file, head+strings.NewReplacer(" ", ",", "/", ",").Replace(strings.Join(lines, "\n"))+"\n")
}

// epochsOf reads epochs: "10 1 3" is the progress, and the squared gradient and its noise.
func epochsOf(t testing.TB, file string, lines ...string) *measurements.File {
	t.Helper()
	return traceOf(t, file, "progress,grad_sqr,grad_var\n"+strings.ReplaceAll(strings.Join(lines, "\n"), " ", ",")+"\n")
}

func traceOf(t testing.TB, file, text string) *measurements.File {
	t.Helper()
	tr, err := measurements.Read(strings.NewReader(text), file)
	must.OK(t, err)
	return tr
}

// measuredOaks are three applications on nodes of the kind "t4": oak loses half of its speed on two nodes, elm and ash
// nothing. Elm has 60 steps of a second, ash 900.
func measuredOaks(t testing.TB) []*measurements.File {
	t.Helper()
	return []*measurements.File{
		stepsOf(t, "oak-t4.csv", "1 4 1 0", "1 8 2 0", "2 4 1.25 .25", "2 8 2.25 .25", "11 4 2.5 1.5", "11 8 3.5 1.5", "12 4 3 2", "12 8 4 2"),
		stepsOf(t, "data/oak/scalability-t4.csv", "4/4 4 4 3", "4/8 4 5 4", "8/8 4 6 5", "8/16 4 8 7"),
		stepsOf(t, "oak-dgx.csv", "1 4 .5 0"),
		epochsOf(t, "oak-validation-8.csv", "10 1 3", "20 1 7", "30 1 1"),
		epochsOf(t, "data/oak/validation-32.csv", "12 1 5", "18 1 9"),
		stepsOf(t, "elm-t4.csv", "1 4 1 0", "2 4 1 0", "11 4 1 0", "12 4 1 0", "22 4 1 0"),
		epochsOf(t, "elm-validation-4.csv", "60 1 0"),
		epochsOf(t, "elm-validation-64.csv", "60 1 0"),
		stepsOf(t, "ash-t4.csv", "1 4 1 0", "2 4 1 0", "11 4 1 0"),
		epochsOf(t, "ash-validation-4.csv", "900 1 0"),
		epochsOf(t, "ash-validation-64.csv", "900 1 0"),
	}
}

func t4Apps(t testing.TB) map[string]*gangApp {
	t.Helper()
	apps, err := gangApps(measuredOaks(t), "t4")
	must.OK(t, err)
	return apps
}

func TestStepTimes(t *testing.T) {
	table := t4Apps(t)["oak"].steps
	for _, tc := range []struct {
		name       string
		nodes      []int
		batch      int64
		step, sync float64
	}{
		{"measured", []int{7}, 4, 1, 0},
		{"half way between two batches", []int{7}, 6, 1.5, 0},
		{"below the least batch", []int{7}, 1, 1, 0},
		{"above the largest", []int{7}, 100, 2, 0},
		{"any node of two may be the first", []int{3, 3, 1}, 4, 3, 2},
		{"and any rank", []int{3, 1, 3}, 8, 4, 2},
		{"numbers of nodes and workers", []int{0, 1, 2, 3}, 4, 4, 3},
		{"six workers between four and eight", []int{0, 0, 1, 1, 2, 3}, 4, 4.5, 3.5},
		{"six nodes between four and eight", []int{0, 1, 2, 3, 4, 5}, 4, 5, 4},
		{"nine on six nodes: six on four and twelve on eight", []int{0, 0, 1, 1, 2, 2, 3, 4, 5}, 4, 4.5 + (7-4.5)/2, 3.5 + (6-3.5)/2},
		{"sixteen nodes as eight", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 4, 8, 7},
		{"more workers than were measured on four nodes", []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3}, 4, 5, 4},
		{"three nodes between two and four: 2 on two, 4 on four", []int{0, 1, 2}, 4, (2.5 + 4) / 2, (1.5 + 3) / 2},
		{"ten on one node have no placement: as two", []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 4, 1.25, .25},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := table.at(tc.nodes, tc.batch); math.Abs(got.step-tc.step) > 1e-9 || math.Abs(got.sync-tc.sync) > 1e-9 {
				t.Errorf("%v with %d samples: %+v, want %v and %v", tc.nodes, tc.batch, got, tc.step, tc.sync)
			}
		})
	}
}

// TestStepTimesMean: a placement that was not measured is the mean of those with as many workers on as many nodes.
func TestStepTimesMean(t *testing.T) {
	table := newStepTable(stepsOf(t, "a-t4.csv", "1222 4 1 0", "1123 4 3 1", "2113 8 5 1").Steps)
	if got := table.at([]int{0, 0, 0, 1, 1, 2, 3}, 4); got.step != 5 || got.sync != 1 {
		t.Errorf("3211 is 2113 from another node on, is %+v", got)
	}
	if got := table.at([]int{0, 0, 0, 0, 1, 2, 3}, 4); got.step != 2 || got.sync != .5 {
		t.Errorf("4111 is the mean of what was measured with 7 workers on 4 nodes, is %+v", got)
	}
	if table.most != 8 {
		t.Errorf("at most %d samples, want 8", table.most)
	}
}

func TestPlacementOf(t *testing.T) {
	for _, tc := range []struct {
		nodes []int
		want  string
		of    int
	}{
		{[]int{3, 3, 5}, "21", 2}, {[]int{5, 3, 5, 3, 3}, "23", 2}, {[]int{0, 0, 0, 0, 0, 0, 0, 0, 0}, "9", 1}, {[]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, "", 2},
	} {
		if got, of := placementOf(tc.nodes); got != tc.want || of != tc.of {
			t.Errorf("%v is %q of %d, want %q of %d", tc.nodes, got, of, tc.want, tc.of)
		}
	}
	for from, want := range map[string]string{"": "", "4": "4", "21": "12", "2113": "1132", "3211": "1132", "1321": "1132"} {
		if got := smallestRotation(from); got != want {
			t.Errorf("%s turned is %s, want %s", from, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	apps := t4Apps(t)
	for _, tc := range []struct {
		app            string
		batch          int64
		workers        int
		samples, extra int64
	}{
		{"oak", 8, 2, 4, 0},
		{"oak", 32, 2, 8, 1},  // 16 each, twice 8
		{"oak", 32, 3, 5, 1},  // 11 each, twice 6, which are 36 in all, and more than 32 were never measured
		{"oak", 9, 1, 5, 1},   // one worker beyond the least batch accumulates
		{"oak", 8, 1, 8, 0},   // at the least it does not
		{"oak", 30, 1, 8, 3},  // 4 × 8
		{"elm", 64, 4, 4, 3},  // 16 each, four times 4
		{"elm", 4, 3, 2, 0},   // 6 in all
		{"elm", 63, 16, 4, 0}, // 64 in all
	} {
		a := apps[tc.app]
		if samples, extra := a.split(tc.batch, tc.workers); samples != tc.samples || extra != tc.extra {
			t.Errorf("%s: %d over %d workers are %d samples and %d times more, want %d and %d", tc.app, tc.batch, tc.workers, samples, extra, tc.samples, tc.extra)
		}
	}
}

// TestWork: oak has two epochs in common, to progress 10 and 18. At a batch of 8 a step is one step. At 32 the noise of the
// first epoch is 5 and of the second 9, and four times the batch gains 6 ÷ (5/4 + 1) = 8/3 and 10 ÷ (9/4 + 1) = 40/13. At 16
// the noise is a third of the way, 11/3 and 23/3, and twice the batch gains (14/3) ÷ (11/6 + 1) = 28/17 and (26/3) ÷ (23/6 + 1)
// = 52/29.
func TestWork(t *testing.T) {
	a := t4Apps(t)["oak"]
	for _, tc := range []struct {
		batch int64
		want  float64
	}{
		{8, 18}, {32, 10*3.0/8 + 8*13.0/40}, {16, 10*17.0/28 + 8*29.0/52},
	} {
		if got := a.work(tc.batch, 2); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("a batch of %d takes %v steps, want %v", tc.batch, got, tc.want)
		}
	}
	if got := a.stepTime(32, []int{0, 0}); got != 2.25+2 { // twice 8 samples, one exchange
		t.Errorf("32 on two workers take %v s, want 4.25", got)
	}
	if got := a.stepTime(8, []int{0, 1}); got != 2.5 {
		t.Errorf("8 on two nodes take %v s, want 2.5", got)
	}
}

func TestLossOf(t *testing.T) {
	apps := t4Apps(t)
	for _, tc := range []struct {
		app     string
		workers int
		want    int64
	}{
		{"oak", 1, 0},
		{"oak", 2, 500}, // 1.25 s together, 2.5 s apart
		{"elm", 2, 0},
		{"oak", 3, 77}, // two nodes in any case: "12" takes 3 s, on three it is estimated as 3.25 s
	} {
		if got := lossOf(apps[tc.app], 8, tc.workers, 2); got != tc.want {
			t.Errorf("%s with %d workers loses %d, want %d", tc.app, tc.workers, got, tc.want)
		}
	}
}

func TestLegalBatch(t *testing.T) {
	a := t4Apps(t)["oak"]
	for _, tc := range []struct {
		batch   int64
		workers int
		want    string
	}{
		{8, 1, ""},
		{32, 32, ""},
		{7, 1, "batch_size 7 of 1 workers, legal for oak is 8 to 32"},
		{33, 2, "legal for oak is 8 to 32"},
		{32, 33, "batch_size 32 of 33 workers"},
	} {
		err := a.legal(tc.batch, tc.workers)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d over %d: %v, want %q", tc.batch, tc.workers, err, tc.want)
		}
	}
}

func TestGangAppsRefuse(t *testing.T) {
	epochs, steps := epochsOf(t, "oak-validation-8.csv", "10 1 3"), stepsOf(t, "oak-t4.csv", "1 4 1 0")
	for want, measured := range map[string][]*measurements.File{
		`no step times on nodes of kind "t4"`:                                                    {epochs},
		"application oak on t4: no measured placements, or no epochs":                            {steps},
		"oak on t4: no measured placements":                                                      {epochs, stepsOf(t, "oak-t4.csv", "4/4 4 4 3")},
		`oak.csv: its name says no application and kind of node, as "bert-aws.csv" does`:         {epochs, stepsOf(t, "oak.csv", "1 4 1 0")},
		`oak.csv: its name says no application and batch size, as "bert-validation-48.csv" does`: {steps, epochsOf(t, "oak.csv", "10 1 3")},
		"jobs.csv: pollux-jobs, 1 job: it has neither step times nor epochs":                     {steps, jobsFile(t, "oak-0,0,oak,1,8")},
	} {
		if _, err := gangApps(measured, "t4"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestMostSamples: yolov3 is never given as many samples as were measured.
func TestMostSamples(t *testing.T) {
	apps, err := gangApps([]*measurements.File{
		stepsOf(t, "yolov3-t4.csv", "1 8 1 0", "1 16 1.5 0"), epochsOf(t, "yolov3-validation-64.csv", "10 1 3"),
	}, "t4")
	must.OK(t, err)
	if samples, extra := apps["yolov3"].split(64, 4); samples != 8 || extra != 1 {
		t.Errorf("16 samples each are %d, and %d times more, want 8 and 1", samples, extra)
	}
}

// TestSingleWorkers: beyond the least batch a single worker exchanges gradients with itself at least once, even where all of
// the batch would go at once.
func TestSingleWorkers(t *testing.T) {
	apps, err := gangApps([]*measurements.File{
		stepsOf(t, "oak-t4.csv", "1 16 1.5 0", "1 8 1 0"), epochsOf(t, "oak-validation-8.csv", "10 1 3"), epochsOf(t, "oak-validation-64.csv", "10 1 3"),
	}, "t4")
	must.OK(t, err)
	for _, tc := range [][4]int64{{12, 1, 6, 1}, {8, 1, 8, 0}, {24, 2, 12, 0}} {
		if samples, extra := apps["oak"].split(tc[0], int(tc[1])); samples != tc[2] || extra != tc[3] {
			t.Errorf("%d over %d workers are %d samples and %d times more, want %d and %d", tc[0], tc[1], samples, extra, tc[2], tc[3])
		}
	}
}

// jobsFile is a workload: "name,arrival,application,workers,batch".
func jobsFile(t testing.TB, lines ...string) *measurements.File {
	t.Helper()
	return traceOf(t, "jobs.csv", "name,time,application,num_replicas,batch_size\n"+strings.Join(lines, "\n")+"\n")
}

// training is two workloads on two nodes with two GPUs.
func training(t testing.TB) *Training {
	t.Helper()
	second := jobsFile(t, "elm-0,30,elm,4,64", "oak-1,300,oak,2,32", "fir-2,300,fir,2,32")
	second.File = "more.csv"
	return &Training{
		Workloads: []*measurements.File{jobsFile(t, "oak-0,0,oak,2,8", "oak-1,0,oak,3,32", "elm-2,70,elm,1,4", "oak-3,100,oak,2,16"), second},
		Measured:  measuredOaks(t), Kind: "t4", Nodes: 2, GPUs: 2, Interval: time.Minute, Restart: 30 * time.Second,
		Policies: Policies(), Seeds: []int64{3, 1, 2},
	}
}

// TestGangJobs: jobs of applications that were not measured are left out, and the order is that of arrival.
func TestGangJobs(t *testing.T) {
	g := training(t)
	_, out, err := g.prepare()
	if err != nil || out.LeftOut != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	if diff := cmp.Diff([]string{"jobs.csv", "more.csv"}, out.Columns); diff != "" {
		t.Error(diff)
	}
	jobs, err := g.jobs(t4Apps(t), jobsFile(t, "b,60,oak,2,8", "c,60,elm,1,4", "a,0,oak,2,8"))
	if err != nil || len(jobs) != 3 {
		t.Fatal(jobs, err)
	}
	for i, want := range []struct {
		app    string
		arrive float64
	}{{"oak", 0}, {"oak", 60}, {"elm", 60}} {
		if j := jobs[i]; j.id != i || j.app.name != want.app || j.arrive != want.arrive {
			t.Errorf("job %d is %+v, want %v", i, j, want)
		}
	}
	if jobs[0].expected != 18*1.25 || jobs[0].loss != 500 { // 18 steps of two workers on one node
		t.Errorf("oak takes %v s and loses %d, want 22.5 and 500", jobs[0].expected, jobs[0].loss)
	}
}
