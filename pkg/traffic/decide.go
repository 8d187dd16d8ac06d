package traffic

import (
	"math"
	"time"
)

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

// MinuteDemand is the highest rate that sizes were wanted for in a minute since 1970.
type MinuteDemand struct {
	Minute int64   `json:"minute"`
	Rate   float64 `json:"rate"`
	// Classes are the highest rates of each class.
	Classes map[string]float64 `json:"classes,omitempty"`
	// Worth is what one replica of each variant served together, by what was known then: a rate took more replicas where they served less.
	Worth float64 `json:"worth"`
}

// Sizes are the last changes of the sizes of a fleet, and how often a shrink proved wrong.
type Sizes struct {
	// Grown and Shrunk are when the fleet last grew for its demand and last shrank, in seconds since 1970, 0 for never.
	Grown  int64 `json:"grown,omitempty"`
	Shrunk int64 `json:"shrunk,omitempty"`
	// Regrets are how many shrinks of late were taken back, at most mostRegrets. Each makes the next one more careful.
	Regrets int `json:"regrets,omitempty"`
}

const (
	// sizedFor is the part of the promise that replicas are sized for. What is left is for what the prediction does not see: the noise of a
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
	// of a time that is not known so well means many times the replicas. learnedKeeps is the least part of what the declaration says that is left of
	// it when the slowdown is taken off. The guard asks for more where measurements show that less is served.
	leastUse, learnedKeeps = .2, 2. / 3
	// leastSaving is the part of the cost that a swap for cheaper replicas must save: these must load, and both run meanwhile.
	leastSaving = .05
	// swapFor is the factor by which a swap is planned for more than the highest demand of the patience: else a little noise would take the
	// new replicas away again when they have just loaded.
	swapFor = 1.05
	// mostLeaves is the part of its replicas that a variant loses in one decision, one at least.
	mostLeaves = .2
	// spare is the part of the demand that replicas must be able to serve beyond it for others to leave, but no more than spareReplica of one. Each
	// regret adds regretReplica of one, or regretSpare of the demand where that is more. Without it, noise has the same replica leave and come again.
	spare, spareReplica, regretReplica, regretSpare = .05, .5, .5, .03
	// mostRegrets bounds the regrets, and with them the patience, which doubles with each. One is forgotten after forgetRegret times the patience. On
	// a load that varies, three of them cost a third more GPUs, and none a few broken promises.
	mostRegrets, forgetRegret = 1, 16
)

// Decide returns how many replicas each variant of a fleet should have now, and which part of the requests. It grows at once to what the
// forecast expects until another replica could have loaded; it shrinks when the highest demand of the patience needs less. It
// returns what to remember; it does not change what it is given. The error names what is wrong with the fleet.
//
// Where metrics are missing, or the clock went back, nothing shrinks and no part changes, but for variants without a ready replica.
func Decide(f *Fleet, seen Seen, memory *Memory, cfg Config) (*Plan, *Memory, error) {
	if err := f.Validate(); err != nil {
		return nil, nil, err
	}
	d := &decision{fleet: f, seen: seen, cfg: cfg.withDefaults(f), memory: memory.clone(), minute: seen.At.Unix() / 60}
	d.memory.Forecast.Misses = cfg.Misses
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
	return &d.plan, d.memory, nil
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
}

// measure says what one replica of each variant serves.
func (d *decision) measure() {
	d.plan.Variants = make([]Sizing, len(d.fleet.Variants))
	d.slowed, d.dividing = make([]Replica, len(d.fleet.Variants)), make([]Replica, len(d.fleet.Variants))
	d.divides = make([]float64, len(d.fleet.Variants))
	keeps := false
	promise, usable := d.fleet.Promise, 0
	promise.Within = scaled(promise.Within, sizedFor)
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
		s.Capacity = v.capacity(s.Slowdown, promise)
		d.divides[i] = v.capacity(m.dividesBy(), promise)
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
	slowed := v.Replica.Slowed(slowdown)
	served := slowed.Capacity(promise)
	if served == 0 {
		return 0
	}
	return max(served, leastUse*slowed.top(), learnedKeeps*v.Replica.Capacity(promise)/max(1, slowdown))
}

// options returns the variants as options. With keep, none has fewer replicas than now.
func (d *decision) options(keep bool) []Option {
	options := make([]Option, len(d.fleet.Variants))
	for i := range options {
		v := &d.fleet.Variants[i]
		o := Option{Capacity: d.plan.Variants[i].Capacity, Cost: v.Cost, Least: v.Least, Most: v.Most}
		switch {
		case v.Fixed != "" || v.Fails:
			o.Least, o.Most = v.Wanted, v.Wanted
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
	d.forgetRegrets()
	d.plan.Patience = d.patience()
	lasting := d.remember(demand)
	now := d.present(demand)
	switch grown := d.cheapest(true, demand); {
	case now.Capacity < d.plan.Demand:
		d.take(grown.Replicas)
		if d.plan.Reason = Grows; grown.Capacity < d.plan.Demand {
			d.plan.Reason = AtMost
		}
		if adds(&grown, &now) {
			d.grew()
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
	if len(d.fleet.Classes) > 0 {
		return CheapestFor(d.options(keep), &Mix{Rates: demand, Loads: d.loads})
	}
	return Cheapest(d.options(keep), demand[0])
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

// remember takes in the demand, and returns the highest one of the patience: of each class, or of all requests.
func (d *decision) remember(demand []float64) (highest []float64) {
	m, now := d.memory, MinuteDemand{Minute: d.minute, Rate: d.plan.Demand, Classes: d.byClass(demand)}
	for i := range d.plan.Variants {
		now.Worth += d.plan.Variants[i].Capacity
	}
	if n := len(m.Demands); n > 0 && m.Demands[n-1].Minute == d.minute {
		m.Demands[n-1] = now.highest(&m.Demands[n-1])
	} else {
		m.Demands = append(m.Demands, now)
	}
	oldest := d.minute - int64(math.Ceil(d.patience().Minutes()))
	for len(m.Demands) > 0 && m.Demands[0].Minute < oldest {
		m.Demands = m.Demands[1:]
	}
	for _, x := range m.Demands {
		now = now.highest(&x)
	}
	if len(d.fleet.Classes) == 0 {
		return []float64{now.Rate}
	}
	for k := range d.fleet.Classes {
		highest = append(highest, now.Classes[d.fleet.Classes[k].Name])
	}
	return highest
}

// shrink takes replicas away that the highest demand of the patience does not need, with some to spare, or swaps them for cheaper ones: those load first.
func (d *decision) shrink(now Choice, lasting []float64) {
	lasting = d.withSpare(lasting)
	ideal := d.cheapest(false, lasting)
	if adds(&ideal, &now) {
		more := make([]float64, len(lasting))
		for k, r := range lasting {
			more[k] = swapFor * r
		}
		ideal = d.cheapest(false, more)
	}
	d.take(now.Replicas)
	d.plan.Reason = Steady
	if ideal.Cost >= now.Cost || ideal.Capacity < sumOf(lasting) || !d.lasts() {
		return
	}
	target, loading := make([]int, len(now.Replicas)), false
	for i, n := range ideal.Replicas {
		target[i] = max(n, now.Replicas[i])
		loading = loading || d.fleet.Variants[i].Ready < n
	}
	switch {
	case loading && float64(ideal.Cost) > (1-leastSaving)*float64(now.Cost):
		return
	case !loading:
		for i, n := range ideal.Replicas {
			most := max(1, int(mostLeaves*float64(now.Replicas[i])))
			target[i] = max(n, now.Replicas[i]-most)
		}
	}
	d.take(target)
	if d.plan.Reason = Shrinks; loading {
		d.plan.Reason = Cheaper
		return
	}
	d.memory.Sizes.Shrunk = d.seen.At.Unix()
}

// grew notes a growth for the demand. One that comes soon after a shrink says that the shrink was wrong.
func (d *decision) grew() {
	s, now := &d.memory.Sizes, d.seen.At.Unix()
	if s.Shrunk > s.Grown && now-s.Shrunk <= 2*int64(d.patience().Seconds()) {
		s.Regrets = min(s.Regrets+1, mostRegrets)
	}
	s.Grown = now
}

// forgetRegrets forgets a regret when there was none for a long time.
func (d *decision) forgetRegrets() {
	s, now := &d.memory.Sizes, d.seen.At.Unix()
	if s.Regrets > 0 && now-max(s.Grown, s.Shrunk) > forgetRegret*int64(d.patience().Seconds()) {
		s.Regrets--
		s.Grown = now
	}
}

// patience returns how long fewer replicas must have been enough.
func (d *decision) patience() time.Duration {
	return d.cfg.Patience << d.memory.Sizes.Regrets
}

// withSpare returns a demand with what must be spare for replicas to leave.
func (d *decision) withSpare(demand []float64) []float64 {
	replica := 0.0
	for i := range d.plan.Variants {
		if s := &d.plan.Variants[i]; d.fleet.Variants[i].Wanted > 0 && s.Capacity > 0 && (replica == 0 || s.Capacity < replica) {
			replica = s.Capacity
		}
	}
	sum, regrets := sumOf(demand), float64(d.memory.Sizes.Regrets)
	if sum <= 0 {
		return demand
	}
	more := min(spare*sum, spareReplica*replica) + max(regretReplica*regrets*replica, regretSpare*regrets*sum)
	out := make([]float64, len(demand))
	for k, r := range demand {
		out[k] = r * (1 + more/sum)
	}
	return out
}

// adds reports whether a choice has more replicas of a variant than now.
func adds(choice, now *Choice) bool {
	for i, n := range choice.Replicas {
		if n > now.Replicas[i] {
			return true
		}
	}
	return false
}

// lasts reports whether demands are known for the patience, and the fleet has not grown in it.
func (d *decision) lasts() bool {
	s, patience := &d.memory.Sizes, d.patience()
	return d.minute-d.memory.Demands[0].Minute >= int64(patience.Minutes()) && d.seen.At.Unix()-s.Grown >= int64(patience.Seconds())
}
