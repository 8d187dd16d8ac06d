package elastic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Point is a known rate of a job.
type Point struct {
	// Workers of the job, 1 or more.
	Workers int
	// Hosts on which these workers are, 1 to Workers. The rate of a point with 0 hosts holds on any hosts.
	Hosts int
	// Rate is work per time, above 0, in any unit that is the same for all points of a curve.
	Rate float64
}

// Curve is how fast a job is, by the number of its workers and of their hosts. The zero value is the prior alone. A curve
// may fall: then Workers does not choose the sizes at which it has fallen.
//
// The prior says that n workers are n^Growth times as fast as one, and Apart times as fast where they are on several
// hosts. A curve takes the ratio of its points to the prior, and goes along the logarithm of the number of workers from
// one point to the next. Beyond the last point the ratio of that point holds. So a point corrects its neighbourhood, and
// the prior gives the shape where there is no point. Points on one host say how fast the job is on one host, points on
// several hosts how fast it is on several; where one kind is missing, the other kind and the prior say it.
//
// Example: one point says that 4 workers on one host have a rate of 2. With Growth 0.8 the prior of 4 workers is 3.03, the
// ratio is 0.66, and 8 workers are expected to have 0.66 × 8^0.8 = 3.48.
type Curve struct {
	Points []Point
	// Growth and Apart of the prior, above 0 and at most 1. 0 stands for DefaultGrowth and DefaultApart.
	Growth, Apart float64
}

// The prior of a job of which nothing is known.
const (
	// DefaultGrowth makes eight workers 5.3 times as fast as one. A larger value lets unknown jobs grow more before
	// they are measured.
	DefaultGrowth = .8
	// DefaultApart is the speed on several hosts, relative to one host. A smaller value keeps unknown jobs on one host.
	DefaultApart = .8
)

// Validate returns an error for a curve that no job can have.
func (c *Curve) Validate() error {
	for _, p := range []struct {
		name  string
		value float64
	}{{"growth", c.Growth}, {"apart", c.Apart}} {
		if !(p.value >= 0 && p.value <= 1) {
			return fmt.Errorf("curve: %s is %v, legal is 0 to 1", p.name, p.value)
		}
	}
	for i, p := range c.Points {
		switch {
		case p.Workers < 1 || p.Workers > MaxWorkers:
			return fmt.Errorf("curve: point %d has %d workers, legal is 1 to %d", i, p.Workers, MaxWorkers)
		case p.Hosts < 0 || p.Hosts > p.Workers:
			return fmt.Errorf("curve: point %d has %d workers on %d hosts, legal is 0 to %d", i, p.Workers, p.Hosts, p.Workers)
		case !(p.Rate > 0 && !math.IsInf(p.Rate, 1)):
			return fmt.Errorf("curve: the rate of %d workers is %v, legal is above 0", p.Workers, p.Rate)
		}
		if slices.ContainsFunc(c.Points[:i], func(q Point) bool { return q.Workers == p.Workers && q.Hosts == p.Hosts }) {
			return fmt.Errorf("curve: two rates of %d workers on %d hosts", p.Workers, p.Hosts)
		}
	}
	return nil
}

// Rate returns the rate of so many workers on so many hosts. Both are 1 or more, and the curve is valid.
func (c *Curve) Rate(workers, hosts int) float64 {
	points := c.pointsFor(hosts)
	prior := c.prior(workers, hosts)
	if len(points) == 0 {
		return prior
	}
	i, found := slices.BinarySearchFunc(points, workers, func(p Point, n int) int { return cmp.Compare(p.Workers, n) })
	switch {
	case found || i == 0:
		return prior * c.ratio(points[i], hosts)
	case i == len(points):
		return prior * c.ratio(points[i-1], hosts)
	}
	low, high := points[i-1], points[i]
	part := math.Log(float64(workers)/float64(low.Workers)) / math.Log(float64(high.Workers)/float64(low.Workers))
	return prior * (c.ratio(low, hosts) + part*(c.ratio(high, hosts)-c.ratio(low, hosts)))
}

// prior returns the rate of workers where nothing is known.
func (c *Curve) prior(workers, hosts int) float64 {
	rate := math.Pow(float64(workers), cmp.Or(c.Growth, DefaultGrowth))
	if hosts > 1 {
		rate *= cmp.Or(c.Apart, DefaultApart)
	}
	return rate
}

// ratio returns how many times as fast as the prior a point is. A point on any hosts is compared to the prior of these.
func (c *Curve) ratio(p Point, hosts int) float64 {
	return p.Rate / c.prior(p.Workers, cmp.Or(p.Hosts, hosts))
}

// pointsFor returns the points that say how fast the job is on so many hosts, one for each number of workers, ascending:
// those on any hosts and those on one or on several hosts, as asked. If a number of workers has points on several
// numbers of hosts, it takes the nearest. If there are no such points, it returns those of the other kind.
func (c *Curve) pointsFor(hosts int) []Point {
	points := slices.Clone(c.Points)
	kind := func(p Point) bool { return p.Hosts == 0 || (p.Hosts > 1) == (hosts > 1) }
	if slices.ContainsFunc(points, kind) {
		points = slices.DeleteFunc(points, func(p Point) bool { return !kind(p) })
	}
	far := func(p Point) int { return max(p.Hosts-hosts, hosts-p.Hosts) * min(p.Hosts, 1) }
	slices.SortFunc(points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Workers, b.Workers), cmp.Compare(far(a), far(b)), cmp.Compare(a.Hosts, b.Hosts))
	})
	return slices.CompactFunc(points, func(a, b Point) bool { return a.Workers == b.Workers })
}
