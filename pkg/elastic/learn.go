package elastic

import (
	"fmt"
	"math"
	"slices"
)

// Learner learns a job's curve and its resize cost from the rates that its workers report. The zero value knows nothing.
//
// A job reports its rate again and again. Each size has the mean of its last reports, the newer the heavier. Reports of
// the first time after a change do not count for the curve: the job loads its state then. How long that takes is the
// resize cost.
type Learner struct {
	// Seen are the sizes that were seen, in the order of workers, then of hosts.
	Seen []Seen
	// Pause is the mean time in seconds without work after a change; Pauses counts the changes that it is the mean of.
	Pause  float64
	Pauses int

	// changedAt is when the size of the job changed last, 0 before. idle says that the job has not worked since then.
	changedAt int64
	idle      bool
	// workers and hosts are the present size.
	workers, hosts int
}

// Seen is what was reported at one size.
type Seen struct {
	Workers, Hosts int
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

// Report takes the rate of a job at a time, with workers on so many hosts. The rate is work per second, 0 for a job that
// does no work. An error means that the report is impossible; it changes nothing.
func (l *Learner) Report(now int64, workers, hosts int, rate float64) error {
	switch {
	case workers < 1 || workers > MaxWorkers || hosts < 1 || hosts > workers:
		return fmt.Errorf("learn a rate: %d workers on %d hosts", workers, hosts)
	case !(rate >= 0 && !math.IsInf(rate, 1)):
		return fmt.Errorf("learn a rate: the rate of %d workers is %v, legal is 0 or more", workers, rate)
	}
	if workers != l.workers || hosts != l.hosts {
		l.idle = l.workers > 0
		l.workers, l.hosts, l.changedAt = workers, hosts, now
	}
	at, known := l.find(workers, hosts)
	if most := l.most(workers); rate > most {
		return fmt.Errorf("learn a rate: %d workers report %v, at most %v is possible by the rates of other sizes", workers, rate, most)
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
		l.Seen = slices.Insert(l.Seen, at, Seen{Workers: workers, Hosts: hosts})
	}
	s := &l.Seen[at]
	s.Reports++
	s.Rate += (rate - s.Rate) * max(freshness, 1/float64(s.Reports))
	return nil
}

// find returns where a size is, or where it belongs.
func (l *Learner) find(workers, hosts int) (at int, known bool) {
	return slices.BinarySearchFunc(l.Seen, Seen{Workers: workers, Hosts: hosts}, func(a, b Seen) int {
		if a.Workers != b.Workers {
			return a.Workers - b.Workers
		}
		return a.Hosts - b.Hosts
	})
}

// most returns the largest rate of a size that the rates of other sizes allow.
func (l *Learner) most(workers int) float64 {
	most := math.Inf(1)
	for i := range l.Seen {
		s := &l.Seen[i]
		if s.Workers == workers || s.Reports < 3 {
			continue
		}
		ratio := max(1, float64(workers)/float64(s.Workers))
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

// Points returns the points of the learned curve.
func (l *Learner) Points() []Point {
	points := make([]Point, 0, len(l.Seen))
	for i := range l.Seen {
		points = append(points, Point{Workers: l.Seen[i].Workers, Hosts: l.Seen[i].Hosts, Rate: l.Seen[i].Rate})
	}
	return points
}
