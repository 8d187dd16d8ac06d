package elastic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Learner learns a job's curve and its resize cost from the rates that its workers report. The zero value knows nothing.
//
// A job reports its rate again and again. Each size has the mean of its last reports, the newer the heavier. Reports of
// the first time after a change do not count for the curve: the job loads its state then. The time that this takes is
// the resize cost.
type Learner struct {
	// Seen are the sizes that were seen, in the order of workers, then of hosts, then of servers.
	Seen []Seen
	// Pause is the mean time in seconds without work after a change; Pauses counts the changes that it is the mean of.
	Pause  float64
	Pauses int

	// changedAt is when the size of the job changed last, 0 before. idle says that the job has not worked since then.
	changedAt int64
	idle      bool
	// size is the present size.
	size Size
}

// Size is a number of workers, of the hosts that they are on, and of parameter servers, which is 0 for a job without.
type Size struct{ Workers, Hosts, Servers int }

// compare orders sizes.
func (s Size) compare(o Size) int {
	return cmp.Or(cmp.Compare(s.Workers, o.Workers), cmp.Compare(s.Hosts, o.Hosts), cmp.Compare(s.Servers, o.Servers))
}

// Seen is what was reported at one size.
type Seen struct {
	Workers, Hosts int
	// Servers is the number of parameter servers, 0 for a job without.
	Servers int
	// Rate is the weighted mean of the reports, Reports their number.
	Rate    float64
	Reports int
}

// DefaultCost is the resize cost in seconds of a job that has not changed its size yet. A larger value keeps unknown jobs
// at their sizes for longer.
const DefaultCost = 60

const (
	// freshness is the weight of a new report once there are many. A larger value follows changes of a program faster, and
	// follows noise too.
	freshness = .1
	// atWork is the part of the rate that is known for a size above which the job is at work after a change.
	atWork = .5
	// plausible bounds the rate of a size by that of another one: twice the workers are at most 2 × plausible times as
	// fast, and half of them plausible times, since they may be closer together. A report above that is a mistake, such as
	// a rate in another unit.
	plausible = 4
)

// Report takes the rate of a job without parameter servers at a time, with workers on so many hosts. The rate is work per
// second, 0 for a job that does no work. An error means that the report is impossible; it changes nothing.
func (l *Learner) Report(now int64, workers, hosts int, rate float64) error {
	return l.ReportAt(now, Size{Workers: workers, Hosts: hosts}, rate)
}

// ReportAt is Report for a job of any size.
func (l *Learner) ReportAt(now int64, size Size, rate float64) error {
	switch {
	case size.Workers < 1 || size.Workers > MaxWorkers || size.Hosts < 1 || size.Hosts > size.Workers:
		return fmt.Errorf("learn a rate: %d workers on %d hosts", size.Workers, size.Hosts)
	case size.Servers < 0 || size.Servers > MaxServers:
		return fmt.Errorf("learn a rate: %d servers, legal is 0 to %d", size.Servers, MaxServers)
	case !(rate >= 0 && !math.IsInf(rate, 1)):
		return fmt.Errorf("learn a rate: the rate of %d workers is %v, legal is 0 or more", size.Workers, rate)
	}
	if size.Workers != l.size.Workers || size.Hosts != l.size.Hosts { // servers join while the workers work: that says nothing of their pause
		l.idle, l.changedAt = l.size.Workers > 0, now
	}
	l.size = size
	at, known := l.find(size)
	if most := l.most(size); rate > most {
		return fmt.Errorf("learn a rate: %d workers report %v, at most %v is possible by the rates of other sizes", size.Workers, rate, most)
	}
	if l.idle {
		if rate == 0 || known && rate < atWork*l.Seen[at].Rate {
			return nil
		}
		l.idle = false
		l.Pauses++
		l.Pause += (float64(now-l.changedAt) - l.Pause) / float64(min(l.Pauses, 10))
	}
	if rate == 0 {
		return nil
	}
	if !known {
		l.Seen = slices.Insert(l.Seen, at, Seen{Workers: size.Workers, Hosts: size.Hosts, Servers: size.Servers})
	}
	s := &l.Seen[at]
	s.Reports++
	s.Rate += (rate - s.Rate) * max(freshness, 1/float64(s.Reports))
	return nil
}

// find returns where a size is, or where it belongs.
func (l *Learner) find(size Size) (at int, known bool) {
	return slices.BinarySearchFunc(l.Seen, size, func(a Seen, b Size) int { return Size{a.Workers, a.Hosts, a.Servers}.compare(b) })
}

// most returns the largest rate of a size that the rates of other sizes allow. Those with another number of servers say
// nothing: too few of them may hold any number of workers back.
func (l *Learner) most(size Size) float64 {
	most := math.Inf(1)
	for i := range l.Seen {
		s := &l.Seen[i]
		if s.Workers == size.Workers || s.Servers != size.Servers || s.Reports < 3 {
			continue
		}
		ratio := max(1, float64(size.Workers)/float64(s.Workers))
		most = min(most, s.Rate*ratio*plausible)
	}
	return most
}

// Cost returns the learned resize cost in seconds, DefaultCost before the first change.
func (l *Learner) Cost() float64 {
	if l.Pauses == 0 {
		return DefaultCost
	}
	return l.Pause
}

// Points returns the points of the learned curve at the present number of servers.
func (l *Learner) Points() []Point {
	points := make([]Point, 0, len(l.Seen))
	for i := range l.Seen {
		if l.Seen[i].Servers == l.size.Servers {
			points = append(points, Point{Workers: l.Seen[i].Workers, Hosts: l.Seen[i].Hosts, Rate: l.Seen[i].Rate})
		}
	}
	return points
}

// Combinations returns the learned rates by the numbers of workers and servers, in the order of both. If a combination
// was seen on several numbers of hosts, the least of its rates counts: the job may come to these hosts again.
func (l *Learner) Combinations() []CombinationRate {
	rates := make([]CombinationRate, 0, len(l.Seen))
	for i := range l.Seen {
		if s := &l.Seen[i]; s.Servers > 0 {
			rates = append(rates, CombinationRate{Combination{s.Workers, s.Servers}, s.Rate})
		}
	}
	return LeastRates(rates)
}

// LeastRates returns the least of the rates of each combination, in the order of workers, then of servers.
func LeastRates(rates []CombinationRate) []CombinationRate {
	rates = slices.Clone(rates)
	slices.SortFunc(rates, func(a, b CombinationRate) int {
		return cmp.Or(cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.Servers, b.Servers), cmp.Compare(a.Rate, b.Rate))
	})
	return slices.CompactFunc(rates, func(a, b CombinationRate) bool { return a.Combination == b.Combination })
}
