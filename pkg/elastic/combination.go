package elastic

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Combination is a number of workers and of parameter servers of one job.
type Combination struct{ Workers, Servers int }

// CombinationRate is the known rate of a combination, in any unit that is the same for all rates of a job.
type CombinationRate struct {
	Combination
	Rate float64
}

// Price is what one worker or one server takes of the cluster.
type Price struct {
	GPU    vgpu.MilliGPU
	CPU    int64 // in thousandths of a core
	Memory vgpu.Bytes
	// Pods counts workers and servers. Choose sets it.
	Pods int
}

// compare orders prices: GPUs first, then CPU, then memory, then pods. So no amount of CPU outweighs a GPU, and a pod that
// requests nothing is not free.
func (p Price) compare(o Price) int {
	return cmp.Or(cmp.Compare(p.GPU, o.GPU), cmp.Compare(p.CPU, o.CPU), cmp.Compare(p.Memory, o.Memory), cmp.Compare(p.Pods, o.Pods))
}

// plus returns the price of one thing and n others.
func (p Price) plus(n int, o Price) Price {
	return Price{GPU: p.GPU + vgpu.MilliGPU(n)*o.GPU, CPU: p.CPU + int64(n)*o.CPU, Memory: p.Memory + vgpu.Bytes(n)*o.Memory, Pods: p.Pods + n}
}

// Tuning is a job with parameter servers that states the rate that it wants.
type Tuning struct {
	// Rates are known, at most one for each combination. See Choose for combinations between them.
	Rates []CombinationRate
	// Workers and Servers are the legal numbers of both, ascending and above 0.
	Workers, Servers []int
	// Rate is the wanted one, above 0.
	Rate float64
	// Worker and Server are the prices of one of each.
	Worker, Server Price
	// Now is the present combination. Its zero value is a job that has not started: every change is free then.
	Now Combination
	// Cost is the time in seconds for which the job does no work after a change. A change must repay it within Horizon,
	// a time in seconds, 0 for DefaultHorizon.
	Cost, Horizon float64
}

// ChoiceWhy says why a combination was chosen.
type ChoiceWhy string

// Reasons of choices.
const (
	// Cheapest: no cheaper combination reaches the rate.
	Cheapest ChoiceWhy = "Cheapest"
	// Kept: a better combination is known, and the change to it would not repay its cost.
	Kept ChoiceWhy = "Kept"
	// Fastest: no combination reaches the rate, and this is the fastest one.
	Fastest ChoiceWhy = "Fastest"
	// Unknown: the rate of no legal combination is known.
	Unknown ChoiceWhy = "Unknown"
)

// Choice is the combination that a job should have.
type Choice struct {
	Combination
	// Rate is the expected rate, 0 where it is unknown.
	Rate float64
	// Measured says that Rate is one of Tuning.Rates, and not an estimate between them.
	Measured bool
	// Price of all workers and servers together.
	Price Price
	Why   ChoiceWhy
	// Refused says why the rate is not reached, nil where it is.
	Refused *RateRefusal
}

// RateRefusal says why no combination reaches the wanted rate.
type RateRefusal struct {
	// Wanted is the rate that the job states.
	Wanted float64
	// Chosen is the combination of the choice, zero where no rate is known.
	Chosen CombinationRate
	// Better is the combination that the change would not repay for, or the fastest one; zero where no rate is known. Its
	// rate is the wanted one or more only where the job keeps its combination because of the cost of the change.
	Better CombinationRate
}

func (r *RateRefusal) String() string {
	switch {
	case r.Better.Rate == 0:
		return fmt.Sprintf("the rate %.4g is wanted, and no rate of a legal combination is known: of a job with parameter servers, rates count that name the number of servers", r.Wanted)
	case r.Better.Rate >= r.Wanted:
		return fmt.Sprintf("%v would reach the rate %.4g, and the change from %v, with a rate of %.4g, would not repay", r.Better.Combination, r.Wanted,
			r.Chosen.Combination, r.Chosen.Rate)
	}
	return fmt.Sprintf("no known combination reaches the rate %.4g: %v is the fastest, with %.4g", r.Wanted, r.Better.Combination, r.Better.Rate)
}

func (c Combination) String() string {
	return fmt.Sprintf("%d workers with %d servers", c.Workers, c.Servers)
}

// MaxServers is the largest legal number of parameter servers. A larger one would make a choice slower.
const MaxServers = 256

// Choose returns the cheapest legal combination that reaches the wanted rate, GPUs first, then CPU, then memory, then the
// number of pods. If several cost the same, it takes the faster one, then the one with fewer workers. It changes nothing,
// and the order of the rates makes no difference.
//
// If the rates are enough for a fit (see fitRates), combinations between the known ones count with the estimate. No
// combination counts that has more or fewer workers or servers than all known ones.
//
// The job keeps its combination unless the change repays. A cheaper one must take less of the first resource in which the two
// differ, although the job takes longer by the cost of the change. If the present combination does not reach the rate, the
// other one must do more work within the horizon.
//
// Example: a rate of 100 is wanted; (workers, servers) (4, 1) has 90, (4, 2) has 110, (8, 1) has 150. Workers have a GPU,
// servers have none. (4, 2) is chosen: both reach the rate, and it takes four GPUs less.
func Choose(t Tuning) (Choice, error) {
	if err := t.Validate(); err != nil {
		return Choice{}, fmt.Errorf("choose workers and servers: %w", err)
	}
	t.Horizon = cmp.Or(t.Horizon, DefaultHorizon)
	known := newRates(t.Rates)
	best, fastest := t.search(known)
	if best.Why == "" {
		best = fastest
		best.Refused = &RateRefusal{Wanted: t.Rate, Chosen: CombinationRate{best.Combination, best.Rate}, Better: CombinationRate{best.Combination, best.Rate}}
	}
	if best.Why == "" {
		best.Why, best.Combination, best.Price = Unknown, t.Now, t.price(t.Now)
		return best, nil
	}
	if t.Now == (Combination{}) || best.Combination == t.Now {
		return best, nil
	}
	return t.unlessKept(best, known), nil
}

// search returns the cheapest combination that reaches the rate, and the fastest one.
func (t *Tuning) search(known *rates) (reached, fastest Choice) {
	for _, w := range t.Workers {
		for _, p := range t.Servers {
			c := Choice{Combination: Combination{w, p}, Price: t.price(Combination{w, p})}
			if c.Rate, c.Measured = known.of(c.Combination); c.Rate == 0 {
				continue
			}
			if c.Why = Fastest; fastest.Why == "" || outpaces(&c, &fastest) {
				fastest = c
			}
			if c.Why = Cheapest; c.Rate >= t.Rate && (reached.Why == "" || undercuts(&c, &reached)) {
				reached = c
			}
		}
	}
	return reached, fastest
}

func (t *Tuning) price(c Combination) Price {
	return Price{}.plus(c.Workers, t.Worker).plus(c.Servers, t.Server)
}

// undercuts orders combinations that reach the rate.
func undercuts(a, b *Choice) bool {
	return cmp.Or(a.Price.compare(b.Price), cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Workers, b.Workers)) < 0
}

// outpaces orders combinations that do not reach it.
func outpaces(a, b *Choice) bool {
	return cmp.Or(cmp.Compare(b.Rate, a.Rate), a.Price.compare(b.Price), cmp.Compare(a.Workers, b.Workers)) < 0
}

// unlessKept returns the present combination where the change to a better one does not repay, else the better one.
func (t *Tuning) unlessKept(best Choice, known *rates) Choice {
	now := Choice{Combination: t.Now, Price: t.price(t.Now), Why: Kept}
	now.Rate, now.Measured = known.of(t.Now)
	legal := slices.Contains(t.Workers, t.Now.Workers) && slices.Contains(t.Servers, t.Now.Servers)
	if !legal || now.Rate == 0 {
		return best // it must change, or nothing speaks for the present combination
	}
	repays := best.Rate*(t.Horizon-t.Cost) > now.Rate*t.Horizon
	if now.Rate >= t.Rate {
		repays = t.saves(best.Price, now.Price)
	}
	if repays {
		return best
	}
	if now.Rate < t.Rate {
		now.Refused = &RateRefusal{Wanted: t.Rate, Chosen: CombinationRate{now.Combination, now.Rate}, Better: CombinationRate{best.Combination, best.Rate}}
	}
	return now
}

// saves reports whether a price is less than another one, of the first resource in which they differ, although the job
// takes longer by the cost of the change.
func (t *Tuning) saves(after, before Price) bool {
	longer := 1 + t.Cost/t.Horizon
	switch {
	case after.GPU != before.GPU:
		return float64(after.GPU)*longer < float64(before.GPU)
	case after.CPU != before.CPU:
		return float64(after.CPU)*longer < float64(before.CPU)
	case after.Memory != before.Memory:
		return float64(after.Memory)*longer < float64(before.Memory)
	}
	return float64(after.Pods)*longer < float64(before.Pods)
}

// Validate returns an error that names what Choose cannot decide on.
func (t *Tuning) Validate() error {
	for i, r := range t.Rates {
		switch {
		case r.Workers < 1 || r.Workers > MaxWorkers || r.Servers < 1 || r.Servers > MaxServers:
			return fmt.Errorf("rate %d is of %v, legal are 1 to %d workers with 1 to %d servers", i, r.Combination, MaxWorkers, MaxServers)
		case !(r.Rate > 0 && !math.IsInf(r.Rate, 1)):
			return fmt.Errorf("the rate of %v is %v, legal is above 0", r.Combination, r.Rate)
		}
		if slices.ContainsFunc(t.Rates[:i], func(o CombinationRate) bool { return o.Combination == r.Combination }) {
			return fmt.Errorf("two rates of %v", r.Combination)
		}
	}
	switch {
	case !legalNumbers(t.Workers, MaxWorkers):
		return fmt.Errorf("the legal numbers of workers %v are not 1 to %d, ascending", t.Workers, MaxWorkers)
	case !legalNumbers(t.Servers, MaxServers):
		return fmt.Errorf("the legal numbers of servers %v are not 1 to %d, ascending", t.Servers, MaxServers)
	case !(t.Rate > 0 && !math.IsInf(t.Rate, 1)):
		return fmt.Errorf("the wanted rate is %v, legal is above 0", t.Rate)
	case !(t.Cost >= 0 && t.Cost <= maxSeconds):
		return fmt.Errorf("a change costs %v seconds, legal is 0 to %g", t.Cost, maxSeconds)
	case !(t.Horizon >= 0 && t.Horizon <= maxSeconds):
		return fmt.Errorf("a horizon of %v seconds, legal is 0 to %g", t.Horizon, maxSeconds)
	case t.Now.Workers < 0 || t.Now.Servers < 0:
		return fmt.Errorf("%v now: legal is 0 or more", t.Now)
	}
	return t.validatePrices()
}

func (t *Tuning) validatePrices() error {
	for _, p := range []struct {
		of    string
		price Price
	}{{"worker", t.Worker}, {"server", t.Server}} {
		if p.price.GPU < 0 || p.price.CPU < 0 || p.price.Memory < 0 || p.price.CPU > maxCPU || p.price.Memory > maxMemory {
			return fmt.Errorf("the price of a %s is %+v, legal is 0 to %d thousandths of a core and %d bytes", p.of, p.price, int64(maxCPU), int64(maxMemory))
		}
	}
	return nil
}

// Bounds of a price, far beyond any machine, so that the sum over all workers does not overflow.
const (
	maxCPU    = 1 << 40
	maxMemory = 1 << 46
)

func legalNumbers(numbers []int, most int) bool {
	return len(numbers) > 0 && numbers[0] >= 1 && numbers[len(numbers)-1] <= most && ascends(numbers)
}
