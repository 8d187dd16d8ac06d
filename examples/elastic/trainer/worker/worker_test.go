package worker

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestNameOfTheNotice(t *testing.T) {
	if AnnotationLeaving != v1alpha1.AnnotationLeaving {
		t.Errorf("the worker looks for %q, the controller writes %q", AnnotationLeaving, v1alpha1.AnnotationLeaving)
	}
}

// Annotations as the kubelet writes them into a file: key="value", sorted, with escapes.
func TestHasNotice(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"", false},
		{"a=\"1\"\nz=\"\\\"tandem-gpu.io/leaving-at=\\\"\"\n", false},
		{"a=\"1\"\ntandem-gpu.io/leaving-at=\"2026-01-31T12:00:00Z\"\nz=\"2\"", true},
		{"tandem-gpu.io/leaving-at=\"2026-01-31T12:00:00Z\"", true},
		{"tandem-gpu.io/leaving-at=\"\"\n", false},
		{"tandem-gpu.io/leaving-at-home=\"2026-01-31T12:00:00Z\"\n", false},
		{"tandem-gpu.io/leaving-at=\"2026-01-3", false}, // not yet written as a whole
	} {
		if got := hasNotice(c.text); got != c.want {
			t.Errorf("%q: %v, want %v", c.text, got, c.want)
		}
	}
}

// The count is a counter in Prometheus' text format.
func TestSamples(t *testing.T) {
	s := &Samples{}
	s.Add(4)
	s.Add(12)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := w.Body.String(); !strings.Contains(text, "# TYPE trainer_samples_total counter\ntrainer_samples_total 16\n") {
		t.Errorf("the page is %q", text)
	}
	address, err := s.Serve(t.Context(), "127.0.0.1:0")
	must.OK(t, err)
	answer, err := http.Get("http://" + address + "/metrics")
	must.OK(t, err)
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || string(text) != w.Body.String() {
		t.Errorf("status %d, %q, %v", answer.StatusCode, text, err)
	}
}
