package fleets

import (
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// presets are the queries for servers and meshes, by name. The labels namespace and service are those that the Prometheus operator's
// ServiceMonitors set. docs/guides/inference.md lists them.
var presets = map[string]v1alpha1.FleetQueries{
	"triton": {
		Latency: `max(nv_inference_request_summary_us{namespace="$(namespace)",service=~"$(services)",quantile="$(quantile)"}) / 1e6`,
		VariantRate: `sum(rate(nv_inference_request_success{namespace="$(namespace)",service="$(service)"}[$(window)]))` +
			` + sum(rate(nv_inference_request_failure{namespace="$(namespace)",service="$(service)"}[$(window)]))`,
		VariantLatency: `max(nv_inference_request_summary_us{namespace="$(namespace)",service="$(service)",quantile="$(quantile)"}) / 1e6`,
		VariantErrors:  `sum(rate(nv_inference_request_failure{namespace="$(namespace)",service="$(service)"}[$(window)]))`,
	},
	"vllm": {
		Latency:        `histogram_quantile($(quantile), sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket{namespace="$(namespace)",service=~"$(services)"}[$(window)])))`,
		VariantRate:    `sum(rate(vllm:request_success_total{namespace="$(namespace)",service="$(service)"}[$(window)]))`,
		VariantLatency: `histogram_quantile($(quantile), sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket{namespace="$(namespace)",service="$(service)"}[$(window)])))`,
		VariantErrors:  `sum(rate(vllm:request_success_total{namespace="$(namespace)",service="$(service)",finished_reason="error"}[$(window)]))`,
	},
	"kserve": {
		Latency:        `histogram_quantile($(quantile), sum by (le) (rate(request_predict_seconds_bucket{namespace="$(namespace)",service=~"$(services)"}[$(window)])))`,
		VariantRate:    `sum(rate(request_predict_seconds_count{namespace="$(namespace)",service="$(service)"}[$(window)]))`,
		VariantLatency: `histogram_quantile($(quantile), sum by (le) (rate(request_predict_seconds_bucket{namespace="$(namespace)",service="$(service)"}[$(window)])))`,
	},
	"istio": {
		Latency: `histogram_quantile($(quantile), sum by (le) (rate(istio_request_duration_milliseconds_bucket{reporter="source",` +
			`destination_service_namespace="$(namespace)",destination_service_name=~"$(services)"}[$(window)]))) / 1e3`,
		VariantRate: `sum(rate(istio_requests_total{reporter="source",destination_service_namespace="$(namespace)",destination_service_name="$(service)"}[$(window)]))`,
		VariantLatency: `histogram_quantile($(quantile), sum by (le) (rate(istio_request_duration_milliseconds_bucket{reporter="source",` +
			`destination_service_namespace="$(namespace)",destination_service_name="$(service)"}[$(window)]))) / 1e3`,
		VariantErrors: `sum(rate(istio_requests_total{reporter="source",destination_service_namespace="$(namespace)",destination_service_name="$(service)",response_code=~"5.."}[$(window)]))`,
	},
}

// vllmTokens are the queries of the preset vllm for promises about tokens. Older servers have the time for each token under another name only,
// and some have both.
var vllmTokens = v1alpha1.FleetQueries{
	Latency:        `histogram_quantile($(quantile), sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{namespace="$(namespace)",service=~"$(services)"}[$(window)])))`,
	VariantLatency: `histogram_quantile($(quantile), sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{namespace="$(namespace)",service="$(service)"}[$(window)])))`,
	PerToken: `histogram_quantile($(quantile), sum by (le) (rate(vllm:inter_token_latency_seconds_bucket{namespace="$(namespace)",service=~"$(services)"}[$(window)])))` +
		` or histogram_quantile($(quantile), sum by (le) (rate(vllm:time_per_output_token_seconds_bucket{namespace="$(namespace)",service=~"$(services)"}[$(window)])))`,
}

// presetReported takes the rates of the variants from what their pods report of themselves, in place of queries.
const presetReported = "reported"

// presetOf returns the queries of a fleet's preset for its promise. Those that measure something else are left out.
func presetOf(f *v1alpha1.InferenceFleet) v1alpha1.FleetQueries {
	q := presets[f.Spec.Metrics.Preset]
	tokens := v1alpha1.FleetQueries{}
	if f.Spec.Metrics.Preset == "vllm" {
		tokens = vllmTokens
	}
	if endsBelow(f) {
		q.Latency, q.VariantLatency = "", ""
	}
	if f.Spec.Promise.Of == v1alpha1.PromiseOfFirstToken {
		q.Latency, q.VariantLatency = tokens.Latency, tokens.VariantLatency
	}
	if f.Spec.Promise.PerToken != nil {
		q.PerToken = tokens.PerToken
	}
	return q
}

// kserveEnds is the last bound of the histogram of KServe's model server, which has the buckets that Prometheus' client for Python makes. A longer p99 is
// measured as that bound.
const kserveEnds = 10 * time.Second

// endsBelow reports whether the preset cannot see that a fleet breaks its promise: no latency is known then, since slow replicas would be taken for fast ones.
func endsBelow(f *v1alpha1.InferenceFleet) bool {
	return f.Spec.Metrics.Preset == "kserve" && f.Spec.Promise.Latency.Duration >= kserveEnds
}

// defaultWindow is that of the CustomResourceDefinition.
const defaultWindow = time.Minute

// window is the time over which a fleet is measured.
func window(f *v1alpha1.InferenceFleet) time.Duration {
	if w := f.Spec.Metrics.Window; w != nil {
		return w.Duration
	}
	return defaultWindow
}

// queriesOf returns the queries of a fleet: its own, and those of its preset for the others. The placeholders of the fleet are filled in.
func queriesOf(f *v1alpha1.InferenceFleet) v1alpha1.FleetQueries {
	q := presetOf(f)
	if own := f.Spec.Metrics.Queries; own != nil {
		for _, field := range []struct{ to, from *string }{
			{&q.Rate, &own.Rate}, {&q.Latency, &own.Latency}, {&q.PerToken, &own.PerToken}, {&q.VariantRate, &own.VariantRate}, {&q.VariantLatency, &own.VariantLatency}, {&q.VariantErrors, &own.VariantErrors}, {&q.ClassRate, &own.ClassRate},
		} {
			if *field.from != "" {
				*field.to = *field.from
			}
		}
	}
	services := make([]string, len(f.Spec.Variants))
	for i := range services {
		services[i] = f.Spec.Variants[i].Service.Name
	}
	quantile := f.Spec.Promise.Quantile
	if quantile == "" {
		quantile = defaultQuantile
	}
	return filled(q, "$(namespace)", f.Namespace, "$(services)", strings.Join(services, "|"), "$(quantile)", quantile,
		"$(window)", strconv.Itoa(int(window(f).Seconds()))+"s")
}

// forVariant fills in the placeholders of a variant.
func forVariant(q v1alpha1.FleetQueries, v *v1alpha1.FleetVariant) v1alpha1.FleetQueries {
	return filled(q, "$(service)", v.Service.Name, "$(variant)", v.Name)
}

// filled replaces placeholders in all queries. No value has a character that means something in PromQL's strings.
func filled(q v1alpha1.FleetQueries, pairs ...string) v1alpha1.FleetQueries {
	r := strings.NewReplacer(pairs...)
	return v1alpha1.FleetQueries{
		Rate: r.Replace(q.Rate), Latency: r.Replace(q.Latency), PerToken: r.Replace(q.PerToken), VariantRate: r.Replace(q.VariantRate),
		VariantLatency: r.Replace(q.VariantLatency), VariantErrors: r.Replace(q.VariantErrors), ClassRate: r.Replace(q.ClassRate),
	}
}
