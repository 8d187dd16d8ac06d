package elasticity

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Results of an eviction.
const (
	evictionDone   = "done"
	evictionBudget = "budget"
	evictionFailed = "failed"
)

// Results of a change of the number of servers.
const (
	scaleDone   = "done"
	scaleStale  = "stale"
	scaleFailed = "failed"
)

// Numbers that somebody else writes back.
const (
	contestMembers = "members"
	contestServers = "servers"
)

// metricSet counts what the controller did.
type metricSet struct {
	contests  *prometheus.CounterVec
	decisions prometheus.Histogram
	evictions *prometheus.CounterVec
	failures  prometheus.Counter
	gangs     prometheus.Gauge
	moves     *prometheus.CounterVec
	servers   *prometheus.CounterVec
}

func newMetrics() *metricSet {
	vector := func(name string) *prometheus.CounterVec {
		f := family(name)
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	}
	d, f, g := family("decision_seconds"), family("failed_passes_total"), family("gangs")
	m := &metricSet{
		decisions: prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}),
		evictions: vector("evictions_total"), moves: vector("moves_total"), servers: vector("server_changes_total"),
		contests: vector("contests_total"),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: f.Name, Help: f.Help}),
		gangs:    prometheus.NewGauge(prometheus.GaugeOpts{Name: g.Name, Help: g.Help}),
	}
	for _, result := range []string{evictionDone, evictionBudget, evictionFailed} {
		m.evictions.WithLabelValues(result)
	}
	for _, result := range []string{scaleDone, scaleStale, scaleFailed} {
		m.servers.WithLabelValues(result)
	}
	for _, kind := range []string{contestMembers, contestServers} {
		m.contests.WithLabelValues(kind)
	}
	return m
}

// Collectors returns the collectors of the controller's metrics.
func (c *Controller) Collectors() []prometheus.Collector {
	m := c.metrics
	return []prometheus.Collector{m.contests, m.decisions, m.evictions, m.failures, m.gangs, m.moves, m.servers}
}

// decided counts a decision on so many gangs.
func (m *metricSet) decided(took time.Duration, gangs int) {
	m.decisions.Observe(took.Seconds())
	m.gangs.Set(float64(gangs))
}

// moved counts a change of size.
func (m *metricSet) moved(d *decision) { m.moves.WithLabelValues(d.reason).Inc() }

// evicted counts an eviction by its result.
func (m *metricSet) evicted(err error) {
	result := evictionDone
	switch {
	case apierrors.IsTooManyRequests(err):
		result = evictionBudget
	case err != nil:
		result = evictionFailed
	}
	m.evictions.WithLabelValues(result).Inc()
}

// scaled counts a change of the number of servers by its result.
func (m *metricSet) scaled(err error) {
	result := scaleDone
	switch {
	case stale(err):
		result = scaleStale
	case err != nil:
		result = scaleFailed
	}
	m.servers.WithLabelValues(result).Inc()
}

// failed counts a pass that failed.
func (m *metricSet) failed() { m.failures.Inc() }
