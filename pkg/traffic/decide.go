package traffic

import "time"

// Memory is what Decide remembers of a fleet from one decision to the next. The zero value knows nothing. It is data: it can be
// written and read.
type Memory struct {
	Forecast Forecast `json:"forecast"`
	// Classes are the forecasts of each class, where the fleet has some.
	Classes map[string]*Forecast `json:"classes,omitempty"`
	// Variants are what was learned of each.
	Variants map[string]*VariantMemory `json:"variants,omitempty"`
	// Guard is by which factor more capacity is wanted than predicted, since measurements broke the promise: from 1 to 2.
	Guard   float64 `json:"guard,omitempty"`
	Guarded Guarded `json:"guarded"`
	// Demands are what was wanted in the last minutes: the highest of each minute, the newest last.
	Demands []MinuteDemand `json:"demands,omitempty"`
	// Minute is the last one of which measurements were taken in.
	Minute int64 `json:"minute,omitempty"`
	// Sizes are the last changes of the sizes.
	Sizes Sizes `json:"sizes"`
}

const (
	// sizedFor is the part of the promise that replicas are sized for. The rest is for what the prediction does not see: the noise of a
	// minute, unlike replicas. More costs less and breaks the promise more often.
	sizedFor = .95
	// guardGrows is the factor of one step of the guard, and mostGuard bounds it. guardAllows is how many standard deviations a window may be above the
	// promise without being counted, broken the sum at which a step is due: three windows at least, some thirty where they are half a standard
	// deviation above. Windows that are on the promise on average reach it in half a day. mostPause bounds the doublings of the time until the guard
	// gives a step back.
	guardGrows, mostGuard, guardAllows, broken, mostPause = 1.1, 2, .25, 8, 5
	// unseenKeeps is what is left, after a minute without a request, of the difference between a learned slowdown and 1: half of it after
	// 35 minutes. More keeps a variant out for longer; less tries a slow one more often.
	unseenKeeps = .98
	// jump is the part by which the rate may differ from that of the last minutes, for measurements to be of one rate.
	jump = .15
	// fullUse is the part of its rate that a replica serves where no promise can be kept.
	fullUse = .7
	// leastUse is the least part of its rate that a replica is taken to serve, where it keeps the promise at all: below it, a hundredth more or less
	// of a time that is not known so well means many times the replicas. Near the edge of a promise the same goes for what sizedFor takes away, and for
	// what is learned: sizedKeeps is the least part that is left of what a replica serves within the whole promise, learnedKeeps that of what its
	// declaration serves, when the slowdown is taken off. The guard asks for more where measurements show that less is served.
	leastUse, learnedKeeps, sizedKeeps = .2, 2. / 3, .75
)

// Decide returns how many replicas each variant of a fleet should have now, and which part of the requests. It grows at once to what the
// forecast expects until another replica could have loaded; it shrinks when the highest demand of the patience needs less. It
// returns what to remember; it does not change what it is given. The error names what is wrong with the fleet.
//
// Its searches share a number of steps. If these are used up, sizes are enough for the promise, and cheaper ones may exist: Plan.Cut says so.
//
// When metrics are missing, or the clock went back, nothing shrinks and no part changes, but for variants without a ready replica. A fleet that is
// paused keeps all as it is.
func Decide(f *Fleet, seen Seen, memory *Memory, cfg Config) (*Plan, *Memory, error) {
	if err := f.Validate(); err != nil {
		return nil, nil, err
	}
	d := &decision{fleet: f, seen: seen, cfg: cfg.withDefaults(f), memory: memory.clone(), minute: seen.At.Unix() / 60, steps: newBudget()}
	d.memory.Forecast.Misses, d.memory.Forecast.Window = cfg.Misses, d.smoothed()
	if f.Paused {
		return d.pause(), d.afterPause(memory), nil
	}
	d.run()
	return &d.plan, d.memory, nil
}

func (d *decision) run() {
	d.blendClasses()
	d.learn()
	d.learnClasses()
	d.measure()
	d.measureClasses()
	d.guard()
	d.size()
	if len(d.fleet.Classes) > 0 {
		d.assign()
	} else {
		d.split()
	}
}

func (m *Memory) clone() *Memory {
	out := *m
	out.Forecast = m.Forecast.clone()
	out.Classes = map[string]*Forecast{}
	for name, f := range m.Classes {
		of := f.clone()
		out.Classes[name] = &of
	}
	out.Demands = append([]MinuteDemand(nil), m.Demands...)
	out.Variants = map[string]*VariantMemory{}
	for name, v := range m.Variants {
		of := *v
		out.Variants[name] = &of
	}
	return &out
}

func (f *Forecast) clone() Forecast {
	out := *f
	out.Recent = append([]float64(nil), f.Recent...)
	out.Day = append([]float64(nil), f.Day...)
	out.Hour = append([]Rise(nil), f.Hour...)
	return out
}

// decision is one run of Decide.
type decision struct {
	fleet  *Fleet
	seen   Seen
	cfg    Config
	memory *Memory
	minute int64
	plan   Plan
	// isKnown says that it is known how many requests arrive, isNew that no decision has seen this minute.
	isKnown, isNew bool
	// slowed are the replicas as they were learned, and dividing those by which the requests are divided, by variant, with their capacities.
	slowed, dividing []Replica
	divides          []float64
	// loads are those of the classes on the variants, as Mix has them.
	loads [][]float64
	// steps are left for the searches.
	steps *budget
}

// measure says what one replica of each variant serves.
func (d *decision) measure() {
	d.plan.Variants = make([]Sizing, len(d.fleet.Variants))
	d.slowed, d.dividing = make([]Replica, len(d.fleet.Variants)), make([]Replica, len(d.fleet.Variants))
	d.divides = make([]float64, len(d.fleet.Variants))
	keeps := false
	usable := 0
	for i := range d.fleet.Variants {
		if v := &d.fleet.Variants[i]; !v.Fails && v.Most > 0 {
			usable++
		}
	}
	for i := range d.fleet.Variants {
		v, s := &d.fleet.Variants[i], &d.plan.Variants[i]
		s.Replicas, s.Part = v.Wanted, v.Part
		m := d.memory.Variants[v.Name]
		s.Slowdown = min(max(m.sizesBy(usable < 2, d.seen.At.Unix(), d.windowSeconds()), leastSlowdown), mostSlowdown)
		d.slowed[i], d.dividing[i] = v.Replica.Slowed(s.Slowdown), v.Replica.Slowed(m.dividesBy())
		if v.Fails {
			continue
		}
		s.Capacity = v.capacity(s.Slowdown, d.fleet.Promise)
		d.divides[i] = v.capacity(m.dividesBy(), d.fleet.Promise)
		keeps = keeps || s.Capacity > 0
		if best := d.slowed[i].Best(d.fleet.Promise.Quantile); d.plan.Best == 0 || best < d.plan.Best {
			d.plan.Best = best
		}
	}
	if keeps {
		d.plan.Best = 0
		return
	}
	for i := range d.fleet.Variants { // the last resort: serve all requests, if late
		if !d.fleet.Variants[i].Fails {
			d.plan.Variants[i].Capacity = fullUse * d.slowed[i].top()
			d.divides[i] = fullUse * d.dividing[i].top()
		}
	}
}

// capacity returns what a replica that was learned to be slower serves within a promise, 0 where it keeps that at no rate.
func (v *Variant) capacity(slowdown float64, promise Promise) float64 {
	slowed, sized := v.Replica.Slowed(slowdown), promise
	sized.Within = scaled(promise.Within, sizedFor)
	served := slowed.Capacity(promise)
	if served == 0 {
		return 0
	}
	return max(slowed.Capacity(sized), sizedKeeps*served, leastUse*slowed.top(), learnedKeeps*v.Replica.Capacity(promise)/max(1, slowdown))
}

// options returns the variants as options. With keep, none has fewer replicas than now.
func (d *decision) options(keep bool) []Option {
	options := make([]Option, len(d.fleet.Variants))
	for i := range options {
		v := &d.fleet.Variants[i]
		o := Option{Capacity: d.plan.Variants[i].Capacity, Cost: v.Cost, Least: v.Least, Most: v.Most}
		switch {
		case v.Fixed != "":
			o.Least, o.Most = v.Wanted, v.Wanted
		case v.Fails:
			o.Least = min(max(v.Wanted, v.Least), v.Most)
			o.Most = o.Least
		case keep:
			o.Least = min(max(v.Wanted, v.Least), v.Most)
		}
		options[i] = o
	}
	return options
}

// size chooses the numbers of replicas.
func (d *decision) size() {
	longest, some := time.Duration(0), false
	for i := range d.fleet.Variants {
		if v := &d.fleet.Variants[i]; !v.Fails {
			longest, some = max(longest, v.Load), true
		}
	}
	if !some || !d.isKnown {
		if d.plan.Reason = NoMetrics; !some {
			d.plan.Reason = AllFail
		}
		d.bounds()
		return
	}
	horizon := longest + d.cfg.Interval
	demand := d.demand(horizon)
	d.plan.Demand = sumOf(demand)
	d.plan.Patience = d.cfg.Patience
	lasting := d.remember(demand)
	now := d.present(demand)
	switch grown := d.cheapest(true, demand); {
	case now.Capacity < d.plan.Demand:
		d.take(grown.Replicas)
		if d.plan.Reason = Grows; grown.Capacity < d.plan.Demand {
			d.plan.Reason = AtMost
		}
		if adds(&grown, &now) {
			d.grew(&now)
		}
	default:
		d.shrink(now, lasting)
	}
	if len(d.fleet.Classes) > 0 {
		d.plan.Capacity = d.capacity(demand)
	}
	if d.plan.Best > 0 {
		d.plan.Reason = PromiseTooShort
	}
	for _, in := range ahead() {
		later := d.demand(in + horizon)
		for k := range later {
			later[k] = max(lasting[k], later[k])
		}
		d.plan.Later = append(d.plan.Later, Need{in, d.cheapest(false, later).Replicas})
	}
}

// demand returns what sizes are for until a time ahead: of each class, or of all requests where the fleet has none.
func (d *decision) demand(ahead time.Duration) []float64 {
	if len(d.fleet.Classes) > 0 {
		return d.classDemand(ahead)
	}
	return []float64{d.memory.Forecast.Highest(ahead) * d.memory.Guard}
}

// cheapest returns the cheapest replicas for a demand. With keep, no variant has fewer than now.
func (d *decision) cheapest(keep bool, demand []float64) Choice {
	choice := d.steps.half(func(steps *budget) Choice {
		if len(d.fleet.Classes) > 0 {
			return cheapestFor(d.options(keep), &Mix{Rates: demand, Loads: d.loads}, steps)
		}
		return cheapest(d.options(keep), demand[0], steps)
	})
	d.plan.Cut = d.plan.Cut || choice.Cut
	return choice
}

// present returns the replicas of now, within their bounds, with the capacity that they have for a demand.
func (d *decision) present(demand []float64) Choice {
	now := Cheapest(d.options(true), 0)
	if len(d.fleet.Classes) > 0 {
		now.Capacity = capacityFor(&Mix{Rates: demand, Loads: d.loads}, now.Replicas)
	}
	return now
}

func sumOf(rates []float64) (sum float64) {
	for _, r := range rates {
		sum += r
	}
	return sum
}

// ahead returns when needs are looked for. The first one is when elastic jobs begin to give devices back: without it a need would stay ten minutes
// away until the fleet grows. More times say more precisely for how long devices are lent.
func ahead() []time.Duration {
	return []time.Duration{2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour}
}

// bounds keeps all sizes, within their bounds.
func (d *decision) bounds() {
	for i := range d.plan.Variants {
		if v := &d.fleet.Variants[i]; v.Fixed == "" {
			d.plan.Variants[i].Replicas = min(max(v.Wanted, v.Least), v.Most)
		}
	}
}

func (d *decision) take(replicas []int) {
	d.plan.Capacity = 0
	for i, n := range replicas {
		d.plan.Variants[i].Replicas = n
		d.plan.Capacity += float64(n) * d.plan.Variants[i].Capacity
	}
}
