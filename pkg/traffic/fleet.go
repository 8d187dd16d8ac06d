package traffic

import (
	"fmt"
	"time"
)

// Fleet is one model with its promise, and the variants that serve it.
type Fleet struct {
	// Name is for messages.
	Name      string
	Promise   Promise
	Objective Objective
	// Variants have unlike names.
	Variants []Variant
	// Classes are the kinds of requests that are divided apart: none, or at least two. Then each request is of one, and the Replica of a variant
	// counts only while it gets none of them. The objective is Proportional.
	Classes []Class
	// Paused has Decide change no size and no part. It learns which requests arrive meanwhile, and nothing else.
	Paused bool
}

// Variant is one pool of a fleet: what its replicas can do, and how many there are now.
type Variant struct {
	Name string
	// Replica is as declared, or from the profile of the model.
	Replica Replica
	// Cost of a replica, in a unit that all variants of the fleet share, above 0.
	Cost int64
	// Least and Most bound the number of replicas.
	Least, Most int
	// Load is the time from the start of a replica until it serves.
	Load time.Duration

	// Wanted is how many replicas its scale target asks for now, Ready how many serve. Warm is Ready, but replicas that have just begun count for a
	// part each: at most Ready.
	Wanted, Ready int
	Warm          float64
	// Part is the part of the requests that its weight gives it now, from 0 to 1.
	Part float64
	// Measured is what each replica did in the last minute.
	Measured Measured
	// Fails says that it answers errors: it gets no requests and counts for nothing.
	Fails bool
	// Fixed is why its number of replicas cannot be changed, "" where it can.
	Fixed string
}

// Seen is what arrived at a fleet in a window, the last minute by default.
type Seen struct {
	At time.Time
	// Window is how long the window is, 0 for a minute.
	Window time.Duration
	// Rate is requests a second, NaN for unknown.
	Rate float64
	// Latency is the measured time within which the promised part was answered, 0 for unknown.
	Latency time.Duration
	// PerToken is the measured time within which the promised part of the tokens followed the one before, 0 for unknown.
	PerToken time.Duration
}

// breaksBy returns how many times longer than promised requests or tokens took, below 1 where the promise is kept.
func (s *Seen) breaksBy(p *Promise) float64 {
	by := s.Latency.Seconds() / p.Within.Seconds()
	if p.PerToken > 0 {
		by = max(by, s.PerToken.Seconds()/p.PerToken.Seconds())
	}
	return by
}

// Config says how Decide decides. Zero values stand for the defaults.
type Config struct {
	// Interval is the time between two decisions, 15 s by default.
	Interval time.Duration
	// Patience is how long fewer replicas must be enough before some leave. The default is eight times the longest load time, from 5 to 30
	// minutes: a replica that leaves too early must load again.
	Patience time.Duration
	// Misses is the part of the minutes that may bring more requests than forecast, above 0 and below 0.5; DefaultMisses by default. Less keeps the
	// promise more often and takes more replicas.
	Misses float64
	// Shift bounds by how much the part of a variant changes in a decision, 0.2 by default. 1 is no bound.
	Shift float64
}

const (
	defaultInterval = 15 * time.Second
	leastPatience   = 5 * time.Minute
	mostPatience    = 30 * time.Minute
	defaultShift    = .2
)

// PatienceFor returns the patience for a fleet.
func (c *Config) PatienceFor(f *Fleet) time.Duration {
	if c.Patience > 0 {
		return c.Patience
	}
	longest := time.Duration(0)
	for i := range f.Variants {
		longest = max(longest, f.Variants[i].Load)
	}
	return min(max(8*longest, leastPatience), mostPatience)
}

func (c *Config) withDefaults(f *Fleet) Config {
	out := *c
	out.Patience = c.PatienceFor(f)
	if out.Interval == 0 {
		out.Interval = defaultInterval
	}
	if out.Shift == 0 {
		out.Shift = defaultShift
	}
	return out
}

// Validate says what is wrong with a fleet: the variant, the field and its legal values.
func (f *Fleet) Validate() error {
	if err := f.Promise.Validate(); err != nil {
		return fmt.Errorf("promise: %w", err)
	}
	if err := f.Objective.Validate(); err != nil {
		return err
	}
	if len(f.Variants) == 0 {
		return fmt.Errorf("variants: there must be at least one")
	}
	seen := map[string]bool{}
	for i := range f.Variants {
		v := &f.Variants[i]
		if seen[v.Name] {
			return fmt.Errorf("variant %q: two variants have this name", v.Name)
		}
		seen[v.Name] = true
		if err := v.validate(); err != nil {
			return fmt.Errorf("variant %q: %w", v.Name, err)
		}
	}
	return f.validateClasses()
}

func (v *Variant) validate() error {
	if err := v.Replica.Validate(); err != nil {
		return err
	}
	if v.Load < 0 || v.Load > MaxTime {
		return fmt.Errorf("load time %v: legal are times from 0 to %v", v.Load, MaxTime)
	}
	return (&Option{Cost: v.Cost, Least: v.Least, Most: v.Most}).Validate()
}

// Reason says in one word why a fleet has the sizes that it has.
type Reason string

// The reasons.
const (
	// Grows: more requests are expected than the replicas serve within the promise.
	Grows Reason = "Grows"
	// Shrinks: fewer replicas have been enough for the patience, in which the fleet has not grown.
	Shrinks Reason = "Shrinks"
	// Cheaper: cheaper replicas would have been enough for the patience. They load before the others leave.
	Cheaper Reason = "Cheaper"
	// Steady: the replicas are right.
	Steady Reason = "Steady"
	// AtMost: all variants have the most replicas that they may have, and that is not enough.
	AtMost Reason = "AtMost"
	// PromiseTooShort: no number of replicas keeps the promise. The fleet is sized so that no replica is overloaded.
	PromiseTooShort Reason = "PromiseTooShort"
	// NoMetrics: it is unknown how many requests arrive. All stays as it is.
	NoMetrics Reason = "NoMetrics"
	// AllFail: all variants answer errors. All stays as it is.
	AllFail Reason = "AllFail"
	// Paused: the user holds the sizes and the parts. All stays as it is.
	Paused Reason = "Paused"
)

// Plan is what to change in a fleet.
type Plan struct {
	Reason Reason
	// Variants in the order of the fleet.
	Variants []Sizing
	// Classes are the parts of each class that the variants get, in the order of the fleet. They have the sum 1, or are all 0 where no ready
	// replica serves the class.
	Classes [][]float64
	// Patience is how long fewer replicas must have been enough before some leave, and the fleet must not have grown.
	Patience time.Duration
	// Demand is the rate that the sizes are for, and Capacity the rate that they serve within the promise.
	Demand, Capacity float64
	// Best is the shortest promise that some variant could keep, where none keeps the given one.
	Best time.Duration
	// Later is what the fleet will need, from soon to late.
	Later []Need
	// Cut says that a search ended at its bound: the sizes keep the promise, and cheaper ones may exist.
	Cut bool
}

// Sizing is what a variant should have now.
type Sizing struct {
	Replicas int
	// Part of the requests, from 0 to 1. The parts of a plan have the sum 1, or are all 0 where no replica serves.
	Part float64
	// Capacity of one replica: requests a second within the promise, of the present mix of the classes that it serves. Slowdown is what was learned of
	// it, at least 0.25.
	Capacity, Slowdown float64
}

// Need is how many replicas the fleet should have at a time, as far as the forecast tells: they start then, so that they have loaded when the
// requests come.
type Need struct {
	In       time.Duration
	Replicas []int
}
