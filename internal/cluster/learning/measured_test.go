package learning

import (
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// promise has the pods on a device name a max-slowdown.
func (w *world) promise(device int, slowdown string) {
	for _, r := range w.gpus[device].running {
		r.pod.Annotations[v1alpha1.AnnotationMaxSlowdown] = slowdown
		w.learner.Pod(r.pod)
	}
}

// a is slowed down by 1.5 and b by 1.2. Nothing is measured before their rates alone are known; then a breaks a promise of 1.3 in each
// interval, and b keeps it.
func TestSlowdownIsMeasured(t *testing.T) {
	w := newWorld(t, 2, Options{})
	counts := &w.learner.counts
	a, b := two()
	w.place(0, a, b)
	w.promise(0, "1.3")
	w.run(10 * time.Minute)
	if counts.coRuns == 0 || counts.slowdowns.number != 0 || counts.broken != 0 {
		t.Fatalf("%d co-runs, %d slowdowns measured and %d promises broken before a rate alone is known", counts.coRuns, counts.slowdowns.number, counts.broken)
	}
	w.place(0, a)
	w.place(1, b)
	w.run(15 * time.Minute)
	if counts.slowdowns.number != 0 {
		t.Fatalf("%d slowdowns measured of pods without neighbours", counts.slowdowns.number)
	}
	w.place(0, a, b)
	w.place(1)
	w.run(6 * time.Minute)
	if counts.broken != 0 {
		t.Errorf("%d broken promises of pods that name none", counts.broken)
	}
	before := counts.slowdowns.number
	w.promise(0, "1.3")
	w.run(6 * time.Minute)
	s := &counts.slowdowns
	near(t, "mean slowdown", s.sum/float64(s.number), (1.5+1.2)/2, .05)
	if s.number <= before || s.buckets[1.3] != s.number/2 || s.buckets[1] != 0 || s.buckets[2] != s.number {
		t.Errorf("slowdowns %d, by bucket %v: want half of them up to 1.3 and all of them up to 2", s.number, s.buckets)
	}
	if counts.broken != (s.number-before)/2 {
		t.Errorf("%d broken promises in %d measurements of two pods: want those of one", counts.broken, s.number-before)
	}
}
