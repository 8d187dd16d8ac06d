package gpugang

import (
	"context"
	"errors"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// Results of a repair.
const (
	repairKept  = "kept"
	repairMoved = "moved"
)

// metricSet counts what the plugin did. Before its registration, it counts nothing.
type metricSet struct {
	attempts  *metrics.Counter
	cancelled *metrics.Counter
	drains    *metrics.Counter
	released  *metrics.Counter
	refusals  *metrics.CounterVec
	repairs   *metrics.CounterVec
	tried     *metrics.Histogram
	waited    *metrics.Histogram
	spread    *metrics.HistogramVec
	levels    levelNames
}

func newMetrics() *metricSet {
	counter := func(name string) *metrics.Counter {
		f := family(name)
		return metrics.NewCounter(&metrics.CounterOpts{Name: f.Name, Help: f.Help, StabilityLevel: metrics.ALPHA})
	}
	vector := func(name string) *metrics.CounterVec {
		f := family(name)
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: f.Name, Help: f.Help, StabilityLevel: metrics.ALPHA}, f.Labels)
	}
	buckets := func(name string) *metrics.HistogramOpts {
		f := family(name)
		return &metrics.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets, StabilityLevel: metrics.ALPHA}
	}
	return &metricSet{
		attempts: counter("attempts_total"), cancelled: counter("cancelled_total"), drains: counter("drains_total"),
		released: counter("released_total"), refusals: vector("refusals_total"), repairs: vector("repairs_total"),
		tried: metrics.NewHistogram(buckets("domains_tried")), waited: metrics.NewHistogram(buckets("wait_seconds")),
		spread: metrics.NewHistogramVec(buckets("spread_domains"), family("spread_domains").Labels),
	}
}

// all returns what is registered, without the gauges.
func (m *metricSet) all() []metrics.Registerable {
	return []metrics.Registerable{
		m.attempts, m.cancelled, m.drains, m.released, m.refusals, m.repairs, m.tried, m.waited, m.spread,
	}
}

// register makes the scheduler serve the metrics. A second plugin in one process counts for itself, and the scheduler
// does not serve it.
func (m *metricSet) register(ctx context.Context, p *Plugin) {
	all := m.all()
	errs := make([]error, 0, len(all)+1)
	for _, r := range all {
		errs = append(errs, legacyregistry.Register(r))
	}
	errs = append(errs, legacyregistry.CustomRegister(newGauges(p)))
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).V(1).Info("Some metrics of the plugin are not served", "plugin", Name, "err", err)
	}
}

// planned counts a plan that was sought.
func (m *metricSet) planned(plan *gang.Plan) {
	m.tried.Observe(float64(plan.Stats.Tried))
	if plan.Refused != nil {
		return
	}
	for _, s := range plan.Spread {
		m.spread.WithLabelValues(m.levels.of(s.Key)).Observe(float64(s.Domains))
	}
}

// maxLevels bounds the values of the label level: tenants may name any key.
const maxLevels = 20

// levelNames are the values of the label level so far.
type levelNames struct {
	mu    sync.Mutex
	known map[string]bool
}

// of returns the value for a level: "node" for the nodes, "other" where there are too many.
func (l *levelNames) of(key string) string {
	if key == "" {
		return "node"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]bool{}
	}
	if !l.known[key] && len(l.known) >= maxLevels {
		return "other"
	}
	l.known[key] = true
	return key
}

// gauges counts the gangs that wait at each read of the scheduler's metrics.
type gauges struct {
	metrics.BaseStableCollector
	plugin      *Plugin
	gangs, held *metrics.Desc
}

func newGauges(p *Plugin) *gauges {
	desc := func(name string) *metrics.Desc {
		f := family(name)
		return metrics.NewDesc(f.Name, f.Help, f.Labels, nil, metrics.ALPHA, "")
	}
	return &gauges{plugin: p, gangs: desc("gangs"), held: desc("held_members")}
}

// DescribeWithStability names the gauges.
func (c *gauges) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.gangs
	ch <- c.held
}

// CollectWithStability counts.
func (c *gauges) CollectWithStability(ch chan<- metrics.Metric) {
	var counts map[string]int
	c.plugin.machine.Lock(func(l machine.Locked) { counts = l.State.Counts() })
	for state, count := range counts {
		ch <- metrics.NewLazyConstMetric(c.gangs, metrics.GaugeValue, float64(count), state)
	}
	held := 0
	for _, ref := range c.plugin.gangs.Elastic() {
		if pg, _ := c.plugin.gangs.Gang(ref); pg != nil {
			held += len(pg.Held())
		}
	}
	ch <- metrics.NewLazyConstMetric(c.held, metrics.GaugeValue, float64(held))
}

// Count counts what the machine did.
func (m *metricSet) Count(e *reservation.Count) {
	switch e.What {
	case reservation.Attempts:
		m.attempts.Inc()
	case reservation.Cancelled:
		m.cancelled.Inc()
	case reservation.Reservations:
		m.drains.Inc()
	case reservation.Refusals:
		m.refusals.WithLabelValues(string(e.Reason)).Inc()
	case reservation.Releases:
		m.released.Inc()
	case reservation.RepairsKept:
		m.repairs.WithLabelValues(repairKept).Inc()
	case reservation.RepairsMoved:
		m.repairs.WithLabelValues(repairMoved).Inc()
	}
}
