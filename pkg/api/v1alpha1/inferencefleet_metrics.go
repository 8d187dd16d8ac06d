package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FleetMetrics say how what arrives is measured: by queries of Prometheus, or by what pods report of themselves.
//
// +kubebuilder:validation:XValidation:rule="self.preset != 'none' || has(self.queries) && (has(self.queries.rate) || has(self.queries.variantRate))",message="without a preset, queries must have rate or variantRate"
// +kubebuilder:validation:XValidation:rule="has(self.prometheusURL) || self.preset == 'reported'",message="prometheusURL is missing: only the preset reported does without"
// +kubebuilder:validation:XValidation:rule="has(self.prometheusURL) || !has(self.queries)",message="queries need prometheusURL"
type FleetMetrics struct {
	// PrometheusURL is the address of the Prometheus API, for example http://prometheus.monitoring:9090. Only the preset reported does without.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^[:space:]/?#@]+(/[^[:space:]?#]*)?$')",message="prometheusURL must be http:// or https:// with a host, without a user and without a query, such as http://prometheus.monitoring:9090"
	PrometheusURL string `json:"prometheusURL,omitempty"`
	// Preset is a set of queries for a server or a mesh: triton, vllm, kserve, istio, or none. The guide for inference lists them. With reported
	// the rate of a variant is what its pods report of themselves to the agent, in requests a second.
	// +optional
	// +kubebuilder:default=none
	// +kubebuilder:validation:Enum=triton;vllm;kserve;istio;reported;none
	Preset string `json:"preset,omitempty"`
	// Window is the time over which rates and latencies are measured, from 30s to 10m: at least four times the interval between two
	// scrapes.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(s|m)){1,4}$') && duration(self) >= duration('30s') && duration(self) <= duration('10m')",message="window must be a duration from 30s to 10m, such as 1m"
	Window *metav1.Duration `json:"window,omitempty"`
	// Queries take the place of those of the preset, one by one.
	// +optional
	Queries *FleetQueries `json:"queries,omitempty"`
}

// FleetQueries are PromQL. Each has one number as its result. In them the controller replaces $(namespace), $(quantile) and $(window), for
// example with 60s; $(services) by the Services of all variants with a | between them, for a regular expression; and in the queries of a
// variant $(service) and $(variant), in that of a class $(class).
type FleetQueries struct {
	// Rate is how many requests a second arrive at the fleet. Default: the sum of the rates of the variants.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Rate string `json:"rate,omitempty"`
	// Latency is the time in seconds within which the promised part of the fleet's requests was answered. Without it, the fleet does not
	// know whether it keeps its promise.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Latency string `json:"latency,omitempty"`
	// PerToken is the time in seconds within which the promised part of the fleet's tokens followed the one before. It counts where the
	// promise has perToken.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	PerToken string `json:"perToken,omitempty"`
	// VariantRate is how many requests a second a variant answers, those with errors too.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	VariantRate string `json:"variantRate,omitempty"`
	// VariantLatency is the time in seconds within which the promised part of a variant's requests was answered. With it and variantRate the
	// controller learns how much slower than declared a variant is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	VariantLatency string `json:"variantLatency,omitempty"`
	// ClassRate is how many requests a second of a class arrive at the fleet. $(class) stands for its name. A class without a sample has no requests.
	// It counts where the fleet has classes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	ClassRate string `json:"classRate,omitempty"`
	// VariantErrors is how many requests a second a variant answers with an error. A variant that answers more than half of its requests with
	// errors gets none for a while.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	VariantErrors string `json:"variantErrors,omitempty"`
}
