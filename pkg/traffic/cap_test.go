package traffic

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

// wanted returns the replicas of a fleet, and takes what they are worth.
func wanted(f *Fleet) (replicas []int, worth int64) {
	for i := range f.Variants {
		replicas = append(replicas, f.Variants[i].Wanted)
	}
	return replicas, f.Takes(make([]int, len(replicas)), replicas)
}

// Fleets under one cap decide in turn, as the controller has them: together they never have more than the cap, unless they had it before, and nothing
// leaves for it. The needs to come, for which elastic jobs give GPUs back, are no more than what was left: what comes now goes before them.
func TestPropertyCap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loops := make([]*loop, rapid.IntRange(1, 3).Draw(t, "fleets"))
		for k := range loops {
			f := twoGPUs()
			for i := range f.Variants {
				f.Variants[i].Worth = int64(rapid.SampledFrom([]int{100, 500, 1000, 2000}).Draw(t, "worth"))
				f.Variants[i].Wanted = rapid.IntRange(f.Variants[i].Least, 5).Draw(t, "wanted")
				f.Variants[i].Least = rapid.IntRange(0, 8).Draw(t, "least")
			}
			loops[k] = newLoop(f)
		}
		bound := rapid.Int64Range(0, 30_000).Draw(t, "cap")
		for range rapid.IntRange(1, 30).Draw(t, "passes") {
			before, later := int64(0), int64(0)
			for _, l := range loops {
				_, worth := wanted(&l.fleet)
				before += worth
			}
			most := max(bound, before)
			sum := before
			for _, l := range loops {
				l.left = &Left{Now: bound - sum, Later: bound - sum - later}
				from, _ := wanted(&l.fleet)
				must.OK(t, l.step(rapid.Float64Range(0, 400).Draw(t, "rate")))
				to := l.sizes()
				sum += l.fleet.Takes(from, to)
				needs := int64(0)
				for _, n := range l.plan.Later {
					needs = max(needs, l.fleet.Takes(to, n.Replicas))
				}
				later += needs
				for i := range to {
					l.fleet.Variants[i].Wanted = to[i]
				}
			}
			if sum > most || later > max(0, bound-before) {
				t.Fatalf("the fleets had %d and have %d, and need %d later; the cap is %d", before, sum, later, bound)
			}
		}
	})
}

// A cap that is not reached changes nothing, and one that was lowered takes nothing away.
func TestPropertyLooseCap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLoop(twoGPUs())
		for i := range l.fleet.Variants {
			l.fleet.Variants[i].Worth = 1000
		}
		for range rapid.IntRange(1, 40).Draw(t, "decisions") {
			must.OK(t, l.step(rapid.Float64Range(0, 400).Draw(t, "rate")))
		}
		seen := Seen{At: l.now.Add(l.every), Rate: rapid.Float64Range(0, 400).Draw(t, "last rate")}
		free, m1, err := Decide(&l.fleet, seen, l.memory, Config{})
		must.OK(t, err)
		loose, m2, err := Decide(&l.fleet, seen, l.memory, Config{Left: &Left{1e9, 1e9}})
		must.OK(t, err)
		if diff := cmp.Diff(free, loose) + cmp.Diff(m1, m2); diff != "" {
			t.Fatal(diff)
		}
		tight, _, err := Decide(&l.fleet, seen, l.memory, Config{Left: &Left{-5000, -9000}})
		must.OK(t, err)
		for i, s := range tight.Variants {
			if now := l.fleet.Variants[i].Wanted; s.Replicas != min(now, free.Variants[i].Replicas) && s.Replicas != max(now, l.fleet.Variants[i].Least) {
				t.Fatalf("%s has %d replicas, would have %d, and has %d under a cap of less than it has", l.fleet.Variants[i].Name, now, free.Variants[i].Replicas, s.Replicas)
			}
		}
	})
}

// 300 requests a second are six a100, and 4 GPUs are left beside the one that it has: the fleet has five, says why, and needs nothing later.
func TestCapped(t *testing.T) {
	f := twoGPUs()
	f.Variants = f.Variants[:1]
	f.Variants[0].Worth = 1000
	l := newLoop(f)
	for range 32 {
		have := int64(len(l.starts[0]))
		l.left = &Left{Now: 5000 - 1000*have, Later: 5000 - 1000*have}
		must.OK(t, l.step(300))
	}
	if got := l.sizes(); got[0] != 5 || l.plan.Reason != Capped || l.plan.Capacity > 5*46 {
		t.Errorf("%v, %s, capacity %v", got, l.plan.Reason, l.plan.Capacity)
	}
	for _, n := range l.plan.Later {
		if n.Replicas[0] > 5 {
			t.Errorf("%d replicas are needed in %v", n.Replicas[0], n.In)
		}
	}
}
