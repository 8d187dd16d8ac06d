package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// set builds collectors from a table.
type set struct {
	families map[string]tandem.Family
	built    []prometheus.Collector
}

func newSet(table []tandem.Family) *set {
	s := &set{families: make(map[string]tandem.Family, len(table))}
	for _, f := range table {
		s.families[f.Name] = f
	}
	return s
}

// take returns the family of a name and crosses it out.
func (s *set) take(name string, kind tandem.Type) tandem.Family {
	f, ok := s.families[name]
	if !ok || f.Type != kind {
		panic(fmt.Sprintf("metric %s is no %s of the table, or is built twice", name, kind))
	}
	delete(s.families, name)
	return f
}

func (s *set) gauge(name string) *prometheus.GaugeVec {
	f := s.take(name, tandem.Gauge)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
	s.built = append(s.built, v)
	return v
}

func (s *set) counter(name string) *prometheus.CounterVec {
	f := s.take(name, tandem.Counter)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	s.built = append(s.built, v)
	return v
}

func (s *set) histogram(name string) *prometheus.HistogramVec {
	f := s.take(name, tandem.Histogram)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}, f.Labels)
	s.built = append(s.built, v)
	return v
}
