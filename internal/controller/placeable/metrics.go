package placeable

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metricSet says what the controller answered.
type metricSet struct {
	took     prometheus.Histogram
	answers  *prometheus.CounterVec
	failures prometheus.Counter
	waiting  prometheus.Gauge
}

func newMetrics() *metricSet {
	took, answers, failures, waiting := family("answer_seconds"), family("answers_total"), family("failed_passes_total"), family("waiting")
	m := &metricSet{
		took:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: took.Name, Help: took.Help, Buckets: took.Buckets}),
		answers:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: answers.Name, Help: answers.Help}, answers.Labels),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: failures.Name, Help: failures.Help}),
		waiting:  prometheus.NewGauge(prometheus.GaugeOpts{Name: waiting.Name, Help: waiting.Help}),
	}
	for _, state := range []State{Ready, Pending, Retry, Rejected} {
		m.answers.WithLabelValues(string(state))
	}
	return m
}

// Collectors returns the collectors of the controller's metrics.
func (c *Controller) Collectors() []prometheus.Collector {
	m := c.metrics
	return []prometheus.Collector{m.took, m.answers, m.failures, m.waiting}
}
