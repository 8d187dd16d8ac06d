package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/pods"
)

// noon is the time that these tests take for now.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func saved(p *v1.Pod, raw string) *v1.Pod {
	return pods.Annotated(p, v1alpha1.AnnotationCheckpointTime, raw)
}

func TestCheckpointTime(t *testing.T) {
	for raw, want := range map[string]time.Time{
		"2026-01-31T12:00:00Z":                noon,
		"2026-01-31T13:00:00+01:00":           noon,
		"2026-01-31T11:59:59.5Z":              noon.Add(-500 * time.Millisecond),
		"2026-01-31T00:00:00.123456789-12:00": noon.Add(123456789),
		"0001-01-01T00:00:00Z":                {},
	} {
		got, ok, err := CheckpointTime(saved(pods.New("3"), raw))
		if err != nil || !ok || !got.Equal(want) {
			t.Errorf("%q: %v, %v, %v, want %v", raw, got, ok, err, want)
		}
	}
	if got, ok, err := CheckpointTime(pods.New("3")); ok || err != nil || !got.IsZero() {
		t.Errorf("a pod that does not say: %v, %v, %v", got, ok, err)
	}
}

func TestCheckpointTimeRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "now", "1769860800", "2026-01-31", "12:00:00", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T12:00Z", "2026-01-31t12:00:00z",
		"2026-02-30T12:00:00Z", "2026-13-01T12:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:00:60Z", "2026-01-31T2:00:00Z", "2026-01-31T12:00:00,5Z",
		"2026-01-31T12:00:00+0100", "2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00+01:60", "26-01-31T12:00:00Z", " 2026-01-31T12:00:00Z",
		"2026-01-31T12:00:00Z\n", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00.1234567890+01:00", "+2026-01-31T12:00:00Z",
		"2026-01-31T12:00:00." + strings.Repeat("0", 100) + "Z",
	} {
		got, ok, err := CheckpointTime(saved(pods.New("3"), raw))
		var field *FieldError
		if !errors.As(err, &field) || !ok || !got.IsZero() {
			t.Errorf("%q: %v, %v, %v, want a FieldError", raw, got, ok, err)
			continue
		}
		if field.Field != "metadata.annotations[tandem-gpu.io/checkpoint-time]" || field.MustReplace || field.Object ||
			!strings.Contains(field.Legal, "2026-01-31T12:00:00Z") || !strings.HasPrefix(raw, strings.TrimSuffix(field.Value, "…")) {
			t.Errorf("%q: %+v", raw, field)
		}
	}
}
