package kube

import (
	"regexp"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	legalMetric   = "it must be PORT[/path]#metric with a port from 1 to 65535, for example 9400/metrics#train_steps_total"
	legalReported = "it must be a decimal from 0 to 1000000000000, with up to six decimals and without a sign or unit, for example 120 or 0.5"
)

// defaultMetricsPath is where Prometheus looks too.
const defaultMetricsPath = "/metrics"

// metricForm is what a place of a metric may look like: port, path, name. Neither a path nor a name is longer than 128
// letters; a path has no query, no fragment and no "..", which the class of its letters and pathUp see to.
var (
	metricForm = regexp.MustCompile(`^([1-9][0-9]{0,4})(/[0-9A-Za-z._~/-]{0,127})?#([A-Za-z_:][0-9A-Za-z_:]{0,127})$`)
	pathUp     = regexp.MustCompile(`(^|/)\.\.?(/|$)`)
)

// RateMetric is where a pod shows its rate.
type RateMetric struct {
	// Port of the pod, 1 to 65535.
	Port int
	// Path of the Prometheus text endpoint, from its slash.
	Path string
	// Name of the metric.
	Name string
}

// RateMetricOf returns where a pod shows its rate, and false for a pod that shows none. The error is a *FieldError.
func RateMetricOf(pod *v1.Pod) (RateMetric, bool, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationRateMetric]
	if !ok {
		return RateMetric{}, false, nil
	}
	parts := metricForm.FindStringSubmatch(raw)
	if parts == nil || pathUp.MatchString(parts[2]) {
		return RateMetric{}, true, Malformed(v1alpha1.AnnotationRateMetric, raw, legalMetric)
	}
	port, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil {
		return RateMetric{}, true, Malformed(v1alpha1.AnnotationRateMetric, raw, legalMetric)
	}
	path := parts[2]
	if path == "" {
		path = defaultMetricsPath
	}
	return RateMetric{Port: int(port), Path: path, Name: parts[3]}, true, nil
}

// ReportedRate returns the rate that a pod says that it reaches, in millionths, and false for a pod that says nothing. A rate of 0 is a
// pod that stands still. The error is a *FieldError.
func ReportedRate(pod *v1.Pod) (millionths int64, said bool, err error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationReportedRate]
	if !ok {
		return 0, false, nil
	}
	millionths, ok = Decimal(raw)
	if !ok {
		return 0, true, Malformed(v1alpha1.AnnotationReportedRate, raw, legalReported)
	}
	return millionths, true, nil
}

// rateForm is what a rate may look like.
var rateForm = regexp.MustCompile(`^[0-9]{1,13}(\.[0-9]{1,6})?$`)

// Decimal reads a rate as users write it, from 0 to config.MaxRate, in millionths.
func Decimal(raw string) (int64, bool) {
	if !rateForm.MatchString(raw) {
		return 0, false
	}
	q, err := resource.ParseQuantity(raw)
	if err != nil {
		return 0, false
	}
	rate := q.ScaledValue(resource.Micro) // six decimals at most: exact
	return rate, rate >= 0 && rate <= config.MaxRate*1_000_000
}
