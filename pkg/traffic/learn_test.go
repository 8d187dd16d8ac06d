package traffic

import (
	"math"
	"testing"
	"time"
)

// A slow variant without requests is not slow for ever: its learned slowdown is half forgotten after 35 minutes. Nothing is forgotten while it
// gets requests, while it has a part but metrics do not say whether it gets any, and while the fleet has none for any variant.
func TestSlowdownIsForgotten(t *testing.T) {
	for name, x := range map[string]struct {
		replicas             int
		part, arrivals, rate float64
		want                 float64
	}{
		"no replica":                     {0, 0, 0, 20, 2},
		"no replica, no requests":        {0, 0, 0, 0, 2},
		"no part":                        {1, 0, 0, 20, 2},
		"no part, metrics without it":    {1, 0, math.NaN(), 20, 2},
		"a part, and nothing arrives":    {1, .01, 0, 20, 2},
		"requests":                       {1, .1, 2, 20, 3},
		"requests, although no part now": {1, 0, 2, 20, 3},
		"a part, metrics without it":     {1, .1, math.NaN(), 20, 3},
		"a fleet without requests":       {1, .1, 0, 0, 3},
	} {
		f, m := twoGPUs(), &Memory{Variants: map[string]*VariantMemory{"t4": Learn(3)}}
		v := &f.Variants[1]
		v.Wanted, v.Ready, v.Least, v.Part, v.Measured.Arrivals = x.replicas, x.replicas, x.replicas, x.part, x.arrivals
		for i := range 4 * 35 { // several decisions in a minute count once
			p, next, err := Decide(&f, Seen{At: midnight.Add(time.Duration(i) * 15 * time.Second), Rate: x.rate}, m, Config{})
			if err != nil {
				t.Fatal(err)
			}
			if m = next; i == 4*35-1 && math.Abs(p.Variants[1].Slowdown-x.want) > .05 {
				t.Errorf("%s: the slowdown is %v after 35 minutes, not %v", name, p.Variants[1].Slowdown, x.want)
			}
		}
	}
}

// A level that rose for two measurements and was then again what it had been takes twice as much to rise the next time, for a day of minutes.
func TestLevelDoubts(t *testing.T) {
	measured := func(l *Level, x float64, times int) (changes int) {
		for range times {
			if l.Observe(x) {
				changes++
			}
		}
		return changes
	}
	var l Level
	measured(&l, 0, 60)
	if n := measured(&l, 1, 2); n != 1 {
		t.Fatalf("%d changes by two high measurements, want 1", n)
	}
	measured(&l, 0, 59)
	if n := measured(&l, 1, 2); n != 0 || l.Doubt != 1 {
		t.Errorf("two high measurements again change it, doubt %d", l.Doubt)
	}
	if n := measured(&l, 1, 4); n != 1 {
		t.Errorf("%d changes by six high measurements in a row, want 1", n)
	}
	measured(&l, 1, 60)
	measured(&l, 1, forgetDoubt)
	if l.Doubt != 0 {
		t.Errorf("after a calm day the doubt is %d", l.Doubt)
	}
}

// The queue of an overload counts from its begin, although the requests that are answered meanwhile came before it, and is forgotten when the latency is
// as promised and fewer requests come than are served.
func TestQueueOfAnOverload(t *testing.T) {
	v, m := Variant{Replica: single(2), Ready: 1}, &VariantMemory{}
	for minute := range int64(3) {
		v.Measured = Measured{Arrivals: 7, Latency: time.Second}
		if m.fill(&v, 2*time.Second, 60*minute+60, 60); m.Queue < float64(60*5*minute) {
			t.Errorf("after %d minutes %v requests wait, want %d", minute, m.Queue, 60*5*minute)
		}
	}
	for at, x := range map[int64]struct {
		latency time.Duration
		drains  bool
	}{240: {time.Minute, true}, 300: {time.Second, false}} {
		m := *m
		v.Ready, v.Measured = 5, Measured{Arrivals: 1.5, Latency: x.latency}
		if m.fill(&v, 2*time.Second, at, 60); (m.Queue > 0) != x.drains {
			t.Errorf("with a latency of %v %v requests wait", x.latency, m.Queue)
		}
	}
}

// Replicas that serve more than they are declared to, within the promise, have no queue. It is learned that they are faster.
func TestFasterThanDeclared(t *testing.T) {
	f, m := twoGPUs(), &Memory{}
	f.Variants = f.Variants[:1]
	v := &f.Variants[0]
	v.Wanted, v.Ready, v.Warm, v.Part, v.Most = 1, 1, 1, 1, 1
	v.Measured = Measured{Arrivals: 60, Latency: 100 * time.Millisecond, Quantile: .99} // 50 are declared
	for i := range 40 {
		p, next, err := Decide(&f, Seen{At: midnight.Add(time.Duration(i) * time.Minute), Rate: 60, Latency: v.Measured.Latency}, m, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if m = next; i == 39 && p.Variants[0].Slowdown > .7 {
			t.Errorf("the slowdown is %v, the queue %v", p.Variants[0].Slowdown, m.Variants["a100"].Queue)
		}
	}
}

// Near the edge of a promise a little slowness, and the part of the promise that is kept for noise, leave about two thirds of what a replica is declared to serve.
func TestCapacityAtTheEdgeOfAPromise(t *testing.T) {
	f := twoGPUs()
	f.Promise.Within, f.Variants = 6400*time.Millisecond, f.Variants[:1]
	f.Variants[0].Replica = Replica{Rate: 3, Time: 2 * time.Second, Variation: .3}
	declared := f.Variants[0].Replica.Capacity(f.Promise)
	for _, slowdown := range []float64{1, 1.02, 1.04} {
		p, _, err := Decide(&f, Seen{At: midnight, Rate: 1}, &Memory{Variants: map[string]*VariantMemory{"a100": Learn(slowdown)}}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Variants[0].Capacity; got < .64*declared || got > declared {
			t.Errorf("slower by %v it serves %v, declared are %v", slowdown, got, declared)
		}
	}
}
