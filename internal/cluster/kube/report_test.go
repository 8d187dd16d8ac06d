package kube

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/test/pods"
)

func TestRateMetricOf(t *testing.T) {
	long := strings.Repeat("x", 127)
	for raw, want := range map[string]RateMetric{
		"9400#steps_total":              {Port: 9400, Path: "/metrics", Name: "steps_total"},
		"9400/#steps_total":             {Port: 9400, Path: "/", Name: "steps_total"},
		"1/a/b-c.d_e~1#job:rate5m":      {Port: 1, Path: "/a/b-c.d_e~1", Name: "job:rate5m"},
		"65535/" + long + "#_" + long:   {Port: 65535, Path: "/" + long, Name: "_" + long},
		"8080/v2/models/m..1/stats#qps": {Port: 8080, Path: "/v2/models/m..1/stats", Name: "qps"},
	} {
		got, ok, err := RateMetricOf(pods.Annotated(pods.New("1"), v1alpha1.AnnotationRateMetric, raw))
		if !ok || err != nil {
			t.Errorf("%q: %v, %v", raw, ok, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", raw, diff)
		}
	}
	if got, ok, err := RateMetricOf(pods.New("1")); ok || err != nil {
		t.Errorf("a pod without the annotation: %+v, %v, %v", got, ok, err)
	}
}

func TestRateMetricOfRefuses(t *testing.T) {
	long := strings.Repeat("x", 128)
	for _, raw := range []string{
		"", "#", "9400", "9400#", "#steps", "/metrics#steps", "0#steps", "09400#steps", "65536#steps", "99999#steps", "100000#steps",
		"-1#steps", "9400metrics#steps", "9400/metrics#", "9400/metrics#1steps", "9400/metrics#steps{a=\"b\"}", "9400/a b#steps",
		"9400/metrics?x=1#steps", "9400/../secret#steps", "9400/a/..#steps", "9400/./a#steps", "9400/%2e%2e/#steps", "9400/a#b#c",
		"10.0.0.1:9400/metrics#steps", "http://h:1/m#steps", "9400/" + long + "#s", "9400#_" + long, "9400#steps\n", "9400/ä#steps",
	} {
		_, ok, err := RateMetricOf(pods.Annotated(pods.New("1"), v1alpha1.AnnotationRateMetric, raw))
		var field *FieldError
		if !ok || !errors.As(err, &field) {
			t.Errorf("%q: %v, %v, want a FieldError", raw, ok, err)
			continue
		}
		if field.Field != "metadata.annotations[tandem-gpu.io/rate-metric]" || field.Value != Shown(raw) || field.MustReplace ||
			!strings.Contains(field.Legal, "PORT[/path]#metric") {
			t.Errorf("%q: %+v", raw, field)
		}
	}
}

func TestReportedRate(t *testing.T) {
	for raw, want := range map[string]int64{
		"0": 0, "0.0": 0, "120": 120_000_000, "0.5": 500_000, "0.000001": 1, "1000000000000": int64(placement.MaxRate),
	} {
		got, ok, err := ReportedRate(pods.Annotated(pods.New("1"), v1alpha1.AnnotationReportedRate, raw))
		if err != nil || !ok || got != want {
			t.Errorf("%q: %v, %v, %v, want %v", raw, got, ok, err, want)
		}
	}
	if got, ok, err := ReportedRate(pods.New("1")); ok || err != nil {
		t.Errorf("a pod without the annotation: %v, %v, %v", got, ok, err)
	}
	for _, raw := range []string{
		"", "-1", "+1", "1e9", "NaN", "Inf", "1,2", "1k", "0.0000001", "1000000000000.000001", "99999999999999", " 1", "1 ", ".5", "1.", "fast",
	} {
		_, ok, err := ReportedRate(pods.Annotated(pods.New("1"), v1alpha1.AnnotationReportedRate, raw))
		var field *FieldError
		if !ok || !errors.As(err, &field) {
			t.Errorf("%q: %v, %v, want a FieldError", raw, ok, err)
			continue
		}
		if field.Field != "metadata.annotations[tandem-gpu.io/reported-rate]" || field.Value != raw || field.MustReplace {
			t.Errorf("%q: %+v", raw, field)
		}
	}
}

func FuzzRateMetricOf(f *testing.F) {
	for _, raw := range []string{"9400#steps", "9400/metrics#steps", "65536#s", "1/../x#s", "1/a?b#s", ""} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		m, _, err := RateMetricOf(pods.Annotated(pods.New("1"), v1alpha1.AnnotationRateMetric, raw))
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if m.Port < 1 || m.Port > 65535 || m.Path[0] != '/' || m.Name == "" || strings.ContainsAny(m.Path+m.Name, "#?% \n@\\") {
			t.Fatalf("%q is %+v", raw, m)
		}
		for part := range strings.SplitSeq(m.Path, "/") {
			if part == "." || part == ".." {
				t.Fatalf("%q leads up: %+v", raw, m)
			}
		}
	})
}
