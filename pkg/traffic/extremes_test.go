package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// extremeFleet draws a fleet with the most variants, classes and replicas that the CustomResourceDefinition allows. Its numbers are as unlike as can be.
func extremeFleet(seed uint64, classes int, objective Objective) (*Fleet, Seen) {
	r := rand.New(rand.NewPCG(seed, 1))
	replica := func() Replica {
		return Replica{Rate: .01 * math.Pow(10, 6.3*r.Float64()), Time: time.Duration(1+r.IntN(900)) * time.Millisecond, Variation: []float64{0, .5, 1, 5}[r.IntN(4)]}
	}
	f := &Fleet{Name: "team/extreme", Objective: objective, Promise: Promise{Within: time.Duration(1+r.IntN(60_000)) * time.Millisecond, Quantile: []float64{.5, .9, .99}[r.IntN(3)]}}
	for i := range 16 {
		f.Variants = append(f.Variants, Variant{
			Name: fmt.Sprint("v", i), Replica: replica(), Cost: 1 + r.Int64N(1_000_000), Most: 10_000, Load: time.Minute, Wanted: 5, Ready: 5, Warm: 5, Part: 1. / 16,
			Measured: Measured{Arrivals: 100, Latency: time.Second, Quantile: .99},
		})
	}
	seen := Seen{At: time.Unix(1_700_000_040, 0), Rate: 3000}
	for k := range classes {
		c := Class{Name: fmt.Sprint("c", k), Rate: 2000 * r.Float64()}
		for range f.Variants {
			c.Replicas, c.Parts = append(c.Replicas, replica()), append(c.Parts, 1./16)
		}
		f.Classes = append(f.Classes, c)
	}
	if classes > 0 {
		seen.Rate = 0
		for k := range f.Classes {
			seen.Rate += f.Classes[k].Rate
		}
		return f, seen
	}
	f.Promise.Within *= 1000 // replicas of thousands of channels
	for i := range f.Variants {
		f.Variants[i].Replica.Time *= 1000
	}
	return f, seen
}

// The searches of one decision share a number of steps, and a decision that has used them up keeps the promise: some search overdraws it by what
// an assignment and a last step take.
func TestDecisionTakesBoundedSteps(t *testing.T) {
	cuts := 0
	for seed := range uint64(40) {
		f, seen := extremeFleet(seed, 7, Proportional)
		d := &decision{fleet: f, seen: seen, cfg: (&Config{}).withDefaults(f), memory: (&Memory{}).clone(), minute: seen.At.Unix() / 60, steps: newBudget()}
		d.run()
		const overdrawn = 7 * 40 * perAssignment
		if d.steps.left < -overdrawn {
			t.Errorf("seed %d: %d steps, allowed are %d", seed, maxSteps-d.steps.left, maxSteps)
		}
		if d.plan.Cut {
			cuts++
		}
		demand := make([]float64, len(f.Classes))
		for k := range demand {
			demand[k] = d.memory.Classes[f.Classes[k].Name].Highest(0)
		}
		replicas := make([]int, len(f.Variants))
		for i := range replicas {
			replicas[i] = d.plan.Variants[i].Replicas
		}
		if served := capacityFor(&Mix{Rates: demand, Loads: d.loads}, replicas); d.plan.Reason == Grows && served < seen.Rate {
			t.Errorf("seed %d: %v requests a second are served of %v", seed, served, seen.Rate)
		}
	}
	if cuts == 0 {
		t.Error("no search was cut: the fleets are not extreme")
	}
}

// Without any steps, a choice is enough, and dearer by no more than what each class alone would cost on its best option.
func TestChoiceWithoutSteps(t *testing.T) {
	options := []Option{{Cost: 10, Most: 9}, {Cost: 3, Most: 9}}
	mix := &Mix{Rates: []float64{9, 100}, Loads: [][]float64{{.1, 0}, {.01, .02}}}
	got := cheapestFor(options, mix, &budget{})
	if !got.Cut || !isEnough(mix, got.Replicas) || got.Cost > 20 {
		t.Errorf("%+v", got)
	}
}

// Half of the steps are left for what comes after the first search, which may use up its own.
func TestHalfOfTheSteps(t *testing.T) {
	b := &budget{100}
	b.half(func(mine *budget) Choice { mine.left -= 60; return Choice{} })
	if b.left != 40 {
		t.Errorf("%d steps are left", b.left)
	}
}

// Erlang's C and the Poisson distribution are summed up from their largest terms: the sums are those of all terms.
func TestSumsOfManyTerms(t *testing.T) {
	for _, c := range []int{1, 2, 7, 100, 4096} {
		for busy := 0.; busy < 1; busy += .0173 {
			a, b, sum, log := busy*float64(c), 1., 0., -busy*float64(c)
			for i := 1; i <= c; i++ {
				b = a * b / (float64(i) + a*b)
			}
			near(t, fmt.Sprint("erlangC ", c, busy), erlangC(c, busy)+1e-30, b/(1-busy*(1-b))+1e-30, 1e-9)
			for i := range c + 1 {
				if i > 0 {
					log += math.Log(a) - math.Log(float64(i))
				}
				sum += math.Exp(log)
			}
			near(t, fmt.Sprint("poisson ", c, busy), poisson(a, c), min(sum, 1), 1e-9)
		}
	}
}

// BenchmarkExtremes is one decision on fleets at the bounds of what is legal.
func BenchmarkExtremes(b *testing.B) {
	run := func(name string, classes int, objective Objective) {
		b.Run(name, func(b *testing.B) {
			worst := time.Duration(0)
			for b.Loop() {
				for seed := range uint64(40) {
					f, seen := extremeFleet(seed, classes, objective)
					start := time.Now()
					if _, _, err := Decide(f, seen, &Memory{}, Config{}); err != nil {
						b.Fatal(err)
					}
					worst = max(worst, time.Since(start))
				}
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "ms/worst")
		})
	}
	run("InferenceFleet/16-variants/7-classes", 7, Proportional)
	for _, o := range Objectives {
		run("InferenceFleet/16-variants/"+string(o), 0, o)
	}
	b.Run("InferenceFleet/inFlight-4096", func(b *testing.B) {
		for b.Loop() {
			for range 16 * 8 {
				InFlight(4096, time.Minute, .99)
			}
		}
	})
}
