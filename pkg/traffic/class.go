package traffic

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Class is a kind of requests that can be told apart before they are served, such as long prompts.
type Class struct {
	Name string
	// Replicas say how a replica of each variant serves this class alone. One without a Rate does not serve it.
	Replicas []Replica
	// Rate is how many requests a second arrived in the last minute, NaN for unknown. Those of all classes are those of the fleet.
	Rate float64
	// Parts of the class that the variants get now by its weights, from 0 to 1.
	Parts []float64
}

func (f *Fleet) validateClasses() error {
	if len(f.Classes) > 0 && f.Objective != Proportional {
		return fmt.Errorf("objective %q: with classes it must be %q", f.Objective, Proportional)
	}
	seen := map[string]bool{}
	for k := range f.Classes {
		c := &f.Classes[k]
		if seen[c.Name] {
			return fmt.Errorf("class %q: two classes have this name", c.Name)
		}
		seen[c.Name] = true
		if len(c.Replicas) != len(f.Variants) || len(c.Parts) != len(f.Variants) {
			return fmt.Errorf("class %q: it has %d replicas and %d parts, and the fleet has %d variants", c.Name, len(c.Replicas), len(c.Parts), len(f.Variants))
		}
		some := false
		for i := range c.Replicas {
			if c.Replicas[i].Rate == 0 {
				continue
			}
			if some = true; c.Replicas[i].Validate() != nil {
				return fmt.Errorf("class %q, variant %q: %w", c.Name, f.Variants[i].Name, c.Replicas[i].Validate())
			}
		}
		if !some {
			return fmt.Errorf("class %q: no variant serves it", c.Name)
		}
	}
	return nil
}

// server is how a variant serves a class.
type server struct {
	replica Replica
	// capacity is how many requests a second of the class alone a replica serves within the promise, a part busy of its rate; 0 where it serves
	// none. latency is what these take.
	capacity, busy float64
	latency        Latency
}

// leastPart is the part of its rate below which a capacity is none: what rounding leaves.
const leastPart = 1e-6

func newServer(r Replica, p Promise) server {
	s := server{replica: r}
	if capacity := r.Capacity(p); capacity > leastPart*r.Rate {
		s.capacity, s.busy = capacity, capacity/r.Rate
		s.latency, _ = r.At(min(capacity, r.Rate*(1-leastPart)))
	}
	return s
}

// drain returns the rate at which long waits must end so that the class keeps the promise where a replica is busy for a part of its time: at least
// the part that it may be alone. Then requests wait more often, and must not wait as long.
func (s *server) drain(busy float64, p Promise) float64 {
	l := s.latency
	if busy <= s.busy {
		return l.drain
	}
	l.waits = erlangC(s.replica.channels(), min(busy, 1-leastPart))
	low, high := l.drain, 2*l.drain
	keeps := func(drain float64) bool {
		l.drain = drain
		return l.tail(p.Within.Seconds()) <= 1-p.Quantile
	}
	for !keeps(high) && high < MaxRate {
		low, high = high, 2*high
	}
	for range 30 {
		if mid := (low + high) / 2; keeps(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// load returns the load of a request a second, where a replica may be busy for a part of its time, and long waits must end at a rate. It is +Inf
// where they cannot with requests of this class.
func (s *server) load(busy, drain float64) float64 {
	load := max(1/s.capacity, 1/(busy*s.replica.Rate))
	if drain <= s.latency.drain {
		return load
	}
	var l Latency
	l.serve(&s.replica)
	x := drain / (s.replica.Rate * s.replica.Time.Seconds()) // the queue takes Rate requests a second
	for _, p := range l.phases {
		if x >= p.rate {
			return math.Inf(1)
		}
	}
	return max(load, (l.moment(x)-1)/drain)
}

// LoadsOf returns what requests of each class ask of a replica of each variant, as [Mix] has it: so that a replica that is not overloaded by any
// mix of them keeps the promise for all classes that it serves. With a class that more than doubles the loads of others, a
// variant serves those only, unless it is the best one for that class. A class for which no variant keeps the promise
// goes where it comes nearest to that. Late is the promise that could be kept for such classes, 0 where there are none.
//
// The busier a replica may be, the faster long waits must end for the classes that allow less alone. For both, the loads of classes that share a
// replica add up: the second is the effective bandwidth of a class, (M(x) − 1) ÷ x for a mean M(x) of e^(x × S) over its times S, where long
// waits end at the rate x (Kelly, Notes on effective bandwidths, 1996).
func LoadsOf(replicas [][]Replica, p Promise) (loads [][]float64, late time.Duration) {
	servers, best := make([][]server, len(replicas)), make([]int, len(replicas))
	loads = make([][]float64, len(replicas))
	for k := range replicas {
		servers[k], loads[k] = make([]server, len(replicas[k])), make([]float64, len(replicas[k]))
		for i, r := range replicas[k] {
			if r.Rate > 0 {
				servers[k][i] = newServer(r, p)
			}
			if servers[k][i].busy > servers[k][best[k]].busy {
				best[k] = i
			}
		}
	}
	for i := range replicas[0] {
		v := &sharing{drains: map[[2]int]float64{}, promise: p}
		for k := range servers {
			if s := &servers[k][i]; s.capacity > 0 {
				v.classes, v.servers, v.isBest = append(v.classes, k), append(v.servers, s), append(v.isBest, best[k] == i)
			}
		}
		for at, load := range v.loads() {
			if !math.IsInf(load, 1) {
				loads[v.classes[at]][i] = load
			}
		}
	}
	for k := range servers {
		if slices.Max(loads[k]) == 0 {
			late = max(late, nearest(servers[k], loads[k], p.Quantile))
		}
	}
	return loads, late
}

// sharing is one variant with the classes that it serves.
type sharing struct {
	// drains are those that server.drain has returned, by class and by the class whose part of the time it is.
	drains  map[[2]int]float64
	promise Promise
	classes []int
	servers []*server
	// isBest says that no other variant is better for a class.
	isBest []bool
}

// mostHarm is by how many times one class may raise the load of another one. With more, requests that must hardly wait would leave a variant idle
// for the others. With less, variants are left out that could help.
const mostHarm = 2

// loads returns the loads, and leaves classes out that harm the others, the most harmful one first.
func (v *sharing) loads() []float64 {
	for {
		loads := v.all()
		var rest *sharing
		most := float64(mostHarm)
		for at := range v.servers {
			if v.isBest[at] || len(loads) == 1 {
				continue
			}
			without := v.without(at)
			others := without.all()
			for k, load := range slices.Delete(slices.Clone(loads), at, at+1) {
				if load/others[k] > most {
					rest, most = without, load/others[k]
				}
			}
		}
		if rest == nil {
			return loads
		}
		*v = *rest
	}
}

// without returns the variant without one of its classes.
func (v *sharing) without(at int) *sharing {
	return &sharing{
		v.drains, v.promise, slices.Delete(slices.Clone(v.classes), at, at+1), slices.Delete(slices.Clone(v.servers), at, at+1),
		slices.Delete(slices.Clone(v.isBest), at, at+1),
	}
}

// all returns the loads of all classes, at the part of its time for which a replica may be busy at which the load of no class rises as much as at
// others.
func (v *sharing) all() (loads []float64) {
	least := math.Inf(1)
	for of := range v.servers {
		raised, at := 0.0, v.at(of)
		for k, load := range at {
			raised = max(raised, load*v.servers[k].capacity)
		}
		if loads == nil || raised < least {
			loads, least = at, raised
		}
	}
	return loads
}

// at returns the loads where a replica may be busy for the part of its time for which one of the classes allows it alone.
func (v *sharing) at(of int) (loads []float64) {
	fastest, busy := 0.0, v.servers[of].busy
	for k := range v.servers {
		fastest = max(fastest, v.drain(k, of))
	}
	for _, s := range v.servers {
		loads = append(loads, s.load(busy, fastest))
	}
	return loads
}

// drain returns server.drain for two of the classes. Each answer is computed once for all choices of classes.
func (v *sharing) drain(k, of int) float64 {
	pair := [2]int{v.classes[k], v.classes[of]}
	rate, known := v.drains[pair]
	if !known {
		rate = v.servers[k].drain(v.servers[of].busy, v.promise)
		v.drains[pair] = rate
	}
	return rate
}

// nearest gives a class to the variant that can promise the shortest time, as far as that is not overloaded, and returns this time.
func nearest(servers []server, loads []float64, quantile float64) time.Duration {
	at, least := -1, time.Duration(0)
	for i := range servers {
		if r := &servers[i].replica; r.Rate > 0 {
			if best := r.Best(quantile); at < 0 || best < least {
				at, least = i, best
			}
		}
	}
	if at >= 0 {
		loads[at] = 1 / (fullUse * servers[at].replica.top())
	}
	return least
}

// blend returns a replica as it serves a mix of classes, with weights.
func blend(replicas []Replica, weights []float64) Replica {
	all, perRequest, time, square, first, ceiling := sumOf(weights), 0.0, 0.0, 0.0, 0.0, 0.0
	out := Replica{}
	for k, weight := range weights {
		if r, part := &replicas[k], weight/all; part > 0 {
			perRequest += part / r.Rate
			time += part * r.Time.Seconds()
			square += part * (1 + r.Variation) * r.Time.Seconds() * r.Time.Seconds()
			first += part * r.FirstToken.Seconds()
			ceiling += part / r.top()
			out.Gate = max(out.Gate, r.Gate)
		}
	}
	out.Rate, out.Time, out.FirstToken = 1/perRequest, seconds(time), seconds(first)
	out.Variation = min(max(0, square/(time*time)-1), MaxVariation)
	if limit := 1 / ceiling; limit < out.Rate*(1-1e-9) {
		out.Ceiling = limit
	}
	return out
}
