package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestFleetsPrometheus has a real Prometheus scrape servers that export what Triton, vLLM, KServe's server and Istio export, and the
// controller measure fleets by the presets for them.
func TestFleetsPrometheus(t *testing.T) {
	if os.Getenv("TANDEM_OPERATORS") != "1" {
		t.Skip("needs Prometheus, minutes of building that no other test here needs: make test-operators runs it (TANDEM_OPERATORS=1)")
	}
	t.Parallel()
	c := startFleetCluster(t, 0)
	exporter := startExporter(t)
	c.startPrometheus(t, exporter)
	t.Run("side by side", func(t *testing.T) {
		for _, preset := range []string{"triton", "vllm", tokens, "kserve", "istio"} {
			c.in(t, preset, func(t *testing.T, s *fleetScene) { measuredByPreset(t, s, exporter, preset) })
		}
	})
}

// tokens is the preset vllm for promises about tokens.
const tokens = "vllm-tokens"

// promiseTokens makes a fleet that of a language model.
func (s *fleetScene) promiseTokens(t *testing.T, name string, variants int) {
	t.Helper()
	patch := `[{"op": "add", "path": "/spec/promise/of", "value": "FirstToken"}, {"op": "add", "path": "/spec/promise/perToken", "value": "30ms"}`
	for i := range variants {
		at := fmt.Sprintf("/spec/variants/%d/replica/", i)
		patch += fmt.Sprintf(`, {"op": "add", "path": "%sfirstToken", "value": "1ms"}, {"op": "add", "path": "%sinFlight", "value": 64}`, at, at)
	}
	if _, err := s.objects.Resource(fleets).Namespace(s.namespace).Patch(t.Context(), name, types.JSONPatchType, []byte(patch+"]"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// An exporterServer has the metrics of one replica of each variant of a fleet in each scene.
type exporterServer struct {
	*httptest.Server
	registry *prometheus.Registry
	// families are the metrics of servers. Their labels namespace and service would be set by Prometheus from its targets; here the exporter
	// sets them, and Prometheus honours them.
	success, failure, vllm, istio *prometheus.CounterVec
	summary                       *prometheus.GaugeVec
	vllmLatency, kserve, mesh     *prometheus.HistogramVec
	firstToken, perToken          *prometheus.HistogramVec
}

func startExporter(t *testing.T) *exporterServer {
	t.Helper()
	e := &exporterServer{registry: prometheus.NewRegistry()}
	of := []string{"namespace", "service"}
	seconds := []float64{.05, .1, .15, .2, .25, .3, .5, 1, 2}
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: name}, labels)
		e.registry.MustRegister(v)
		return v
	}
	histogram := func(name string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: name, Buckets: buckets}, labels)
		e.registry.MustRegister(v)
		return v
	}
	e.success, e.failure = counter("nv_inference_request_success", append(of, "model")...), counter("nv_inference_request_failure", append(of, "model", "reason")...)
	e.summary = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nv_inference_request_summary_us", Help: "summary"}, append(of, "model", "quantile"))
	e.registry.MustRegister(e.summary)
	e.vllm = counter("vllm:request_success_total", append(of, "finished_reason")...)
	e.vllmLatency = histogram("vllm:e2e_request_latency_seconds", seconds, of...)
	e.firstToken, e.perToken = histogram("vllm:time_to_first_token_seconds", seconds, of...), histogram("vllm:inter_token_latency_seconds", []float64{.01, .02, .05}, of...)
	e.kserve = histogram("request_predict_seconds", seconds, of...)
	mesh := []string{"reporter", "destination_service_namespace", "destination_service_name", "response_code"}
	e.istio = counter("istio_requests_total", mesh...)
	milliseconds := make([]float64, len(seconds))
	for i := range seconds {
		milliseconds[i] = 1000 * seconds[i]
	}
	e.mesh = histogram("istio_request_duration_milliseconds", milliseconds, mesh...)
	e.Server = httptest.NewServer(promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}))
	t.Cleanup(e.Close)
	return e
}

// serve counts requests of a variant: most take 0.12 s, two of a hundred take a latency, and a part of them fails.
func (e *exporterServer) serve(preset, namespace, service string, requests int, latency float64, failed int) {
	for i := range requests {
		took := .12
		if i%50 == 0 {
			took = latency
		}
		fails := i < failed
		switch preset {
		case "triton":
			if e.failure.WithLabelValues(namespace, service, "bert", "OTHER"); fails {
				e.failure.WithLabelValues(namespace, service, "bert", "OTHER").Inc()
			} else {
				e.success.WithLabelValues(namespace, service, "bert").Inc()
			}
			e.summary.WithLabelValues(namespace, service, "bert", "0.99").Set(1e6 * latency)
			e.summary.WithLabelValues(namespace, service, "bert", "0.5").Set(1e6 * .12)
		case "vllm":
			e.vllmLatency.WithLabelValues(namespace, service).Observe(took)
			e.vllm.WithLabelValues(namespace, service, map[bool]string{true: "error", false: "stop"}[fails]).Inc()
		case tokens:
			e.firstToken.WithLabelValues(namespace, service).Observe(took)
			e.perToken.WithLabelValues(namespace, service).Observe(.015)
			e.vllmLatency.WithLabelValues(namespace, service).Observe(60) // which breaks the promise, if it is measured
			e.vllm.WithLabelValues(namespace, service, map[bool]string{true: "error", false: "stop"}[fails]).Inc()
		case "kserve":
			e.kserve.WithLabelValues(namespace, service).Observe(took)
		case "istio":
			code := map[bool]string{true: "503", false: "200"}[fails]
			for _, reporter := range []string{"source", "destination"} { // both sides count each request
				e.istio.WithLabelValues(reporter, namespace, service, code).Inc()
				e.mesh.WithLabelValues(reporter, namespace, service, code).Observe(1000 * took)
			}
		}
	}
}

// startPrometheus starts a Prometheus that scrapes an exporter each second, and has the fleets query it.
func (c *fleetCluster) startPrometheus(t *testing.T, exporter *exporterServer) {
	t.Helper()
	c.runPrometheus(t, fmt.Sprintf("  honor_labels: true\n  static_configs:\n  - targets: [%q]\n", strings.TrimPrefix(exporter.URL, "http://")))
}

// runPrometheus starts a Prometheus that scrapes each second, given how it finds what it scrapes, and has the fleets query it.
func (c *fleetCluster) runPrometheus(t *testing.T, discovery string) {
	t.Helper()
	binary, err := sandbox.Tool(t.Context(), "prometheus")
	must.OK(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	must.OK(t, os.WriteFile(config, []byte("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: replicas\n"+discovery), 0o600))
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	process, err := c.plane.Processes().Start("prometheus", exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address))
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", process.Tail(40))
		}
	})
	c.prometheus = "http://" + address
	c.poll(t, "Prometheus is ready", func() (bool, string) {
		response, err := http.Get(c.prometheus + "/-/ready")
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
}

// measuredByPreset: the rate of a fleet is that of its variants together, its latency is theirs, and a variant that answers errors gets no
// requests.
func measuredByPreset(t *testing.T, s *fleetScene, exporter *exporterServer, preset string) {
	variants := twoVariants()
	variants[1].replicas, variants[1].least = 1, 1
	for _, v := range variants {
		s.createVariant(t, "bert-"+v.name, v.replicas)
	}
	s.createRoute(t, "bert", variants)
	s.createFleet(t, "bert", "bert", variants, map[string]any{"prometheusURL": s.prometheus, "preset": strings.TrimSuffix(preset, "-tokens"), "window": "30s"})
	if preset == tokens {
		s.promiseTokens(t, "bert", len(variants))
	}

	const a100, t4 = 30, 4 // requests a second
	latency, failed := .14, 0
	second := time.NewTicker(time.Second)
	defer second.Stop()
	await := func(what string, right func(f *v1alpha1.InferenceFleet) bool) {
		t.Helper()
		for began := time.Now(); ; <-second.C {
			exporter.serve(preset, s.namespace, "bert-a100", a100, latency, 0)
			exporter.serve(preset, s.namespace, "bert-t4", t4, latency, failed)
			f := s.fleet(t, "bert")
			if right(f) {
				return
			}
			if time.Since(began) > patience {
				t.Fatalf("waiting until %s: %+v", what, f.Status)
			}
		}
	}
	await("the promise is kept", func(f *v1alpha1.InferenceFleet) bool {
		demand, err := strconv.ParseFloat(f.Status.Demand, 64)
		kept := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionPromiseKept)
		// The forecast adds a margin to the rate, a larger one where the rate rose within a minute; requests that count twice would double it.
		return err == nil && kept != nil && kept.Reason == "Kept" && demand > .95*(a100+t4) && demand < 1.7*(a100+t4)
	})
	latency = 1.5
	await("the promise is broken", func(f *v1alpha1.InferenceFleet) bool {
		kept := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionPromiseKept)
		return kept != nil && kept.Reason == "Broken"
	})
	if latency, failed = .14, 3; preset == "kserve" { // its server counts no errors
		return
	}
	await("t4, which answers errors, gets nothing", func(f *v1alpha1.InferenceFleet) bool {
		_, weights := s.sizes(t, "bert")
		return weights == [2]int64{1000, 0}
	})
}
