package gpushare

import (
	"context"
	"errors"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Results of a bind.
const (
	resultBound   = "bound"
	resultFailed  = "failed"
	resultUnknown = "unknown"
)

// metricSet counts what the plugin did. Before its registration, it counts nothing.
type metricSet struct {
	admissions *metrics.Counter
	refusals   *metrics.CounterVec
	binds      *metrics.CounterVec
	retries    *metrics.Counter
	confirmed  *metrics.Counter
	rebuilds   *metrics.Counter
	misses     *metrics.Counter
	rules      *metrics.CounterVec
	predicted  *metrics.Histogram
	ended      *metrics.CounterVec
}

func newMetrics() *metricSet {
	vector := func(name string) *metrics.CounterVec {
		f := family(name)
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: f.Name, Help: f.Help, StabilityLevel: metrics.ALPHA}, f.Labels)
	}
	counter := func(name string) *metrics.Counter {
		f := family(name)
		return metrics.NewCounter(&metrics.CounterOpts{Name: f.Name, Help: f.Help, StabilityLevel: metrics.ALPHA})
	}
	slowdown := family("predicted_slowdown_ratio")
	return &metricSet{
		admissions: counter("admission_failures_total"),
		refusals:   vector("refusals_total"),
		binds:      vector("binds_total"),
		retries:    counter("bind_errors_total"),
		confirmed:  counter("binds_confirmed_total"),
		rebuilds:   counter("occupancy_rebuilds_total"),
		misses:     counter("shortlist_misses_total"),
		rules:      vector("rule_changes_total"),
		ended:      vector("ended_pods_total"),
		predicted: metrics.NewHistogram(&metrics.HistogramOpts{
			Name: slowdown.Name, Help: slowdown.Help, Buckets: slowdown.Buckets, StabilityLevel: metrics.ALPHA,
		}),
	}
}

// all returns the registered metrics, without the gauges.
func (m *metricSet) all() []metrics.Registerable {
	return []metrics.Registerable{m.admissions, m.refusals, m.binds, m.retries, m.confirmed, m.rebuilds, m.misses, m.rules, m.predicted, m.ended}
}

// register makes the scheduler serve the metrics. A second plugin in one process counts for itself, and the scheduler
// does not serve it.
func (m *metricSet) register(ctx context.Context, p *Plugin) {
	all := m.all()
	errs := make([]error, 0, len(all)+2)
	for _, r := range all {
		errs = append(errs, legacyregistry.Register(r))
	}
	errs = append(errs, legacyregistry.CustomRegister(newGauges(p)), legacyregistry.Registerer().Register(p.state.learner.Collector()))
	if err := errors.Join(errs...); err != nil {
		klog.FromContext(ctx).V(1).Info("Some metrics of the plugin are not served", "plugin", Name, "err", err)
	}
}

func (m *metricSet) refused(reason string) { m.refusals.WithLabelValues(reason).Inc() }

func (m *metricSet) bound(err error) {
	result := resultBound
	switch {
	case errors.Is(err, errUnknown):
		result = resultUnknown
	case err != nil:
		result = resultFailed
	}
	m.binds.WithLabelValues(result).Inc()
}

// gauges reads the published nodes at each read of the scheduler's metrics.
type gauges struct {
	metrics.BaseStableCollector
	plugin       *Plugin
	slots        *metrics.Desc
	reservations *metrics.Desc
	nodes        *metrics.Desc
	allocated    *metrics.Desc
	fragmented   *metrics.Desc
	usual        *metrics.Desc
	scarce       *metrics.Desc
	paused       *metrics.Desc
}

func newGauges(p *Plugin) *gauges {
	desc := func(name string) *metrics.Desc {
		f := family(name)
		return metrics.NewDesc(f.Name, f.Help, f.Labels, nil, metrics.ALPHA, "")
	}
	return &gauges{
		plugin: p, slots: desc("slots"), reservations: desc("reservations"), nodes: desc("nodes"),
		allocated: desc("allocated_ratio"), fragmented: desc("fragmentation_ratio"), usual: desc("usual_requests"),
		scarce: desc("scarce"), paused: desc("paused_nodes"),
	}
}

// DescribeWithStability lists the gauges.
func (g *gauges) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- g.slots
	ch <- g.reservations
	ch <- g.nodes
	ch <- g.allocated
	ch <- g.fragmented
	ch <- g.usual
	ch <- g.scarce
	ch <- g.paused
}

// CollectWithStability adds up the published nodes.
func (g *gauges) CollectWithStability(ch chan<- metrics.Metric) {
	slots := map[string]int64{"assigned": 0, "free": 0, "sick": 0, "stray": 0}
	nodes := map[string]int64{"ready": 0, "refused": 0}
	rule := g.plugin.state.ruling()
	sum, typical := compute{}, rule.typical
	for _, n := range g.plugin.Published() {
		if n.Problem != "" {
			nodes["refused"]++
		} else {
			nodes["ready"]++
			sum.add(n.Ledger, typical)
		}
		addSlots(slots, n)
	}
	send := func(d *metrics.Desc, values map[string]int64) {
		for state, value := range values {
			ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, float64(value), state)
		}
	}
	send(g.slots, slots)
	send(g.nodes, nodes)
	send(g.reservations, g.plugin.state.kept())
	one := func(d *metrics.Desc, value float64) { ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value) }
	one(g.usual, float64(len(typical.Kinds())))
	one(g.paused, float64(g.plugin.state.pauses()))
	one(g.scarce, map[bool]float64{true: 1}[rule.scarce])
	if sum.healthy > 0 {
		one(g.allocated, sum.assigned/sum.healthy)
	}
	if sum.healthy > 0 && typical.Weight() > 0 {
		one(g.fragmented, sum.lost/float64(typical.Weight())/sum.healthy)
	}
}

// compute is the milli-GPU of healthy devices: all, those assigned to pods, and those lost to a mix, times its weight.
type compute struct{ healthy, assigned, lost float64 }

func (c *compute) add(n *vgpu.Node, mix *fragmentation.Mix) {
	for i, d := range n.Devices() {
		if d.Healthy {
			c.healthy += float64(vgpu.WholeGPU)
			c.assigned += float64(n.Used(i).Slots) * float64(vgpu.WholeGPU) / float64(d.Slots)
		}
	}
	c.lost += float64(mix.Lost(n))
}

func addSlots(sums map[string]int64, n Node) {
	sums["stray"] += int64(n.Stray)
	if n.Ledger == nil {
		return
	}
	for i, d := range n.Ledger.Devices() {
		used := n.Ledger.Used(i).Slots
		sums["assigned"] += int64(used)
		if d.Healthy {
			sums["free"] += int64(d.Slots - used)
		} else {
			sums["sick"] += int64(d.Slots - used)
		}
	}
}

// kept counts the pods whose GPUs the plugin keeps in memory.
func (s *state) kept() map[string]int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return map[string]int64{
		"reserved": int64(len(s.reservations)), "held": int64(len(s.holds)), "unresolved": s.unresolvedCount(),
	}
}
