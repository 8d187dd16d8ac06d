package activator

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// Results of a request and of a wake.
const (
	resultPassed  = "passed"
	resultWoken   = "woken"
	resultParked  = "parked"
	resultFull    = "full"
	resultLate    = "late"
	resultFailed  = "failed"
	resultUnknown = "unknown"

	wakeDone   = "done"
	wakeStale  = "stale"
	wakeFailed = "failed"
)

// prefix begins the names of the activator's metrics.
const prefix = "tandem_activator_"

// Families returns the table of the activator's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "held_requests", Type: tandem.Gauge, Unit: "requests", Range: "0 or more",
		Help: "Requests that wait for a notebook."},
	{Name: prefix + "proxy_failures_total", Type: tandem.Counter, Unit: "requests", Range: "0 or more",
		Help: "Requests that were passed on and that the server of the notebook did not answer."},
	{Name: prefix + "requests_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "requests", Range: "0 or more",
		Help: "Requests: passed at once, woken, where they waited and were passed on, parked, where they do not wake, full, where too many waited, late, where the notebook " +
			"was not ready in time, failed, where it could not be scaled, or unknown, where there is no such notebook."},
	{Name: prefix + "wait_seconds", Type: tandem.Histogram, Unit: "seconds", Range: "0 or more", Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600},
		Help: "Time that a request waited for its notebook, of those that were passed on."},
	{Name: prefix + "wakes_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "patches", Range: "0 or more",
		Help: "Patches that scale a notebook to one: done, stale, where its size had changed since it was read, or failed."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }

// metricSet says what the activator did.
type metricSet struct {
	held            prometheus.Gauge
	failures        prometheus.Counter
	requests, wakes *prometheus.CounterVec
	waits           prometheus.Histogram
}

func newMetrics() *metricSet {
	vec := func(name string, results ...string) *prometheus.CounterVec {
		f := family(name)
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
		for _, result := range results {
			c.WithLabelValues(result)
		}
		return c
	}
	held, failures, waits := family("held_requests"), family("proxy_failures_total"), family("wait_seconds")
	return &metricSet{
		held:     prometheus.NewGauge(prometheus.GaugeOpts{Name: held.Name, Help: held.Help}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: failures.Name, Help: failures.Help}),
		requests: vec("requests_total", resultPassed, resultWoken, resultParked, resultFull, resultLate, resultFailed, resultUnknown),
		wakes:    vec("wakes_total", wakeDone, wakeStale, wakeFailed),
		waits:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: waits.Name, Help: waits.Help, Buckets: waits.Buckets}),
	}
}

// Collectors returns the collectors of the activator's metrics.
func (a *Activator) Collectors() []prometheus.Collector {
	m := a.metrics
	return []prometheus.Collector{m.held, m.failures, m.requests, m.wakes, m.waits}
}
