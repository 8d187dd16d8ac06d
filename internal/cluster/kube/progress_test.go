package kube

import (
	"errors"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/pods"
)

func TestProgress(t *testing.T) {
	for raw, want := range map[string]float64{"0": 0, "0.0": 0, "0.25": .25, "0.000001": 1e-6, "0.999999": .999999, "1": 1, "1.000000": 1} {
		if got, said, err := Progress(pods.Annotated(pods.New("3"), v1alpha1.AnnotationProgress, raw)); err != nil || !said || got != want {
			t.Errorf("%q: %v, %v, %v, want %v", raw, got, said, err, want)
		}
	}
	if got, said, err := Progress(pods.New("3")); got != 0 || said || err != nil {
		t.Errorf("a pod that does not say: %v, %v, %v", got, said, err)
	}
}

func TestProgressRefuses(t *testing.T) {
	for _, raw := range []string{"", "1.1", "1.000001", "2", "-0.1", "+0.5", ".5", "0.", "1.", "00.5", "01", "50%", "0,5", "5e-1", "500m", "0.1234567", "NaN", " 0.5", "0.5\n", "half"} {
		got, said, err := Progress(pods.Annotated(pods.New("3"), v1alpha1.AnnotationProgress, raw))
		var field *FieldError
		if !errors.As(err, &field) || !said || got != 0 || field.Field != "metadata.annotations[tandem-gpu.io/progress]" {
			t.Errorf("%q: %v, %v, %v, want a FieldError of the annotation", raw, got, said, err)
		}
	}
}
