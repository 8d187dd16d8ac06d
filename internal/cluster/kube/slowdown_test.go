package kube

import (
	"errors"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/pods"
)

func TestMaxSlowdown(t *testing.T) {
	for raw, want := range map[string]int64{
		"1": 1000, "1.0": 1000, "1.2": 1200, "1.15": 1150, "1.001": 1001, "9.999": 9999, "10": 10000, "10.000": 10000,
	} {
		if got, err := MaxSlowdown(pods.Annotated(pods.New("1"), v1alpha1.AnnotationMaxSlowdown, raw)); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", raw, got, err, want)
		}
	}
	if got, err := MaxSlowdown(pods.New("1")); got != 0 || err != nil {
		t.Errorf("a pod without the annotation: %d, %v, want 0", got, err)
	}
}

func TestRequestHasTheMaxSlowdown(t *testing.T) {
	p := pods.Annotated(pods.New("3"), v1alpha1.AnnotationMaxSlowdown, "1.15")
	if got, err := Request(p); err != nil || got.MaxSlowdown != 1150 || got.Validate() != nil {
		t.Errorf("%+v, %v, %v, want 1150 thousandths", got, err, got.Validate())
	}
	p.Annotations[v1alpha1.AnnotationMaxSlowdown] = "0.9"
	var field *FieldError
	if got, err := Request(p); !errors.As(err, &field) || !strings.Contains(err.Error(), "max-slowdown") {
		t.Errorf("%+v, %v, want a FieldError", got, err)
	}
	if got, err := Request(pods.Annotated(pods.New(""), v1alpha1.AnnotationMaxSlowdown, "0.9")); err != nil || len(got.Containers) > 0 {
		t.Errorf("a pod without slots: %+v, %v", got, err)
	}
}

func TestMaxSlowdownRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "0.9", "0", "0.999", "-1.2", "+1.2", "10.001", "11", "100", "1.0001", "1.", ".5", "1,2", "1e3", "1e0", "NaN", "Inf",
		" 1.2", "1.2 ", "01.2", "1.2x", "120%", "1.2.3", "0x1", "٣", "1\n",
	} {
		got, err := MaxSlowdown(pods.Annotated(pods.New("1"), v1alpha1.AnnotationMaxSlowdown, raw))
		var field *FieldError
		if !errors.As(err, &field) || got != 0 {
			t.Errorf("%q: %d, %v, want a FieldError", raw, got, err)
			continue
		}
		if field.Field != "metadata.annotations[tandem-gpu.io/max-slowdown]" || field.Value != raw || field.MustReplace ||
			!strings.Contains(field.Legal, "a decimal from 1 to 10") {
			t.Errorf("%q: %+v", raw, field)
		}
	}
}

func FuzzMaxSlowdown(f *testing.F) {
	for _, raw := range []string{"1", "1.2", "9.999", "10", "10.000", "0.9", "1e3", "NaN", "1,2", ""} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := MaxSlowdown(pods.Annotated(pods.New("1"), v1alpha1.AnnotationMaxSlowdown, raw))
		if err != nil {
			if got != 0 || len(err.Error()) > 1024 {
				t.Fatalf("%q: %d, %v", raw, got, err)
			}
			return
		}
		if got < 1000 || got > 10000 {
			t.Fatalf("%q is a slowdown of %d thousandths", raw, got)
		}
	})
}
