package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/metrics"
)

// RateInterval is the window of a panel, for which Grafana puts one that is long enough for its steps.
const RateInterval = "$__rate_interval"

// Labels that Prometheus gives to each series by the configuration in deploy/monitoring: where it was scraped.
const (
	Job      = "job"
	Instance = "instance"
	Node     = "node" // of the programs that run on each node
)

var targetLabels = []string{Job, Instance, Node}

// bucket is the label of the upper bound of a bucket.
const bucket = "le"

// Matcher chooses series by a label.
type Matcher struct{ label, operator, value string }

// Is chooses the series with a value of a label.
func Is(label, value string) Matcher { return Matcher{label, "=", value} }

// Not chooses the series with another value of a label.
func Not(label, value string) Matcher { return Matcher{label, "!=", value} }

// In chooses the series with one of the values of a label.
func In(label string, values ...string) Matcher {
	return Matcher{label, "=~", strings.Join(values, "|")}
}

// Chosen chooses the series whose label has a value that the user of a dashboard chose: that of the variable of the same name.
func Chosen(label string) Matcher { return Matcher{label, "=~", "$" + label} }

// Selector is the series of a family.
type Selector struct {
	family   metrics.Family
	matchers []Matcher
}

// Of returns those series of a family that all matchers choose.
func Of(f metrics.Family, matchers ...Matcher) Selector { return Selector{f, matchers} }

// Now returns the value of a gauge.
func (s Selector) Now() Expr { return s.expr("%s", "", metrics.Gauge) }

// Rate returns how much a counter grows in a second.
func (s Selector) Rate(window string) Expr {
	return s.expr("rate(%s["+window+"])", "", metrics.Counter)
}

// Increase returns how much a counter grew in a window.
func (s Selector) Increase(window string) Expr {
	return s.expr("increase(%s["+window+"])", "", metrics.Counter)
}

// Mean returns the mean of a gauge over a window.
func (s Selector) Mean(window string) Expr {
	return s.expr("avg_over_time(%s["+window+"])", "", metrics.Gauge)
}

// Quantile returns what a part of the observations of a histogram in a window are at most, by labels.
func (s Selector) Quantile(q float64, window string, by ...string) Expr {
	e := s.expr("rate(%s["+window+"])", "_bucket", metrics.Histogram).Sum(append([]string{bucket}, by...)...)
	e.text = fmt.Sprintf("histogram_quantile(%s, %s)", number(q), e.text)
	e.labels = without(e.labels, bucket)
	return e
}

// Buckets returns how many observations of a histogram in a window are at most each bound, by the label le.
func (s Selector) Buckets(window string) Expr {
	return s.expr("increase(%s["+window+"])", "_bucket", metrics.Histogram).Sum(bucket)
}

// expr returns an expression of one call, after a check of type and labels.
func (s Selector) expr(call, suffix string, kind metrics.Type) Expr {
	e := Expr{families: []metrics.Family{s.family}}
	e.labels = append(slices.Clone(s.family.Labels), targetLabels...)
	if s.family.Type == metrics.Histogram {
		e.labels = append(e.labels, bucket)
	}
	slices.Sort(e.labels)
	if s.family.Type != kind {
		e.problem("%s is a %s, and this is for a %s", s.family.Name, s.family.Type, kind)
	}
	parts := make([]string, 0, len(s.matchers))
	for _, m := range s.matchers {
		if !slices.Contains(e.labels, m.label) {
			e.problem("%s has no label %q; it has %s", s.family.Name, m.label, strings.Join(e.labels, ", "))
		}
		parts = append(parts, m.label+m.operator+strconv.Quote(m.value))
	}
	selector := s.family.Name + suffix
	if len(parts) > 0 {
		selector += "{" + strings.Join(parts, ", ") + "}"
	}
	e.text = fmt.Sprintf(call, selector)
	return e
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func without(labels []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == name })
}
