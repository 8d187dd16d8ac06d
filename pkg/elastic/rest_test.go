package elastic_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestEqualJobsRest: equal jobs of which nothing is measured change their sizes at most twice, and rest then, on any nodes and with any sizes.
// So do those whose common rates are known.
func TestEqualJobsRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, j := wholeGPUs(t)
		sizes := j.Sizes
		if uniform(t, "rates", false, true) {
			growth := float64(between(t, "growth", 3, 10)) / 10
			for _, n := range sizes {
				j.Curve.Points = append(j.Curve.Points, elastic.Point{Workers: n, Rate: math.Pow(float64(n), growth)})
			}
		}
		for _, name := range []string{"team/a", "team/b"} {
			j.Name = name
			w.jobs = append(w.jobs, j)
		}
		every := int64(uniform(t, "every", 10, 60, 300))
		for end := w.now + 12*3600; w.now < end; w.now += every {
			w.apply(t, w.decide(t, elastic.Config{}))
			for i := range w.jobs {
				if moved := w.jobs[i].Moved; len(moved) > 2 {
					t.Fatalf("job %s with the sizes %v changed its size %v seconds after it came", w.jobs[i].Name, sizes, since(moved, j.Arrived))
				}
			}
		}
	})
}

// wholeGPUs returns a world of idle nodes, and a job of whole GPUs that comes.
func wholeGPUs(t *rapid.T) (*world, elastic.Job) {
	var nodes []*vgpu.Node
	gpus := between(t, "GPUs of a node", 2, 8)
	for i := range between(t, "nodes", 1, 4) {
		name := fmt.Sprintf("n%d", i)
		n, err := vgpu.NewNode(name, testkit.A100.Devices(name, gpus))
		must.OK(t, err)
		nodes = append(nodes, n)
	}
	w := &world{Cluster: clusterOf(nodes...), now: 1_000_000}
	least, step := between(t, "least", 1, 2), between(t, "step", 1, 2)
	sizes, err := elastic.Steps(least, least+step*between(t, "steps", 1, 8), step)
	must.OK(t, err)
	return w, elastic.Job{Arrived: w.now, Sizes: sizes, Worker: worker(10), Wishes: gang.Wishes{Preferred: []string{hostname}}, Cost: float64(uniform(t, "cost", 0, 30, 60, 300))}
}

// TestNoisyRatesRest: three unlike jobs whose reported rates have up to 20 % of noise, and of which one ends after six hours, change their sizes at most
// five times each in a day. The most among 3,000 cases was four.
func TestNoisyRatesRest(t *testing.T) {
	const most = 5
	rapid.Check(t, func(t *rapid.T) {
		w, j := wholeGPUs(t)
		var growth [3]float64
		var learners [3]elastic.Learner
		for i := range growth {
			growth[i] = float64(between(t, "growth", 3, 10)) / 10
			j.Name = fmt.Sprint("team/", i)
			w.jobs = append(w.jobs, j)
		}
		noise, drawn := float64(between(t, "noise", 0, 20))/100, rand.New(rand.NewPCG(uint64(between(t, "seed", 1, 10_000)), 0))
		every := int64(uniform(t, "every", 60, 300))
		for end := w.now + 24*3600; w.now < end; w.now += every {
			w.apply(t, w.decide(t, elastic.Config{}))
			for i := range w.jobs {
				j := &w.jobs[i]
				if len(j.Moved) > most {
					t.Fatalf("job %s with the sizes %v changed its size %v seconds after it came", j.Name, j.Sizes, since(j.Moved, j.Arrived))
				}
				if n := len(j.Placed); n > 0 {
					must.OK(t, learners[i].Report(w.now, n, 1, math.Pow(float64(n), growth[i])*(1+noise*(2*drawn.Float64()-1))))
				}
				j.Curve.Points = learners[i].Points()
			}
			if last := len(w.jobs) - 1; last == 2 && w.now >= j.Arrived+6*3600 {
				w.shrink(&w.jobs[last], 0)
				w.jobs = w.jobs[:last]
			}
		}
	})
}

func since(times []int64, from int64) (passed []int64) {
	for _, at := range times {
		passed = append(passed, at-from)
	}
	return passed
}

// TestSumLaw: under goodput, devices go from one running job to another only where all jobs together gain: the product of their speeds after the change, with
// a tenth less for each that shrinks, is greater than before, where jobs are of one age and changes are free. No job shrinks for nothing.
func TestSumLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		w.reserved = nil
		for i := range w.jobs {
			w.jobs[i].Arrived, w.jobs[i].Cost = w.now-1000, 0
		}
		plan := w.decide(t, elastic.Config{MaxPlacements: uniform(t, "placements", 1, 2, 64)})
		sum, shrinks := 0.0, false
		for i, x := range plan.Targets {
			if x.Why == elastic.Starts || x.Now > 0 && !slices.Contains(w.jobs[i].Sizes, x.Now) {
				return // others shrink for a job that waits, or for the workers that one is missing
			}
			if x.Now == 0 {
				continue
			}
			sum += math.Log(x.After / x.Before)
			if x.Workers < x.Now {
				sum, shrinks = sum-math.Log(1.1), true
			}
		}
		if shrinks && sum < 1e-9 {
			t.Fatalf("the sum of the logarithms gains %.3f: %+v", sum, plan.Targets)
		}
	})
}

// TestKeepsWhatNoneTakes: a job shrinks for others, and none of these finds a place in all rounds, since their workers need CPU that no node has. It keeps its size.
func TestKeepsWhatNoneTakes(t *testing.T) {
	n, err := vgpu.NewNode("n0", testkit.A100.Devices("n0", 15))
	must.OK(t, err)
	w := &world{Cluster: clusterOf(n), now: 1_000_000}
	w.jobs = append(w.jobs, elastic.Job{Name: "old", Sizes: []int{1, 2, 3, 4, 5, 6}, Worker: worker(10), Curve: elastic.Curve{Growth: .3}})
	w.extend(t, &w.jobs[0], 6, "")
	for i := range 9 {
		j := elastic.Job{Name: fmt.Sprintf("team/%d", i), Arrived: w.now - 7200, Started: w.now - 7200, Sizes: []int{1, 6}, Worker: worker(10), Curve: elastic.Curve{Growth: 1}}
		j.Worker.Request.Host.MilliCPU = 1000
		n.SetRoom(vgpu.Room{MilliCPU: 1000})
		w.extend(t, &j, 1, "")
		w.jobs = append(w.jobs, j)
	}
	plan := w.decide(t, elastic.Config{})
	if plan.Stats.Rounds != 8 || plan.Targets[0].Workers != 6 {
		t.Errorf("after %d rounds the job that should keep its size has the target %+v", plan.Stats.Rounds, plan.Targets[0])
	}
}
