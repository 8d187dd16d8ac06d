package fleets

import (
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Results of a patch.
const (
	patchDone   = "done"
	patchStale  = "stale"
	patchFailed = "failed"
)

// metricSet says what the controller decided and did.
type metricSet struct {
	decisions, patches                                   *prometheus.CounterVec
	failures, contests                                   prometheus.Counter
	demand, capacity, kept, replicas, weights, slowdowns *prometheus.GaugeVec
	// fleets are those with series, by "namespace/name".
	fleets map[string]bool
}

func newMetrics() *metricSet {
	counter := func(name string) *prometheus.CounterVec {
		f := family(name)
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	}
	gauge := func(name string) *prometheus.GaugeVec {
		f := family(name)
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
	}
	f, c := family("failed_passes_total"), family("contests_total")
	m := &metricSet{
		decisions: counter("decisions_total"), patches: counter("patches_total"),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: f.Name, Help: f.Help}), contests: prometheus.NewCounter(prometheus.CounterOpts{Name: c.Name, Help: c.Help}),
		demand: gauge("demand"), capacity: gauge("capacity"), kept: gauge("promise_kept"), replicas: gauge("replicas"), weights: gauge("weight"), slowdowns: gauge("slowdown"),
		fleets: map[string]bool{},
	}
	for _, kind := range []string{"route", "scale"} {
		for _, result := range []string{patchDone, patchStale, patchFailed} {
			m.patches.WithLabelValues(kind, result)
		}
	}
	return m
}

// gauges are the series of fleets.
func (m *metricSet) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.demand, m.capacity, m.kept, m.replicas, m.weights, m.slowdowns}
}

// Collectors returns the collectors of the controller's metrics.
func (c *Controller) Collectors() []prometheus.Collector {
	m := c.metrics
	list := []prometheus.Collector{m.decisions, m.patches, m.failures, m.contests}
	for _, g := range m.gauges() {
		list = append(list, g)
	}
	return list
}

// decided notes a decision on a fleet.
func (m *metricSet) decided(v *visit) {
	namespace, name := v.object.Namespace, v.object.Name
	m.decisions.WithLabelValues(string(v.plan.Reason)).Inc()
	m.drop(namespace, name) // variants that the spec no longer has
	m.fleets[nameOf(v.object)] = true
	if v.plan.Reason != traffic.NoMetrics && v.plan.Reason != traffic.AllFail && !math.IsNaN(v.measured.rate) {
		m.demand.WithLabelValues(namespace, name).Set(v.plan.Demand)
		m.capacity.WithLabelValues(namespace, name).Set(v.plan.Capacity)
	}
	switch v.kept() {
	case metav1.ConditionTrue:
		m.kept.WithLabelValues(namespace, name).Set(1)
	case metav1.ConditionFalse:
		m.kept.WithLabelValues(namespace, name).Set(0)
	}
	for i := range v.plan.Variants {
		p, variant := &v.plan.Variants[i], v.fleet.Variants[i].Name
		m.replicas.WithLabelValues(namespace, name, variant).Set(float64(p.Replicas))
		m.weights.WithLabelValues(namespace, name, variant).Set(p.Part)
		m.slowdowns.WithLabelValues(namespace, name, variant).Set(p.Slowdown)
	}
}

// keep removes the series of fleets that are gone.
func (m *metricSet) keep(names map[string]bool) {
	for fleet := range m.fleets {
		if !names[fleet] {
			namespace, name, _ := strings.Cut(fleet, "/")
			m.drop(namespace, name)
			delete(m.fleets, fleet)
		}
	}
}

func (m *metricSet) drop(namespace, name string) {
	for _, g := range m.gauges() {
		g.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "fleet": name})
	}
}

// patched counts a patch of a route or a scale by its result.
func (m *metricSet) patched(kind string, err error) {
	result := patchDone
	switch {
	case err == nil:
	case isStale(err):
		result = patchStale
	default:
		result = patchFailed
	}
	m.patches.WithLabelValues(kind, result).Inc()
}

// failed counts a pass that failed.
func (m *metricSet) failed() { m.failures.Inc() }
