package notebooks

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/notebook"
)

// Results of a patch.
const (
	patchDone   = "done"
	patchStale  = "stale"
	patchFailed = "failed"
)

// stateInvalid counts the notebooks that the controller leaves alone.
const stateInvalid = "Invalid"

// metricSet says what the controller saw and did.
type metricSet struct {
	looks, parks                 *prometheus.CounterVec
	contests, failures, warnings prometheus.Counter
	states                       *prometheus.GaugeVec
}

func newMetrics() *metricSet {
	vec := func(name string) *prometheus.CounterVec {
		f := family(name)
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	}
	counter := func(name string) prometheus.Counter {
		f := family(name)
		return prometheus.NewCounter(prometheus.CounterOpts{Name: f.Name, Help: f.Help})
	}
	states := family("states")
	m := &metricSet{
		looks: vec("looks_total"), parks: vec("parks_total"), contests: counter("contests_total"), failures: counter("failed_passes_total"), warnings: counter("warnings_total"),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: states.Name, Help: states.Help}, states.Labels),
	}
	for _, result := range []string{lookAnswered, lookUnreachable, lookRefused, lookMalformed, lookNoToken, lookNotReady} {
		m.looks.WithLabelValues(result)
	}
	for _, result := range []string{patchDone, patchStale, patchFailed} {
		m.parks.WithLabelValues(result)
	}
	m.count(nil, 0)
	return m
}

// Collectors returns the collectors of the controller's metrics.
func (c *Controller) Collectors() []prometheus.Collector {
	m := c.metrics
	return []prometheus.Collector{m.looks, m.parks, m.contests, m.failures, m.warnings, m.states}
}

// count sets how many notebooks are in each state. One that could not be read in this pass is in the state of its memory.
func (m *metricSet) count(visits []*visit, invalid int) {
	number := map[notebook.State]int{}
	for _, v := range visits {
		state := v.plan.State
		if state == "" {
			state = v.memory.decided.State
		}
		number[state]++
	}
	for _, state := range notebook.States() {
		m.states.WithLabelValues(string(state)).Set(float64(number[state]))
	}
	m.states.WithLabelValues(stateInvalid).Set(float64(invalid))
}

// parked counts a patch that scales a notebook to zero, by its result.
func (m *metricSet) parked(err error) {
	result := patchDone
	switch {
	case err == nil:
	case parking.IsStale(err):
		result = patchStale
	default:
		result = patchFailed
	}
	m.parks.WithLabelValues(result).Inc()
}
