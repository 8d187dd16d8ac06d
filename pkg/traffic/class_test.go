package traffic

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Two classes of exponential times: the p99 of 1 s leaves ln 100 = 4.605 of the rate of each alone: 45.4 of 50 short ones and 5.4 of 10 long ones.
// Together, a replica may be busy for 0.908 of its time, as with short ones. Then more long ones wait, and waits must end at a rate x
// with 0.908 × (10 × e^−x − x × e^−10) ÷ (10 − x) + 0.092 × e^−10 = 0.01: 5.249. That leaves 44.75 short ones and 4.75 long ones.
func TestLoadsOf(t *testing.T) {
	p := Promise{Quantile: .99, Within: time.Second}
	loads, late := LoadsOf([][]Replica{{single(50)}, {single(10)}}, p)
	near(t, "short ones", 1/loads[0][0], 50-5.249, 1e-3)
	near(t, "long ones", 1/loads[1][0], 10-5.249, 1e-3)
	if late != 0 {
		t.Errorf("late by %v", late)
	}
	loads, _ = LoadsOf([][]Replica{{single(50)}}, p)
	near(t, "short ones alone", 1/loads[0][0], 50-math.Log(100), 1e-6)
}

// A T4 serves long requests within the promise with 8 % of its time at most: where an A100 serves these, it gets short ones only. Without the A100 it
// serves both. Requests that no variant serves in time go to the one that comes nearest.
func TestLoadsOfSlowVariants(t *testing.T) {
	p := Promise{Quantile: .99, Within: time.Second}
	loads, _ := LoadsOf([][]Replica{{single(50), single(10)}, {single(20), single(5)}}, p)
	if loads[1][1] != 0 {
		t.Errorf("the T4 serves long ones: %v", loads)
	}
	near(t, "short ones on the T4", 1/loads[0][1], 10-math.Log(100), 1e-6)
	loads, late := LoadsOf([][]Replica{{{}, single(10)}, {{}, single(5)}}, p)
	if loads[0][0] != 0 || loads[1][1] == 0 || late != 0 {
		t.Errorf("the T4 alone: %v, late %v", loads, late)
	}
	loads, late = LoadsOf([][]Replica{{single(50), single(10)}, {single(4), single(2)}}, p)
	near(t, "late ones", 1/loads[1][0], .7*4, 1e-9)
	near(t, "what they take", late.Seconds(), math.Log(100)/4, 1e-5)
	if loads[1][1] != 0 {
		t.Errorf("late ones are served twice: %v", loads)
	}
}

// A replica that is full with any mix of classes answers each of them within the promise, by the wait of the mix and the service of the class. One
// class alone has its capacity.
func TestPropertyLoadsOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		replicas, weights := [][]Replica{}, []float64{}
		for range rapid.IntRange(1, 3).Draw(t, "classes") {
			r := single(math.Exp(rapid.Float64Range(-1, 4).Draw(t, "rate")))
			r.Variation = rapid.SampledFrom([]float64{0, .25, 1, 3}).Draw(t, "variation")
			replicas, weights = append(replicas, []Replica{r}), append(weights, rapid.Float64Range(0, 1).Draw(t, "weight"))
		}
		p := Promise{Quantile: .99, Within: time.Duration(rapid.Float64Range(1e8, 1e10).Draw(t, "promise"))}
		loads, late := LoadsOf(replicas, p)
		if late > 0 {
			return
		}
		load, all := 0.0, make([]Replica, len(replicas))
		for k := range replicas {
			all[k] = replicas[k][0]
			if loads[k][0] == 0 {
				return
			}
			load += weights[k] * loads[k][0]
		}
		if len(replicas) == 1 {
			if capacity := all[0].Capacity(p); math.Abs(1/loads[0][0]-capacity) > 1e-9*capacity {
				t.Fatalf("alone it serves %v, not %v", 1/loads[0][0], capacity)
			}
		}
		arrivals, busy := make([]float64, len(all)), 0.0
		for k := range all {
			if load > 0 {
				arrivals[k] = weights[k] / load
				busy += arrivals[k] / all[k].Rate
			}
		}
		for k := range all {
			if got := lateIn(all, arrivals, busy, k, p.Within.Seconds()); got > .01*1.001 {
				t.Fatalf("of class %d %v are late with %v of %v", k, got, arrivals, all)
			}
		}
	})
}

// lateIn returns the part of a class that takes longer than a time in a queue of one channel with all classes, where long waits end as
// Cramér and Lundberg say, by bisection on the sum of the classes.
func lateIn(all []Replica, arrivals []float64, busy float64, k int, within float64) float64 {
	l, _ := all[k].At(0)
	if busy == 0 {
		return l.tail(within)
	}
	slope := func(x float64) (sum float64) {
		for j := range all {
			var of Latency
			of.serve(&all[j])
			for _, p := range of.phases {
				if x >= p.rate {
					return math.Inf(1)
				}
			}
			sum += arrivals[j] * (of.moment(x) - 1) / x
		}
		return sum
	}
	low, high := 0.0, 1e6
	for range 100 {
		if mid := (low + high) / 2; slope(mid) < 1 {
			low = mid
		} else {
			high = mid
		}
	}
	l.waits, l.drain, l.short = busy, low, 0
	return l.tail(within)
}

// A blend of equal classes is each of them. Its wait is that of Pollaczek and Khinchine for the mix.
func TestBlend(t *testing.T) {
	r := Replica{Rate: 20, Time: 100 * time.Millisecond, Variation: .5, Gate: 10 * time.Millisecond, FirstToken: 20 * time.Millisecond, Ceiling: 15}
	got := blend([]Replica{r, r, {}}, []float64{.2, .3, 0})
	near(t, "the rate", got.Rate, 20, 1e-9)
	near(t, "the time", got.Time.Seconds(), .1, 1e-9)
	near(t, "the variation", got.Variation, .5, 1e-9)
	near(t, "the first token", got.FirstToken.Seconds(), .02, 1e-9)
	near(t, "the ceiling", got.Ceiling, 15, 1e-9)
	if got.Gate != r.Gate {
		t.Errorf("the gate is %v", got.Gate)
	}
	got = blend([]Replica{single(10), single(1)}, []float64{9, 1})
	near(t, "the rate of a mix", got.Rate, 10/1.9, 1e-9)
	// The mean time is 0.19 s, the mean of its square 2 × (0.9 × 0.01 + 0.1 × 1) = 0.218.
	near(t, "the variation of a mix", got.Variation, .218/(.19*.19)-1, 1e-9)
}
