package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the kind of a metric, in Prometheus' words.
type Type string

// Types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Family is one metric with everything that its users have to know.
type Family struct {
	// Name as scraped.
	Name string
	Type Type
	// Labels in the order in which values are given; Labels(), the table of all labels, says what they mean.
	Labels []string
	// Unit of the values, in words of people: "bytes", "seconds", "containers".
	Unit string
	// Range of the values: "0 or more", "0 to 1".
	Range string
	// Help is the meaning; the scrape page shows it too.
	Help string
	// Buckets of a histogram.
	Buckets []float64
}

// set builds collectors from a table. Each family is built once.
type set struct {
	families map[string]Family
	built    []prometheus.Collector
}

func newSet(table []Family) *set {
	s := &set{families: make(map[string]Family, len(table))}
	for _, f := range table {
		s.families[f.Name] = f
	}
	return s
}

// take returns the family of a name and crosses it out.
func (s *set) take(name string, kind Type) Family {
	f, ok := s.families[name]
	if !ok || f.Type != kind {
		panic(fmt.Sprintf("metric %s is no %s of the table, or is built twice", name, kind))
	}
	delete(s.families, name)
	return f
}

func (s *set) gauge(name string) *prometheus.GaugeVec {
	f := s.take(name, Gauge)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
	s.built = append(s.built, v)
	return v
}

func (s *set) counter(name string) *prometheus.CounterVec {
	f := s.take(name, Counter)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	s.built = append(s.built, v)
	return v
}

func (s *set) histogram(name string) *prometheus.HistogramVec {
	f := s.take(name, Histogram)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}, f.Labels)
	s.built = append(s.built, v)
	return v
}

// Find returns the family of a table with a name. A table without it is a mistake of the package that has the table.
func Find(table []Family, name string) Family {
	for i := range table {
		if table[i].Name == name {
			return table[i]
		}
	}
	panic("the table of metrics has no " + name)
}
