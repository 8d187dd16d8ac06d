package inference

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// model is the name under which Triton would count the requests.
const model = "bert"

// summaryAge is over which time Triton's quantiles are.
const summaryAge = 60 * time.Second

// triton are the metrics of Triton that a fleet is measured by.
type triton struct {
	success *prometheus.CounterVec
	failure *prometheus.CounterVec
	summary *prometheus.SummaryVec
}

func newTriton(registry *prometheus.Registry) *triton {
	t := &triton{
		success: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nv_inference_request_success", Help: "Number of successful inference requests, all batch sizes",
		}, []string{"model", "version"}),
		failure: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nv_inference_request_failure", Help: "Number of failed inference requests, all batch sizes",
		}, []string{"model", "version", "reason"}),
		summary: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "nv_inference_request_summary_us", Help: "Summary of inference request duration in microseconds",
			Objectives: map[float64]float64{.5: .05, .9: .01, .95: .001, .99: .001, .999: .001}, MaxAge: summaryAge, AgeBuckets: 5,
		}, []string{"model", "version"}),
	}
	registry.MustRegister(t.success, t.failure, t.summary)
	t.success.WithLabelValues(model, "1")
	for _, reason := range []string{"CANCELED", "REJECTED"} {
		t.failure.WithLabelValues(model, "1", reason)
	}
	return t
}

func (t *triton) answered(took time.Duration) {
	t.success.WithLabelValues(model, "1").Inc()
	t.summary.WithLabelValues(model, "1").Observe(float64(took.Microseconds()))
}

func (t *triton) failed(reason string) { t.failure.WithLabelValues(model, "1", reason).Inc() }
