package elastic_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestSizes(t *testing.T) {
	steps := func(least, most, step int) func() ([]int, error) {
		return func() ([]int, error) { return elastic.Steps(least, most, step) }
	}
	for _, tc := range []struct {
		name string
		of   func() ([]int, error)
		want []int
		says string
	}{
		{"one", steps(3, 3, 1), []int{3}, ""},
		{"groups", steps(2, 9, 2), []int{2, 4, 6, 8}, ""},
		{"no steps", steps(1, 2, 0), nil, "steps of 0 workers, legal is 1 or more"},
		{"least above most", steps(3, 2, 1), nil, "at least 3 workers and at most 2"},
		{"none", steps(0, 2, 1), nil, "0 to 2 workers, legal is 1 to 65536"},
		{"too many", steps(1, 1<<20, 1), nil, "legal is 1 to 65536"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.of()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("says %v, want %q", err, tc.says)
			}
		})
	}
}

// TestCurve has the example of the documentation, and what points of one host and of several say about each other.
func TestCurve(t *testing.T) {
	one := elastic.Curve{Points: []elastic.Point{{Workers: 4, Hosts: 1, Rate: 2}}, Growth: .8, Apart: .5}
	two := elastic.Curve{Growth: 1, Apart: .5, Points: []elastic.Point{
		{Workers: 2, Hosts: 1, Rate: 2}, {Workers: 8, Hosts: 1, Rate: 4}, {Workers: 8, Hosts: 2, Rate: 3}, {Workers: 8, Hosts: 4, Rate: 1},
	}}
	apart := elastic.Curve{Growth: 1, Apart: .5, Points: []elastic.Point{{Workers: 2, Hosts: 1, Rate: 2}, {Workers: 4, Hosts: 2, Rate: 1}}}
	anywhere := elastic.Curve{Growth: 1, Apart: .5, Points: []elastic.Point{{Workers: 2, Rate: 2}, {Workers: 4, Rate: 3}}}
	for _, tc := range []struct {
		name           string
		curve          elastic.Curve
		workers, hosts int
		want           float64
	}{
		{"the prior alone", elastic.Curve{}, 8, 1, math.Pow(8, elastic.DefaultGrowth)},
		{"the prior on several hosts", elastic.Curve{}, 8, 2, math.Pow(8, elastic.DefaultGrowth) * elastic.DefaultApart},
		{"the point", one, 4, 1, 2},
		{"twice as many", one, 8, 1, 2 * math.Pow(2, .8)},
		{"on two hosts, where no point is", one, 4, 2, 1},
		{"between two points", two, 4, 1, 4 * (1 + .5) / 2}, // ratios 1 and ½ of the prior, half way by the logarithm
		{"below the first point", two, 1, 1, 1},
		{"above the last point", two, 16, 1, 8},
		{"on two hosts", two, 8, 2, 3},
		{"on four hosts", two, 8, 4, 1},
		{"on eight hosts, as on four", two, 8, 8, 1},
		{"on two hosts, whatever the rate on one", two, 4, 2, 1.5}, // ¾ of the prior, as 8 workers on two hosts
		{"on one host, whatever the rate on two", apart, 4, 1, 4},
		{"points on any hosts", anywhere, 4, 3, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.curve.Rate(tc.workers, tc.hosts); math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("the rate of %d workers on %d hosts is %v, want %v", tc.workers, tc.hosts, got, tc.want)
			}
		})
	}
}

// TestInvalidJobs: a broken job keeps its size, and its target says why. The job beside it grows.
func TestInvalidJobs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(j *elastic.Job)
		says  string
	}{
		{"no sizes", func(j *elastic.Job) { j.Sizes = nil }, "no legal number of workers"},
		{"a size of 0", func(j *elastic.Job) { j.Sizes = []int{0, 1} }, "0 to 1 workers, legal is 1 to 65536"},
		{"sizes that fall", func(j *elastic.Job) { j.Sizes = []int{2, 1} }, "do not ascend"},
		{"a size twice", func(j *elastic.Job) { j.Sizes = []int{1, 1} }, "do not ascend"},
		{"a negative cost", func(j *elastic.Job) { j.Cost = -1 }, "costs -1 seconds, legal is 0 to"},
		{"a cost that is no number", func(j *elastic.Job) { j.Cost = math.NaN() }, "costs NaN seconds"},
		{"no time left", func(j *elastic.Job) { j.Remaining = -1 }, "-1 seconds remain"},
		{"a rate of 0", points(elastic.Point{Workers: 1, Rate: 0}), "the rate of 1 workers is 0, legal is above 0"},
		{"a rate that is no number", points(elastic.Point{Workers: 1, Rate: math.NaN()}), "the rate of 1 workers is NaN"},
		{"an infinite rate", points(elastic.Point{Workers: 1, Rate: math.Inf(1)}), "the rate of 1 workers is +Inf"},
		{"a rate of no workers", points(elastic.Point{Rate: 1}), "point 0 has 0 workers"},
		{"more hosts than workers", points(elastic.Point{Workers: 1, Hosts: 2, Rate: 1}), "1 workers on 2 hosts, legal is 0 to 1"},
		{"two rates of one size", points(elastic.Point{Workers: 1, Rate: 1}, elastic.Point{Workers: 1, Rate: 2}), "two rates of 1 workers on 0 hosts"},
		{"growth above 1", func(j *elastic.Job) { j.Curve.Growth = 1.5 }, "growth is 1.5, legal is 0 to 1"},
		{"apart below 0", func(j *elastic.Job) { j.Curve.Apart = -1 }, "apart is -1, legal is 0 to 1"},
		{"a worker without GPUs", func(j *elastic.Job) { j.Worker = worker(0) }, "asks for 0 slots"},
		{"a worker on an unknown node", func(j *elastic.Job) { j.Placed[0].Node = "gone" }, "worker 0 has its place on gone, where it has no device"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{Cluster: clusterOf(testkit.Node(t, "n0", testkit.A100, 4)), now: 1_000_000}
			for _, name := range []string{"broken", "sound"} {
				w.jobs = append(w.jobs, elastic.Job{Name: name, Started: w.now - 600, Sizes: []int{1, 2, 3}, Worker: worker(10)})
				if !w.extend(t, &w.jobs[len(w.jobs)-1], 1, "") {
					t.Fatal("no room")
				}
			}
			tc.spoil(&w.jobs[0])
			plan := w.decide(t, elastic.Config{})
			broken, sound := plan.Targets[0], plan.Targets[1]
			if broken.Why != elastic.Invalid || broken.Workers != 1 || broken.Err == nil || !strings.Contains(broken.Err.Error(), tc.says) {
				t.Errorf("the target of the broken job is %+v, want its size and %q", broken, tc.says)
			}
			if sound.Workers != 3 || sound.Why != elastic.Idle {
				t.Errorf("the target of the other job is %+v, want 3 workers", sound)
			}
		})
	}
}

func points(p ...elastic.Point) func(j *elastic.Job) {
	return func(j *elastic.Job) { j.Curve.Points = p }
}

func TestWorkersRefuses(t *testing.T) {
	jobs := func(names ...string) (list []elastic.Job) {
		for _, name := range names {
			list = append(list, elastic.Job{Name: name, Sizes: []int{1}, Worker: worker(10)})
		}
		return list
	}
	for _, tc := range []struct {
		name     string
		jobs     []elastic.Job
		reserved []elastic.Reserved
		cfg      elastic.Config
		says     string
	}{
		{"a job twice", jobs("a", "a"), nil, elastic.Config{}, `job "a" appears twice`},
		{"no name", jobs(""), nil, elastic.Config{}, `job "" appears twice, or has no name`},
		{"an unknown policy", nil, nil, elastic.Config{Policy: "best"}, `unknown policy "best", known are [goodput elastic-fifo`},
		{"a horizon below 0", nil, nil, elastic.Config{Horizon: -1}, "a horizon of -1 seconds, legal is 0 to 1e+09"},
		{"a horizon that is no number", nil, nil, elastic.Config{Horizon: math.NaN()}, "a horizon of NaN seconds"},
		{"moves below 0", nil, nil, elastic.Config{MaxMoves: -1}, "at most -1 moves"},
		{"negative capacity", nil, []elastic.Reserved{{Amount: -vgpu.WholeGPU}}, elastic.Config{}, "reserved are -1000 milli-GPU"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := elastic.Workers(clusterOf(testkit.Node(t, "n0", testkit.A100, 1)), tc.jobs, tc.reserved, 1000, tc.cfg)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("says %v, want %q", err, tc.says)
			}
		})
	}
}

// TestMaxPlacements: of two jobs that would grow only one is placed in each round, and the plan says that it was cut.
func TestMaxPlacements(t *testing.T) {
	w := &world{Cluster: clusterOf(testkit.Node(t, "n0", testkit.A100, 8)), now: 1_000_000}
	for _, name := range []string{"a", "b"} {
		w.jobs = append(w.jobs, elastic.Job{Name: name, Started: w.now - 600, Sizes: []int{1, 2}, Worker: worker(10)})
		w.extend(t, &w.jobs[len(w.jobs)-1], 1, "")
	}
	plan := w.decide(t, elastic.Config{MaxPlacements: 1})
	if got := plan.Targets[0].Workers + plan.Targets[1].Workers; got != 3 || !plan.Stats.Cut || plan.Stats.Placed != plan.Stats.Rounds {
		t.Errorf("targets %+v with %+v, want one job with two workers", plan.Targets, plan.Stats)
	}
}

// A job frees shares in the order of its ranks, and they may lie on several devices. It frees more if a job that waits then has a
// whole device.
func TestWholeDeviceFromScatteredShares(t *testing.T) {
	for _, tc := range []struct {
		name   string
		on     []int // the devices of the workers, by rank
		least  int
		target int
		waits  elastic.Why
	}{
		{"two are enough", []int{0, 0, 1, 1}, 1, 2, elastic.Starts},
		{"three must leave", []int{0, 1, 0, 1}, 1, 1, elastic.Starts},
		{"the least keeps both devices", []int{0, 1, 0, 1}, 2, 4, elastic.Waits},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := testkit.Node(t, "n1", testkit.A100, 2)
			running := elastic.Job{Name: "runs", Arrived: 1, Started: 1, Worker: worker(5), Curve: elastic.Curve{Growth: 1, Apart: 1}}
			for size := tc.least; size <= 4; size++ {
				running.Sizes = append(running.Sizes, size)
			}
			for rank, device := range tc.on {
				a := testkit.Assignment(t, n, device, fmt.Sprintf("ns/runs-%d", rank), 5)
				must.OK(t, n.Add(a))
				running.Placed = append(running.Placed, a)
			}
			waiting := elastic.Job{Name: "waits", Arrived: 100, Sizes: []int{1}, Worker: worker(10), Curve: elastic.Curve{Growth: 1, Apart: 1}}
			plan, err := elastic.Workers(clusterOf(n), []elastic.Job{running, waiting}, nil, 10_000, elastic.Config{})
			must.OK(t, err)
			if got := plan.Targets; got[0].Workers != tc.target || got[1].Why != tc.waits {
				t.Errorf("%d workers (%s), and the other one %s", got[0].Workers, got[0].Why, got[1].Why)
			}
		})
	}
}
