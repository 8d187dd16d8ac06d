package victims

import (
	"testing"

	"github.com/tandem-gpu/tandem/test/pods"
)

// A pod serves whose latency is legal, with vGPUs or without.
func TestServes(t *testing.T) {
	for raw, want := range map[string]bool{
		"40ms": true, "1us": true, "1h": true, "": false, "soon": false, "40": false, "-1s": false, "0.5us": false, "61m": false, "1.5": false,
	} {
		if got := serves(quick(raw, "")); got != want {
			t.Errorf("%q: %v", raw, got)
		}
	}
	if serves(pods.New("3")) {
		t.Error("a pod without a latency serves")
	}
}
