package reported

import "time"

// reading is what one scrape found: the series of the metric.
type reading struct {
	at      time.Time
	counter bool
	// sum of the values of a gauge.
	sum float64
	// series of a counter, by a hash of their labels: a pod chooses how long labels are.
	series []point
}

type point struct {
	labels uint64
	value  float64
}

// baseline is a scrape of a counter, to compare the next with.
type baseline struct {
	at       time.Time
	restarts int
	values   map[uint64]float64
	series   []point
}

func (now *reading) baseline(restarts int) *baseline {
	b := &baseline{at: now.at, restarts: restarts, values: make(map[uint64]float64, len(now.series)), series: now.series}
	for _, p := range now.series {
		b.values[p.labels] = p.value
	}
	return b
}

// stale reports whether the scrape was too long before now to say what happens now.
func (b *baseline) stale(now time.Time, after time.Duration) bool {
	return b != nil && now.Sub(b.at) > after
}

// until returns the rate from b to a later scrape. There is no rate without a scrape before, and none where the counter
// began anew between them: a series that fell or is gone, or a restart of a container. Otherwise the work since the
// restart would count for too long a time, and look like neighbours that slow the pod down. A series that is new counts
// from its next scrape on, as in Prometheus.
//
// Example: 100 and 40 at one time, 130, 50 and a new 7 ten seconds later: (30 + 10)/10 = 4 a second.
func (b *baseline) until(now *baseline) (Rate, bool) {
	if b == nil || b.restarts != now.restarts {
		return Rate{}, false
	}
	elapsed := now.at.Sub(b.at).Seconds()
	if elapsed <= 0 {
		return Rate{}, false
	}
	done, met := 0.0, 0
	for _, p := range now.series {
		before, known := b.values[p.labels]
		if !known {
			continue
		}
		if p.value < before {
			return Rate{}, false
		}
		done += p.value - before
		met++
	}
	if met < len(b.values) {
		return Rate{}, false
	}
	return Rate{Value: done / elapsed, From: b.at, At: now.at}, true
}
