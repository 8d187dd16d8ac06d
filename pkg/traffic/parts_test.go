package traffic

import (
	"testing"
	"time"
)

// Four t4s that are half as fast as declared keep no promise of 600 ms: a p99 takes 921 ms alone. They get nothing as long as what arrives is
// what the a100 serves within the promise (0.57 s, 41.9 a second), also while more is expected. 60 a second would be too much for it: the
// rest goes where there is room, in proportion to 8.1 and to 20 a second.
func TestSlowVariantGetsOnlyWhatOthersCannotServe(t *testing.T) {
	for _, x := range []struct{ rate, want float64 }{{40, 0}, {60, 18.1 * 20 / 28.1 / 60}} {
		f, m := serving(1, 4, 1), &Memory{Variants: map[string]*VariantMemory{"t4": Learn(2)}}
		f.Promise.Within = 600 * time.Millisecond
		f.Variants[0].Most, f.Variants[1].Most = 1, 4
		p, _ := decided(t, &f, Seen{At: midnight, Rate: x.rate}, m)
		near(t, "the part of the t4s", p.Variants[1].Part, x.want, .01)
	}
}

// A variant with replicas that was slow for a while gets no requests then, and gets its part again hours after it is as fast as declared.
func TestSlowVariantIsTriedAgain(t *testing.T) {
	f := twoGPUs()
	f.Promise.Within = 600 * time.Millisecond
	f.Variants[1].Wanted, f.Variants[1].Least = 4, 4
	f.Variants[0].Wanted, f.Variants[0].Least = 3, 3
	l := newLoop(f)
	l.slower[1] = 2
	l.run(t, time.Hour, always(60))
	if s := l.plan.Variants[1]; s.Part != 0 || s.Capacity != 0 {
		t.Fatalf("a variant that keeps no promise has %+v", s)
	}
	l.slower[1] = 1
	l.run(t, 6*time.Hour, always(60))
	if s := l.plan.Variants[1]; s.Part < .05 || s.Slowdown > 1.2 {
		t.Errorf("hours after it is as fast as declared it has %+v", s)
	}
}
