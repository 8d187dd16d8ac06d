package inventory

import (
	"strings"
	"testing"
)

func TestLongMessagesFitTheSchema(t *testing.T) {
	d := Device{GPU: GPU{ID: "GPU-a"}, Slots: 10, Sick: &Sickness{Reason: "R", Message: strings.Repeat("é", 1000)}}
	if m := gpuDevice(&d).Message; len(m) > 1024 || !strings.HasPrefix(m, "éé") {
		t.Errorf("message of %d bytes", len(m))
	}
}
