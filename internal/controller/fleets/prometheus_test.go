package fleets

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// If anything is wrong with Prometheus, nothing changes, for as long as it lasts, and the condition says why. The condition does not quote a
// server that answers with texts of another API.
func TestUnknownRate(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*world)
		want  string
		part  string
	}{
		{"gone", func(w *world) { w.prom.Close() }, "False PrometheusUnreachable", "Prometheus cannot be reached: "},
		{"NaN", func(w *world) { w.arrive("NaN") }, "False NotANumber", "query rate: the result is NaN: a number from 0 to 1e+09 is needed"},
		{"infinite", func(w *world) { w.arrive("+Inf") }, "False NotANumber", "query rate: the result is +Inf: "},
		{"negative", func(w *world) { w.arrive("-1") }, "False NotANumber", "query rate: the result is -1: "},
		{"more than anybody serves", func(w *world) { w.arrive("1e30") }, "False NotANumber", "query rate: the result is 1e+30: a number from 0 to 1e+09 is needed"},
		{"more by its variants together", func(w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Metrics.Queries.Rate = "" })
			w.measure(map[string]string{"rate a100": "9e8", "rate t4": "9e8"})
		}, "False NotANumber", "the rates of the variants are 1.8e+09 together: a number from 0 to 1e+09 is needed"},
		{"empty", func(w *world) { w.measure(nil) }, "False NoSample", "query rate: Prometheus has no sample for it: "},
		{"several", func(w *world) {
			w.measure(nil)
			w.prom.samples["rate"] = []string{"1", "2"}
		}, "False SeveralSamples", "query rate: the result has 2 series: one is needed, so sum them"},
		{"stale", func(w *world) { w.prom.lag = 121 * time.Second }, "False StaleSample", "query rate: the sample is of 2026-01-31T12:"},
		{"of a clock ahead", func(w *world) { w.prom.lag = -121 * time.Second }, "False StaleSample", "query rate: the sample is of 2026-01-31T12:"},
		{"a query that it refuses", func(w *world) {
			w.prom.code, w.prom.raw = http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"1:5: parse error"}`
		}, "False QueryRefused", "query rate: Prometheus refuses it: 1:5: parse error"},
		{"overloaded", func(w *world) { w.prom.code, w.prom.raw = http.StatusServiceUnavailable, "secret" }, "False PrometheusUnreachable", "what answers at prometheusURL does not speak the API of Prometheus"},
		{"no Prometheus", func(w *world) { w.prom.code, w.prom.raw = http.StatusOK, "<html>secret</html>" }, "False PrometheusUnreachable", "what answers at prometheusURL does not speak"},
		{"no API", func(w *world) { w.prom.code, w.prom.raw = http.StatusNotFound, "secret" }, "False PrometheusUnreachable", "what answers at prometheusURL does not speak"},
		{"another API", func(w *world) {
			w.prom.code, w.prom.raw = http.StatusOK, `{"status":"success","data":{"resultType":"secret","result":[]}}`
		}, "False PrometheusUnreachable", "the answer of Prometheus cannot be read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.arrive("47")
			w.settle(3 * time.Minute)
			sizes, weights := fmt.Sprint(w.replicas), w.weights()
			test.spoil(w)
			if writes := w.settle(15 * time.Minute); len(writes) > 0 {
				t.Errorf("writes: %q", writes)
			}
			if got := w.condition(v1alpha1.ConditionMeasured); got != test.want {
				t.Errorf("Measured: %s, want %s", got, test.want)
			}
			if got := w.message(v1alpha1.ConditionMeasured); !strings.HasPrefix(got, test.part) || strings.Contains(got, "secret") {
				t.Errorf("message: %s", got)
			}
			s := w.fleet("bert").Status
			if s.Reason != "NoMetrics" || s.Demand != "" || fmt.Sprint(w.replicas) != sizes || w.weights() != weights {
				t.Errorf("%+v, %v, %s", s, w.replicas, w.weights())
			}
		})
	}
}

// A Prometheus elsewhere is not read: the address that the user named is.
func TestRedirectsAreNotFollowed(t *testing.T) {
	w := newWorld(t)
	w.arrive("20")
	elsewhere := httptest.NewServer(http.RedirectHandler(w.prom.URL, http.StatusTemporaryRedirect))
	t.Cleanup(elsewhere.Close)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Metrics.PrometheusURL = elsewhere.URL })
	w.pass()
	if got := w.condition(v1alpha1.ConditionMeasured); got != "False PrometheusUnreachable" || len(w.prom.asked) > 0 {
		t.Errorf("%s, %v", got, w.prom.asked)
	}
}

// No memory is filled by the headers of an answer, and where hosts are named, no other is asked.
func TestAnswersAreBounded(t *testing.T) {
	length := mostHeaders / 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", length)) }))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for _, test := range []struct {
		length int
		hosts  []string
		want   string
	}{
		{mostHeaders / 2, nil, ""}, {mostHeaders / 2, []string{"prometheus:9090", host}, ""}, {mostHeaders, nil, "exceeded"},
		{1, []string{"prometheus:9090"}, host + " is not allowed: name one of prometheus:9090 in prometheusURL"},
	} {
		length = test.length
		answer, err := newHTTP(nil, test.hosts).Get(server.URL)
		if err == nil {
			answer.Body.Close()
		}
		if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(got, test.want) {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// A variant that lost its last replica leaves the weights of the others as they are while it is unknown how many requests arrive: only it
// loses its part.
func TestDeadVariantLosesItsPartWithoutMetrics(t *testing.T) {
	w := newWorld(t)
	w.arrive("47")
	w.settle(3 * time.Minute)
	w.prom.Close()
	w.setReady("bert-t4", 0)
	wantWrites(t, "a variant without a replica", w.pass(), "route bert-t4:0 bert-a100:1000")
	w.setReady("bert-a100", 0)
	wantWrites(t, "no replica at all", w.pass())
	if got := w.condition(v1alpha1.ConditionRouted); got != "False NoReplicas" {
		t.Errorf("Routed: %s", got)
	}
}

// Without a query for the fleet, its rate is the sum of its variants.
func TestRateIsTheSumOfTheVariants(t *testing.T) {
	for _, test := range []struct {
		name    string
		samples map[string]string
		ready   int // t4
		weight  int64
		rate    float64
		reason  string
	}{
		{"both", map[string]string{"rate a100": "30", "rate t4": "4"}, 1, 100, 34, ""},
		{"a variant without replicas is not scraped", map[string]string{"rate a100": "30"}, 0, 100, 30, ""},
		{"a variant without requests has no series", map[string]string{"rate a100": "30"}, 1, 0, 30, ""},
		{"a variant with requests must have a sample", map[string]string{"rate a100": "30"}, 1, 100, math.NaN(), reasonNoSample},
		{"a sample that is no number", map[string]string{"rate a100": "30", "rate t4": "NaN"}, 0, 0, math.NaN(), reasonNotANumber},
		{"no sample at all", nil, 0, 0, math.NaN(), reasonNoSample},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.setReady("bert-t4", test.ready)
			w.setWeights(test.weight, 1000-test.weight)
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Metrics.Queries.Rate = "" })
			w.measure(test.samples)
			f := w.fleet("bert")
			w.forgetFor(f)
			v := &visit{pass: &pass{Controller: w.Controller, now: w.at, claims: claimsOf([]*v1alpha1.InferenceFleet{f})}, object: f, memory: w.memory[f.UID],
				measured: w.measuredAll(t.Context(), []*v1alpha1.InferenceFleet{f}, w.at)[0]}
			var err error
			v.fleet, err = declared(f, ownReplicas(f))
			must.OK(t, err)
			must.OK(t, v.observe(t.Context()))
			reason := ""
			if v.measured.problem != nil {
				reason = v.measured.problem.reason
			}
			if got := v.measured.rate; got != test.rate && !(math.IsNaN(got) && math.IsNaN(test.rate)) || reason != test.reason {
				t.Errorf("rate %v %s, want %v %s", got, reason, test.rate, test.reason)
			}
		})
	}
}

// forgetFor begins the memory of a fleet, as a pass does.
func (w *world) forgetFor(f *v1alpha1.InferenceFleet) {
	(&pass{Controller: w.Controller}).forget([]*v1alpha1.InferenceFleet{f})
}

func TestQueries(t *testing.T) {
	f := read[v1alpha1.InferenceFleet](t, bert)
	f.Spec.Metrics = v1alpha1.FleetMetrics{Preset: "istio", Window: &metav1.Duration{Duration: 90 * time.Second}, Queries: &v1alpha1.FleetQueries{
		Rate: `sum(rate(arrived{ns="$(namespace)",s=~"$(services)"}[$(window)]))`, VariantErrors: `errors{v="$(variant)",q="$(quantile)"}`,
	}}
	q := forVariant(queriesOf(f), &f.Spec.Variants[1])
	want := v1alpha1.FleetQueries{
		Rate: `sum(rate(arrived{ns="ns",s=~"bert-a100|bert-t4"}[90s]))`,
		Latency: `histogram_quantile(0.99, sum by (le) (rate(istio_request_duration_milliseconds_bucket{reporter="source",` +
			`destination_service_namespace="ns",destination_service_name=~"bert-a100|bert-t4"}[90s]))) / 1e3`,
		VariantRate: `sum(rate(istio_requests_total{reporter="source",destination_service_namespace="ns",destination_service_name="bert-t4"}[90s]))`,
		VariantLatency: `histogram_quantile(0.99, sum by (le) (rate(istio_request_duration_milliseconds_bucket{reporter="source",` +
			`destination_service_namespace="ns",destination_service_name="bert-t4"}[90s]))) / 1e3`,
		VariantErrors: `errors{v="t4",q="0.99"}`,
	}
	if diff := cmp.Diff(want, q); diff != "" {
		t.Error(diff)
	}
	for name := range presets {
		f.Spec.Metrics = v1alpha1.FleetMetrics{Preset: name}
		q := forVariant(queriesOf(f), &f.Spec.Variants[0])
		if q.VariantRate == "" || q.VariantLatency == "" || q.Latency == "" {
			t.Errorf("preset %s lacks a query: %+v", name, q)
		}
		if text := fmt.Sprint(q); strings.Contains(text, "$") || strings.Count(text, "(") != strings.Count(text, ")") {
			t.Errorf("preset %s: %s", name, text)
		}
	}
}

// Promises about tokens have queries of their own, with the preset vllm alone: others would measure whole answers for them.
func TestQueriesOfTokens(t *testing.T) {
	f := read[v1alpha1.InferenceFleet](t, bert)
	f.Spec.Promise.Of, f.Spec.Promise.PerToken = v1alpha1.PromiseOfFirstToken, &metav1.Duration{Duration: time.Second}
	for name := range presets {
		f.Spec.Metrics = v1alpha1.FleetMetrics{Preset: name}
		q := forVariant(queriesOf(f), &f.Spec.Variants[0])
		if name != "vllm" {
			if q.Latency != "" || q.VariantLatency != "" || q.PerToken != "" || q.VariantRate == "" {
				t.Errorf("preset %s: %+v", name, q)
			}
			continue
		}
		for query, want := range map[string]string{
			q.Latency:        `time_to_first_token_seconds_bucket{namespace="ns",service=~"bert-a100|bert-t4"}[60s]`,
			q.VariantLatency: `time_to_first_token_seconds_bucket{namespace="ns",service="bert-a100"}[60s]`,
			q.PerToken:       `inter_token_latency_seconds_bucket{namespace="ns",service=~"bert-a100|bert-t4"}[60s]`,
		} {
			if !strings.Contains(query, want) || strings.Contains(query, "$") {
				t.Errorf("query %s lacks %s", query, want)
			}
		}
	}
	f.Spec.Metrics = v1alpha1.FleetMetrics{Preset: "istio", Queries: &v1alpha1.FleetQueries{Latency: "own", VariantLatency: "own $(variant)", PerToken: "tokens"}}
	if q := forVariant(queriesOf(f), &f.Spec.Variants[0]); q.Latency != "own" || q.VariantLatency != "own a100" || q.PerToken != "tokens" {
		t.Errorf("%+v", q)
	}
}

// KServe's histogram ends at 10 s, so a fleet that promises more has no latency from it: 10 s would be measured however slow its replicas are. Its own queries count.
func TestPromiseBeyondTheHistogram(t *testing.T) {
	f := read[v1alpha1.InferenceFleet](t, bert)
	for within, is := range map[time.Duration]bool{9 * time.Second: true, 10 * time.Second: false, time.Minute: false} {
		f.Spec.Promise.Latency.Duration = within
		for name := range presets {
			f.Spec.Metrics = v1alpha1.FleetMetrics{Preset: name}
			if q := queriesOf(f); (q.Latency != "" && q.VariantLatency != "") != (is || name != "kserve") || q.VariantRate == "" {
				t.Errorf("preset %s, promise %v: %+v", name, within, q)
			}
		}
		f.Spec.Metrics = v1alpha1.FleetMetrics{Preset: "kserve", Queries: &v1alpha1.FleetQueries{Latency: "own"}}
		if q := queriesOf(f); q.Latency != "own" {
			t.Errorf("promise %v: %+v", within, q)
		}
	}
	f.Spec.Metrics = v1alpha1.FleetMetrics{Preset: "kserve"}
	for slowdown, is := range map[string]bool{"0.5": false, "1.5": true} {
		f.Spec.Promise.Latency.Duration = time.Minute
		f.Status.Variants = []v1alpha1.FleetVariantStatus{{Name: "a100", Slowdown: slowdown}}
		if m := remember(f); (m.decided.Variants["a100"] != nil) != is {
			t.Errorf("a slowdown of %s from before is remembered: %v", slowdown, !is)
		}
	}
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) {
		s.Metrics.Preset, s.Metrics.Queries, s.Promise.Latency.Duration = "kserve", &v1alpha1.FleetQueries{Rate: "rate"}, time.Minute
	})
	w.arrive("47")
	w.settle(time.Minute)
	if got := w.message(v1alpha1.ConditionPromiseKept); !strings.HasPrefix(got, "the latency is unknown: the histogram of the preset kserve ends at 10s, and the promise is 1m0s: ") {
		t.Errorf("PromiseKept: %s", got)
	}
}

// The guide has the queries of all presets.
func TestGuideListsThePresets(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/guides/inference.md")
	must.OK(t, err)
	guide := strings.Join(strings.Fields(string(raw)), " ")
	all := maps.Clone(presets)
	all["vllm, for tokens"] = vllmTokens
	for name, q := range all {
		for _, query := range []string{q.Rate, q.Latency, q.PerToken, q.VariantRate, q.VariantLatency, q.VariantErrors} {
			if !strings.Contains(guide, query) {
				t.Errorf("the guide does not have this query of %s: %s", name, query)
			}
		}
	}
}

// A replica counts for a fifth at first, and in full after 30 s; those that a new process finds are warm.
func TestWarmth(t *testing.T) {
	m := remember(&v1alpha1.InferenceFleet{})
	if got := m.warmth("v/old", noon); got != 1 {
		t.Errorf("of the first pass: %v", got)
	}
	m.keep(map[string]bool{"v/old": true})
	for _, step := range []struct {
		after time.Duration
		want  float64
	}{{0, .2}, {15 * time.Second, .6}, {30 * time.Second, 1}, {time.Hour, 1}, {-time.Hour, .2}} {
		if got := m.warmth("v/new", noon.Add(step.after)); math.Abs(got-step.want) > 1e-9 {
			t.Errorf("after %v: %v, want %v", step.after, got, step.want)
		}
	}
	m.keep(map[string]bool{"v/old": true})
	if got := m.warmth("v/new", noon.Add(2*time.Hour)); got != .2 {
		t.Errorf("one that was gone is warm: %v", got)
	}
}

// Without the number of requests the latency is unknown, and its condition says where the reason is.
func TestLatencyWithoutArrivals(t *testing.T) {
	w := newWorld(t)
	w.pass()
	if got := w.message(v1alpha1.ConditionPromiseKept); got != "the latency is unknown, since it is unknown how many requests arrive: see the condition Measured" {
		t.Errorf("PromiseKept: %s", got)
	}
	w.arrive("60")
	w.pass()
	if got := w.message(v1alpha1.ConditionPromiseKept); !strings.HasPrefix(got, "the latency is unknown: too few requests arrive to tell") {
		t.Errorf("PromiseKept: %s", got)
	}
}
