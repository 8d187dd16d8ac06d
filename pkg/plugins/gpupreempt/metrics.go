package gpupreempt

import (
	"context"
	"errors"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// Results of attempts.
const (
	resultEvicting   = "evicting"
	resultWaiting    = "waiting"
	resultPending    = "pending"
	resultMissed     = "missed"
	resultDeferred   = "deferred"
	resultDryRun     = "dry_run"
	resultIneligible = "ineligible"
	resultNeverHelps = "never_helps"
	resultGuarded    = "guarded"
	resultBudgeted   = "budgeted"
	resultFiltered   = "filtered"
	resultFailed     = "failed"
)

// metricSet counts what the plugin did. Before its registration, it counts nothing.
type metricSet struct {
	attempts   *metrics.CounterVec
	victims    *metrics.CounterVec
	deferred   *metrics.Counter
	lost       *metrics.Counter
	evaluation *metrics.Histogram
}

func newMetrics() *metricSet {
	counter := func(name string) *metrics.CounterOpts {
		f := family(name)
		return &metrics.CounterOpts{Name: f.Name, Help: f.Help, StabilityLevel: metrics.ALPHA}
	}
	f := family("evaluation_seconds")
	return &metricSet{
		attempts:   metrics.NewCounterVec(counter("attempts_total"), family("attempts_total").Labels),
		victims:    metrics.NewCounterVec(counter("victims_total"), family("victims_total").Labels),
		deferred:   metrics.NewCounter(counter("evictions_deferred_total")),
		lost:       metrics.NewCounter(counter("lost_gpu_seconds_total")),
		evaluation: metrics.NewHistogram(&metrics.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets, StabilityLevel: metrics.ALPHA}),
	}
}

// all returns the collectors.
func (m *metricSet) all() []metrics.Registerable {
	return []metrics.Registerable{m.attempts, m.victims, m.deferred, m.lost, m.evaluation}
}

// register makes the scheduler serve the metrics. A second plugin in one process counts for itself, and the scheduler
// does not serve it.
func (m *metricSet) register(ctx context.Context, p *Plugin) {
	errs := make([]error, 0, len(m.all())+1)
	for _, r := range m.all() {
		errs = append(errs, legacyregistry.Register(r))
	}
	errs = append(errs, legacyregistry.CustomRegister(newGauges(p)))
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).V(1).Info("Some metrics of the plugin are not served", "plugin", Name, "err", err)
	}
}

// Count counts what the machine did.
func (m *metricSet) Count(e *reservation.Count) {
	if e.What == reservation.Deferrals {
		m.deferred.Inc()
	}
}

// attempt counts what came of an attempt.
func (m *metricSet) attempt(result string) { m.attempts.WithLabelValues(result).Inc() }

// kindName is a kind of units as the value of a label.
func kindName(k preemption.Kind) string {
	return [...]string{preemption.Single: "single", preemption.Surplus: "surplus", preemption.Whole: "whole"}[k]
}

// gauges counts the pending preemptions at each read of the scheduler's metrics.
type gauges struct {
	metrics.BaseStableCollector
	plugin  *Plugin
	pending *metrics.Desc
}

func newGauges(p *Plugin) *gauges {
	f := family("pending")
	return &gauges{plugin: p, pending: metrics.NewDesc(f.Name, f.Help, nil, nil, metrics.ALPHA, "")}
}

// DescribeWithStability names the gauges.
func (c *gauges) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- c.pending }

// CollectWithStability counts.
func (c *gauges) CollectWithStability(ch chan<- metrics.Metric) {
	var rooms []reservation.PodRef
	c.plugin.machine.Lock(func(l machine.Locked) { rooms = l.State.PodRooms() })
	ch <- metrics.NewLazyConstMetric(c.pending, metrics.GaugeValue, float64(len(rooms)))
}
