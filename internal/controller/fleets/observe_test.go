package fleets

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// A rise within a minute counts at once, as what the new requests of the window say: half of 30 s is new after 15 s, so 160 arrive a second where
// 60 did before and 110 are the mean.
func TestGrowsWithinTheMinute(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Metrics.Window = &metav1.Duration{Duration: 30 * time.Second} })
	w.arrive("60")
	w.pass()
	w.events()
	w.arrive("110")
	wantWrites(t, "the pass after a jump", w.pass(), "scale bert-a100 2→4")
	if diff := cmp.Diff([]string{"Normal Grows grows a100 from 2 to 4 replicas: 176 requests a second are expected, 90.3 are served within 1s"}, w.events()); diff != "" {
		t.Error(diff)
	}
}
