package experiment

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// viewOf is a queue of configurations, and the configurations on each device.
func viewOf(table *sharingTable, queue []int, devices ...[]int) *sharingView {
	v := &sharingView{queue: jobsOf(table, queue...)}
	for _, on := range devices {
		v.devices = append(v.devices, jobsOf(table, on...))
	}
	return v
}

// oaks are three configurations that suffer from little to much: with SM and GiB, and speeds by row.
func oaks() *sharingTable {
	return shared([][2]float64{{.2, 2}, {.6, 8}, {.9, 10}}, []float64{.99, .98, .96}, []float64{.97, .9, .82}, []float64{.95, .81, .6})
}

// TestSharingChoices names a job of the queue and a device, or none, for each policy.
func TestSharingChoices(t *testing.T) {
	table := oaks()
	for _, tc := range []struct {
		name, policy string
		queue        []int
		devices      [][]int
		want         string
	}{
		{"a device of one's own", "fifo", []int{2, 0}, [][]int{{0}, {}, {}}, "0 on 1"},
		{"none is idle", "fifo", []int{2, 0}, [][]int{{0}, {1}}, "none"},
		{"fewest jobs", "least-loaded-3", []int{1}, [][]int{{0, 0}, {2}}, "0 on 1"},
		{"less use of as many jobs", "least-loaded-3", []int{1}, [][]int{{2}, {1}}, "0 on 1"},
		{"the first of equals", "least-loaded-3", []int{1}, [][]int{{1}, {1}}, "0 on 0"},
		{"three are there", "least-loaded-3", []int{0}, [][]int{{0, 0, 0}, {1, 0, 0}}, "none"},
		{"memory for the second in the queue only", "least-loaded-3", []int{2, 0}, [][]int{{2, 1}}, "1 on 0"},
		{"memory to the last byte", "least-loaded-3", []int{1}, [][]int{{1, 1}}, "0 on 0"},
		{"a margin", "horus-3", []int{1, 0}, [][]int{{1, 1}}, "1 on 0"},
		{"at most two", "horus-2", []int{0}, [][]int{{0, 0}}, "none"},
		// 1.3·10/24 + 20·1/100 + 1 = 1.74 beside 0.2; 1.3·16/24 + 20·1.6/100 + 1 = 2.19 beside 0.6.
		{"the least cost", "horus-3", []int{1}, [][]int{{1}, {0}}, "0 on 1"},
		{"idle costs less", "horus-3", []int{0}, [][]int{{2}, {}}, "0 on 1"},
		// The means are 0.977, 0.897 and 0.787: sizes 0, 1 and 2.
		{"sizes 2 and 1", "lucid", []int{2}, [][]int{{1}, {2}}, "none"},
		{"sizes 1 and 1 rather than 2 and 0", "lucid", []int{1, 0}, [][]int{{2}, {1}}, "0 on 1"},
		{"the second fits", "lucid", []int{2, 0}, [][]int{{2}}, "1 on 0"},
		{"the smaller sum", "lucid", []int{0}, [][]int{{2}, {1}}, "0 on 1"},
		{"two are there", "lucid", []int{0}, [][]int{{0, 0}}, "none"},
		{"the least harm", "oracle", []int{2, 1, 0}, [][]int{{1}, {2}}, "2 on 0"}, // 0 beside 1: 0.03 + 0.02, beside 2: 0.05 + 0.04
		{"an idle device", "oracle", []int{2, 1, 0}, [][]int{{1}, {}}, "0 on 1"},
		{"too slow", "oracle", []int{2}, [][]int{{2}}, "none"},
		{"just fast enough", "oracle", []int{2}, [][]int{{1}}, "0 on 0"},
		{"three too slow", "oracle", []int{0}, [][]int{{1, 2}}, "none"}, // 0.81 · 0.95 = 0.7695
	} {
		p, err := sharingPolicyOf(tc.policy, table)
		must.OK(t, err)
		got := "none"
		if place, device, ok := p.choose(viewOf(table, tc.queue, tc.devices...)); ok {
			got = fmt.Sprintf("%d on %d", place, device)
		}
		if got != tc.want {
			t.Errorf("%s, %s: %s, want %s", tc.policy, tc.name, got, tc.want)
		}
	}
}

// TestLucidSizes: jobs are large below a mean speed of 0.85, and small from 0.95 on.
func TestLucidSizes(t *testing.T) {
	table := shared([][2]float64{{}, {}, {}, {}}, []float64{.95, .95, .95, .95}, []float64{.94, .94, .94, .94},
		[]float64{.85, .85, .85, .85}, []float64{.84, .84, .84, .84})
	jobs := jobsOf(table, 0, 1, 2, 3)
	cost := lucid(table)
	var sums []float64
	for i := range jobs {
		sums = append(sums, cost(&jobs[i], jobs[:1]))
	}
	if diff := cmp.Diff([]float64{0, 1, 1, 2}, sums); diff != "" {
		t.Errorf("sizes beside the smallest (-want +got):\n%s", diff)
	}
	if got := cost(&jobs[3], jobs[1:2]); !math.IsNaN(got) {
		t.Errorf("2 and 1 cost %v, want none", got)
	}
}

// TestOracleHarm: a speed of 0.8 is enough; of equal harm the device with fewer jobs; and what is lost already is no harm.
func TestOracleHarm(t *testing.T) {
	table := shared([][2]float64{{.5, 1}, {.5, 1}, {.5, 1}}, []float64{.8, .99, .97}, []float64{.99, .85, 1}, []float64{.97, 1, 1})
	for want, v := range map[string]*sharingView{
		"0 on 0 true": viewOf(table, []int{0}, []int{0}),
		"0 on 1 true": viewOf(table, []int{2}, []int{1}, nil),
		// Beside two of 1: 2·0.85·0.01 + 1 − 0.99² = 0.037; beside 2: 0.06.
		"0 on 2 true": viewOf(table, []int{0}, []int{2}, []int{2, 2}, []int{1, 1}),
	} {
		place, device, ok := oracle(table).choose(v)
		if got := fmt.Sprintf("%d on %d %v", place, device, ok); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestHorusCost: the example of horus; alone; and beside two that fill the device, which shows no more than all of it.
func TestHorusCost(t *testing.T) {
	table := shared([][2]float64{{.8, 6}, {.5, 6}}, []float64{1, 1}, []float64{1, 1})
	jobs := jobsOf(table, 0, 1)
	got := []float64{horus(&jobs[1], jobs[:1]), horus(&jobs[1], nil), horus(&jobs[1], jobs)}
	if diff := cmp.Diff([]float64{2.13, 1.3*.25 + .5, 1.3*.75 + .5*1.6 + 2}, got, near); diff != "" {
		t.Errorf("cost (-want +got):\n%s", diff)
	}
}

// TestWindow: the 41st job is not looked at, the 40th is, by the oracle and by a model that predicts.
func TestWindow(t *testing.T) {
	table := oaks()
	queue := make([]int, 0, 41)
	for range 40 {
		queue = append(queue, 1)
	}
	v := viewOf(table, append(queue, 0), []int{1})
	if place, _, ok := oracle(table).choose(v); place != 0 || !ok {
		t.Errorf("job %d, %v, want the first of the window", place, ok)
	}
	if place, _, _ := oracle(table).choose(viewOf(table, append(queue[:39:39], 0), []int{1})); place != 39 {
		t.Errorf("job %d, want the last of the window", place)
	}
	p, err := predicted("linear-hinge")
	must.OK(t, err)
	if place, _, ok := p.choose(v); place != 0 || !ok {
		t.Errorf("linear hinge: job %d, %v, want the first of the window", place, ok)
	}
	if place, _, _ := p.choose(viewOf(table, append(queue[:39:39], 0), []int{1})); place != 39 {
		t.Errorf("linear hinge: job %d, want the last of the window", place)
	}
	if _, err := predicted("tetris"); err == nil {
		t.Error("predicts by an unknown model")
	}
}

// learnerOf goes by a model of the scheduler's.
func learnerOf(t *testing.T, table *sharingTable, model string) *bookLearner {
	t.Helper()
	m, err := interference.ByName(model)
	must.OK(t, err)
	l, err := newBookLearner(table, m)
	must.OK(t, err)
	return l
}

// tandemOf is the policy that knows the measured pairs.
func tandemOf(table *sharingTable) *tandem {
	m, err := measuredModel(table)
	if err != nil {
		panic(err)
	}
	l, err := newBookLearner(table, m)
	if err != nil {
		panic(err)
	}
	return newTandem(table, l)
}

// TestTandemKeepsSpeeds: a job that would slow a tenant below what it has to keep does not start, and that is more where two
// have never been together, and most where they meet beside a third; one that runs out of memory but for the margin neither.
func TestTandemKeepsSpeeds(t *testing.T) {
	const little = .001
	// 3 is just too slow beside another 3 that it never met, and just fast enough beside 4; 5 is just too slow of three.
	table := shared([][2]float64{{.5, 11}, {.5, 11.4}, {.5, 11.6}, {.1, 1}, {.1, 1}, {.1, 1}},
		[]float64{.9, .9, .9, .9, .9, .9},
		[]float64{.9, .9, .9, .9, .9, .9},
		[]float64{.9, .9, .9, .9, .9, .9},
		[]float64{.9, .9, .9, keptUnmet - little, keptUnmet + little, 1},
		[]float64{.9, .9, .9, .9, .9, 1},
		[]float64{.9, .9, .9, 1, 1, keptUnmetOfThree - little})
	for _, tc := range []struct {
		what  string
		job   int
		on    []int
		met   bool
		start bool
	}{
		{"memory suffices", 0, []int{0}, false, true},
		{"memory suffices but for the margin", 2, []int{0}, false, false},
		{"too slow for two that never met", 3, []int{3}, false, false},
		{"just fast enough for two that never met", 4, []int{3}, false, true},
		{"fast enough for two that met", 3, []int{3}, true, true},
		{"too slow for three of whom two never met", 5, []int{5, 4}, false, false},
		{"fast enough for two", 5, []int{5}, false, true},
		{"fast enough for three that met", 5, []int{5, 4}, true, true},
	} {
		p := tandemOf(table)
		if tc.met {
			for i := range 6 {
				for k := range 6 {
					p.met[[2]int{i, k}] = true
				}
			}
		}
		if _, _, ok := p.choose(viewOf(table, []int{tc.job}, tc.on)); ok != tc.start {
			t.Errorf("%s: %d beside %v starts: %v", tc.what, tc.job, tc.on, ok)
		}
	}
	if _, _, ok := tandemOf(table).choose(viewOf(table, []int{1}, nil)); !ok {
		t.Error("does not start on an idle device")
	}
}

// TestTandemDoubts: a pair that is expected to be fast enough, but is in doubt, starts only once it was seen.
func TestTandemDoubts(t *testing.T) {
	table := oaks()
	p := newTandem(table, learnerOf(t, table, "default"))
	v := viewOf(table, []int{2}, []int{2})
	if got := p.learner.speed(2, 2); got < keptSpeed {
		t.Fatalf("the pair is expected at %v, which is too slow in any case", got)
	}
	if _, _, ok := p.choose(v); ok {
		t.Error("starts in doubt")
	}
	for range 3 {
		p.learner.learn(jobsOf(table, 2, 2), []float64{.8, .8}, 0)
	}
	if _, _, ok := p.choose(v); !ok {
		t.Error("does not start though the pair was seen at .8")
	}
}

// TestTandemChooses: the job that harms most elsewhere gets the idle device; a job that does less harm beside others
// than elsewhere goes there.
func TestTandemChooses(t *testing.T) {
	table := oaks()
	p := tandemOf(table)
	if place, device, ok := p.choose(viewOf(table, []int{0, 1, 2, 0}, []int{1}, nil)); !ok || place != 2 || device != 1 {
		t.Errorf("job %d on %d, %v; want the heaviest on the idle device", place, device, ok)
	}
	// One of 1 and two of 2 run, two of 0 and one of 1 wait. 0 loses 0.05 beside 1 and 0.09 beside 2, on average over all six
	// (0.02·2 + 0.05·2 + 0.09·2)/6 = 0.0533; 1 loses 0.2 beside 1 and 0.37 beside 2, on average (0.05·2 + 0.2·2 + 0.37·2)/6
	// = 0.2067. So 0 beside 1 is better than usual by 0.0033, and 1 beside 1 by 0.0067.
	v := viewOf(table, []int{0, 1, 0}, []int{2}, []int{2}, []int{1})
	if place, device, ok := p.choose(v); !ok || place != 1 || device != 2 {
		t.Errorf("job %d on %d, %v; want the second on the third", place, device, ok)
	}
}

// TestTandemBoundsEveryWait: a job that 40 later ones have passed is the only one that may start, until it has.
func TestTandemBoundsEveryWait(t *testing.T) {
	table := shared([][2]float64{{.9, 2}, {.1, 2}}, []float64{.5, .5}, []float64{.95, .99})
	p := tandemOf(table)
	v := viewOf(table, []int{0, 1, 1, 1}, []int{1})
	for i := range sharingWindow {
		if place, _, ok := p.choose(v); !ok || place != 1 {
			t.Fatalf("after %d: job %d, %v; want the second", i, place, ok)
		}
	}
	if place, _, ok := p.choose(v); ok {
		t.Errorf("job %d starts, though the first was passed by %d", place, sharingWindow)
	}
	v.devices[0] = nil
	if place, _, ok := p.choose(v); !ok || place != 0 {
		t.Errorf("job %d, %v; want the first", place, ok)
	}
	v.devices[0], v.queue[0].id = jobsOf(table, 1), 99
	if place, _, ok := p.choose(v); !ok || place != 1 {
		t.Errorf("job %d, %v; want the second, since the next first has not waited", place, ok)
	}
}

// TestTandemLearnsOnce: a neighbourhood teaches when it is new; one job teaches nothing.
func TestTandemLearnsOnce(t *testing.T) {
	table := oaks()
	p := tandemOf(table)
	coRuns := func() int { return p.learner.book.Traits(workloadOf(1), bookGPU).CoRuns }
	v := viewOf(table, nil, []int{1}, []int{1, 2})
	p.observe(v, 0, []float64{1}, 10)
	if got := coRuns(); got != 0 {
		t.Errorf("%d co-runs of one job", got)
	}
	p.observe(v, 1, []float64{.5, .81}, 10)
	p.observe(v, 1, []float64{.5, .81}, 10)
	if got := coRuns(); got != 1 {
		t.Errorf("%d co-runs after two looks at the same two jobs, want 1", got)
	}
	v.devices[1] = v.devices[1][:1]
	p.observe(v, 1, []float64{1}, 10)
	v.devices[1] = jobsOf(table, 1, 2)
	p.observe(v, 1, []float64{.5, .81}, 10)
	if got := coRuns(); got != 2 {
		t.Errorf("%d co-runs after the pair came again, want 2", got)
	}
}

// TestBookLearnerSettles: every ten minutes the learner goes over all that it knows.
func TestBookLearnerSettles(t *testing.T) {
	table := oaks()
	l := learnerOf(t, table, "default")
	for _, tc := range []struct{ now, settled float64 }{{10, 0}, {settling - 1, 0}, {settling, settling}, {settling + 1, settling}, {3 * settling, 3 * settling}} {
		l.learn(jobsOf(table, 1, 2), []float64{.5, .81}, tc.now)
		if l.settled != tc.settled {
			t.Errorf("after a co-run at %v s the learner went over all at %v s, want %v", tc.now, l.settled, tc.settled)
		}
	}
}

// TestBookLearner: the learner of the scheduler expects a pair as it was seen, and others as before.
func TestBookLearner(t *testing.T) {
	table := oaks()
	l := learnerOf(t, table, "default")
	before, other := l.speed(1, 2), l.speed(0, 0)
	on := jobsOf(table, 1, 2)
	doubt := l.expect(on, nil)[0].doubt
	for range 3 {
		l.learn(on, []float64{.5, .81}, 0)
	}
	if after := l.speed(1, 2); !(math.Abs(after-.5) < .1*math.Abs(before-.5)+.03) {
		t.Errorf("seen at .5, expected at %v, before at %v", after, before)
	}
	if after := l.expect(on, nil)[0].doubt; after >= doubt {
		t.Errorf("the doubt is %v, before %v", after, doubt)
	}
	if after := l.speed(0, 0); math.Abs(after-other) > .02 {
		t.Errorf("a pair that was not seen is expected at %v, before at %v", after, other)
	}
}

func TestParseSharingPolicies(t *testing.T) {
	all, err := ParseSharingPolicies("all")
	if err != nil || len(all) != 9 || all[0] != "fifo" {
		t.Errorf("all are %v, %v", all, err)
	}
	if two, err := ParseSharingPolicies("tandem,fifo"); err != nil || strings.Join(two, " ") != "tandem fifo" {
		t.Errorf("%v, %v", two, err)
	}
	for list, want := range map[string]string{"tetris": `unknown policy "tetris", known are fifo, horus-2`, "fifo,fifo": "fifo appears twice", "": `unknown policy ""`} {
		if _, err := ParseSharingPolicies(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
	}
}

// TestSharedMemory: a device has 24 GiB.
func TestSharedMemory(t *testing.T) {
	table := shared([][2]float64{{.5, 12}}, []float64{1})
	jobs := jobsOf(table, 0, 0)
	if !fitsBeside(&jobs[1], jobs[:1], 0) || fitsBeside(&jobs[1], jobs[:1], 1) || !fitsBeside(&jobs[1], nil, 24*vgpu.GiB) {
		t.Error("12 beside 12 GiB, without a margin, with one byte, and alone")
	}
}
