package scenario

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
)

// generator draws jobs.
type generator struct {
	name  string
	count int
	// arrive returns the times of arrival, ascending.
	arrive func(*rand.Rand) []time.Duration
	shapes []shape
	// duration draws how long a job runs.
	duration func(*rand.Rand) time.Duration
	declares bool
	standing standing
}

// shape is the request of some of the jobs. Weights of a list add up: upTo is the sum with this one.
type shape struct {
	work
	upTo int64
}

// largest returns the most pods that one of the jobs has.
func (g *generator) largest() int {
	most := 1
	for i := range g.shapes {
		most = max(most, len(g.shapes[i].requests))
	}
	return most
}

// jobs draws the jobs: all arrivals first, then shape and duration, job by job.
func (g *generator) jobs(seed int64) ([]sim.Job, error) {
	h := fnv.New64a()
	h.Write([]byte(g.name)) // never fails
	random := rand.New(rand.NewPCG(uint64(seed), h.Sum64()))
	jobs := make([]sim.Job, 0, g.count)
	for i, at := range g.arrive(random) {
		draw := random.Int64N(g.shapes[len(g.shapes)-1].upTo)
		k := slices.IndexFunc(g.shapes, func(s shape) bool { return draw < s.upTo })
		jobs = append(jobs, g.standing.give(g.shapes[k].jobs(g.jobName(i), at, g.duration(random), g.declares))...)
	}
	return jobs, nil
}

// jobName returns the name of a job by its index.
func (g *generator) jobName(i int) string {
	return fmt.Sprintf("%s/%0*d", g.name, len(fmt.Sprint(g.count)), i+1)
}

// generator reads a generator; left bounds its jobs.
func (r *reader) generator(path string, f *generatorFile, a *asker, taken map[scalar]string, left int) *generator {
	g := &generator{name: r.name(path+".name", f.Name, taken)}
	if g.name == "jobs" || g.name == "trace" || g.name == "fleets" {
		r.wrong(path+".name", quote(f.Name), "another name: pods of jobs, of the trace and of fleets have this one")
	}
	r.arrivals(path+".arrivals", &f.Arrivals, g, int64(max(1, left)))
	sum := int64(0)
	for i := range f.Shapes {
		at := at(path+".shapes", i)
		sum += r.wholeOr(1, at+".weight", f.Shapes[i].Weight, 1, maxWeight)
		g.shapes = append(g.shapes, shape{a.work(at, &f.Shapes[i].workFile), sum})
	}
	if len(f.Shapes) == 0 || len(f.Shapes) > maxSlots {
		r.wrong(path+".shapes", fmt.Sprintf("%d shapes", len(f.Shapes)), fmt.Sprintf("1 to %d", maxSlots))
	}
	if most := g.count * g.largest(); most > left {
		r.wrong(path, fmt.Sprintf("up to %d pods", most), fmt.Sprintf("at most %d, or fewer jobs", left))
	}
	g.duration = r.durations(path+".duration", f.Duration)
	g.declares = r.declares(path, f.DeclaresEnd, f.Duration != nil)
	g.standing = r.standing(path, &f.standingFile, g.name)
	for i := range g.shapes {
		r.suits(path, &g.shapes[i].work, g.declares, &g.standing)
	}
	return g
}

func (r *reader) arrivals(path string, f *arrivalsFile, g *generator, left int64) {
	kinds := 0
	if b := f.Batch; b != nil {
		kinds++
		start := r.start(path+".batch.at", b.At)
		g.count = int(r.whole(path+".batch.count", b.Count, 1, left))
		g.arrive = every(g.count, start, 0)
	}
	if e := f.Every; e != nil {
		kinds++
		start := r.start(path+".every.from", e.From)
		interval := r.duration(path+".every.interval", e.Interval, time.Millisecond)
		g.count = int(r.whole(path+".every.count", e.Count, 1, left))
		if interval > maxTime/time.Duration(g.count) {
			r.wrong(path+".every", fmt.Sprintf("the last arrival after more than %v", maxTime), "less")
		}
		g.arrive = every(g.count, start, interval)
	}
	if p := f.Poisson; p != nil {
		kinds++
		start := r.start(path+".poisson.from", p.From)
		perHour := r.decimal(path+".poisson.per_hour", p.PerHour, 0.001, 3_600_000)
		g.count = int(r.whole(path+".poisson.count", p.Count, 1, left))
		if float64(g.count)/perHour > maxTime.Hours() {
			r.wrong(path+".poisson", fmt.Sprintf("the last arrival after more than %v", maxTime), "less")
		}
		g.arrive = poisson(g.count, start, perHour)
	}
	if kinds != 1 {
		r.wrong(path, fmt.Sprintf("%d of batch, every and poisson", kinds), "one of them")
	}
}

// every returns arrivals at equal intervals.
func every(count int, start, interval time.Duration) func(*rand.Rand) []time.Duration {
	return func(*rand.Rand) []time.Duration {
		all := make([]time.Duration, 0, count)
		for i := range count {
			all = append(all, start+time.Duration(i)*interval)
		}
		return all
	}
}

// poisson returns arrivals that do not know of each other: the times between them are exponential.
func poisson(count int, start time.Duration, perHour float64) func(*rand.Rand) []time.Duration {
	return func(random *rand.Rand) []time.Duration {
		all := make([]time.Duration, 0, count)
		at := 0.0
		for range count {
			at += random.ExpFloat64() / perHour
			all = append(all, start+hours(at))
		}
		return all
	}
}

// hours returns the time rounded to milliseconds, up to twice maxTime.
func hours(h float64) time.Duration {
	return time.Duration(math.Round(min(h, 2*maxTime.Hours())*3_600_000)) * time.Millisecond
}

// durations reads how long jobs run; without anything they stay for ever.
func (r *reader) durations(path string, f *durationFile) func(*rand.Rand) time.Duration {
	if f == nil {
		return func(*rand.Rand) time.Duration { return 0 }
	}
	kinds := 0
	draw := func(*rand.Rand) time.Duration { return 0 }
	if f.Fixed != "" {
		kinds++
		fixed := r.duration(path+".fixed", f.Fixed, time.Millisecond)
		draw = func(*rand.Rand) time.Duration { return fixed }
	}
	if f.Exponential != nil {
		kinds++
		mean := r.duration(path+".exponential.mean", f.Exponential.Mean, time.Millisecond).Hours()
		draw = func(random *rand.Rand) time.Duration { return atLeast(hours(mean * random.ExpFloat64())) }
	}
	if f.Lognormal != nil {
		kinds++
		median := r.duration(path+".lognormal.median", f.Lognormal.Median, time.Millisecond).Hours()
		sigma := r.decimal(path+".lognormal.sigma", f.Lognormal.Sigma, 0, 5)
		draw = func(random *rand.Rand) time.Duration {
			return atLeast(hours(median * math.Exp(sigma*random.NormFloat64())))
		}
	}
	if kinds != 1 {
		r.wrong(path, fmt.Sprintf("%d of fixed, exponential and lognormal", kinds), "one of them, or no duration: for ever")
	}
	if f.AtMost == "" {
		return draw
	}
	most := r.duration(path+".at_most", f.AtMost, time.Millisecond)
	return func(random *rand.Rand) time.Duration { return min(most, draw(random)) }
}

// atLeast keeps a drawn duration above zero, which would mean for ever.
func atLeast(d time.Duration) time.Duration { return max(d, time.Millisecond) }
