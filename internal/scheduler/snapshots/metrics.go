package snapshots

import (
	"context"
	"errors"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// metricSet counts what was served. Before its registration it counts nothing.
type metricSet struct {
	requests *metrics.CounterVec
	took     *metrics.Histogram
	size     *metrics.Gauge
}

func newMetrics() *metricSet {
	requests, took, size := family("requests_total"), family("build_seconds"), family("bytes")
	return &metricSet{
		requests: metrics.NewCounterVec(&metrics.CounterOpts{Name: requests.Name, Help: requests.Help, StabilityLevel: metrics.ALPHA}, requests.Labels),
		took: metrics.NewHistogram(&metrics.HistogramOpts{
			Name: took.Name, Help: took.Help, Buckets: took.Buckets, StabilityLevel: metrics.ALPHA,
		}),
		size: metrics.NewGauge(&metrics.GaugeOpts{Name: size.Name, Help: size.Help, StabilityLevel: metrics.ALPHA}),
	}
}

func (m *metricSet) built(took time.Duration) { m.took.Observe(took.Seconds()) }

// register makes the scheduler serve the metrics.
func (m *metricSet) register(ctx context.Context, c *store) {
	f := family("age_seconds")
	age := &ageCollector{store: c, desc: metrics.NewDesc(f.Name, f.Help, nil, nil, metrics.ALPHA, "")}
	err := errors.Join(
		legacyregistry.Register(m.requests), legacyregistry.Register(m.took), legacyregistry.Register(m.size), legacyregistry.CustomRegister(age))
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Some metrics of snapshots are not served", "err", err)
	}
}

// ageCollector tells the age of the last snapshot.
type ageCollector struct {
	metrics.BaseStableCollector
	store *store
	desc  *metrics.Desc
}

// DescribeWithStability lists the metric.
func (a *ageCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- a.desc }

// CollectWithStability writes the metric where there is a snapshot.
func (a *ageCollector) CollectWithStability(ch chan<- metrics.Metric) {
	if age, ok := a.store.age(); ok {
		ch <- metrics.NewLazyConstMetric(a.desc, metrics.GaugeValue, age.Seconds())
	}
}
