package fragmentation_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func learned(t fataler, c *fragmentation.Counter, now int64) *fragmentation.Mix {
	t.Helper()
	m, err := c.Mix(now)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCounter: a pod counts 2^20, half of that eight steps later, and an eighth of a half-life less by the eighth root.
func TestCounter(t *testing.T) {
	const now = 100
	tests := []struct {
		name string
		step int64
		want int64
	}{
		{"now", now, 1 << 20},
		{"in the future, by a clock that is ahead", now + 3, 1 << 20},
		{"a half-life ago", now - fragmentation.StepsPerHalfLife, 1 << 19},
		{"two half-lives ago", now - 2*fragmentation.StepsPerHalfLife, 1 << 18},
		{"half of a half-life ago", now - 4, 741455},      // 2^19.5
		{"a step ago", now - 1, 961548},                   // 2^19.875
		{"nine steps ago", now - 9, 961548 / 2},           // 2^18.875
		{"seven steps ago", now - 7, 571740},              // 2^19.125
		{"after 19 half-lives and 7 steps", now - 159, 1}, // 571740 / 2^19
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var c fragmentation.Counter
			k := fragmentation.Kind{MilliCPU: 1000, Memory: vgpu.GiB, Slots: 3, Models: "A100|T4", Weight: 77}
			c.Observe("team", k, tc.step)
			k.Weight = tc.want
			if diff := cmp.Diff([]fragmentation.Kind{k}, learned(t, &c, now).Kinds()); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCounterSteps: the weights of one pod step down by the eighth root of a half, to a part in a million.
func TestCounterSteps(t *testing.T) {
	for age := range int64(3 * fragmentation.StepsPerHalfLife) {
		var c fragmentation.Counter
		c.Observe("team", fragmentation.Kind{Slots: 1}, 0)
		got := float64(learned(t, &c, age).Weight())
		if want := math.Exp2(20 - float64(age)/fragmentation.StepsPerHalfLife); math.Abs(got-want) > 1.5 {
			t.Errorf("a pod of age %d counts %v, want %v", age, got, want)
		}
	}
}

// TestCounterDropsOldKinds: after 20 half-lives a pod does not count, and does not come back when the clock goes back.
func TestCounterDropsOldKinds(t *testing.T) {
	const end = 20 * fragmentation.StepsPerHalfLife
	var c fragmentation.Counter
	if m := learned(t, &c, 0); len(m.Kinds()) != 0 || m.Weight() != 0 {
		t.Errorf("an empty counter knows %v", m.Kinds())
	}
	c.Observe("team", fragmentation.Kind{Slots: 1}, 0)
	c.Observe("team", fragmentation.Kind{Slots: 1}, 1)
	if m := learned(t, &c, end-1); m.Weight() != 2 { // 571740 and 623487, halved 19 times
		t.Errorf("weight %d before the end, want 2", m.Weight())
	}
	if m := learned(t, &c, end); m.Weight() != 1 {
		t.Errorf("weight %d at the end of the first, want 1", m.Weight())
	}
	if m := learned(t, &c, 0); m.Weight() != 1<<20 {
		t.Errorf("weight %d after it is forgotten, want that of the second", m.Weight())
	}
	if m := learned(t, &c, end+1); len(m.Kinds()) != 0 {
		t.Errorf("after the end of both: %v", m.Kinds())
	}
}

// TestCounterProperty: the order of pods does not matter, what was asked before does not, and pods of one step are as
// frequent in the mix as they came.
func TestCounterProperty(t *testing.T) {
	type pod struct {
		owner string
		kind  fragmentation.Kind
		step  int64
	}
	rapid.Check(t, func(t *rapid.T) {
		kinds := []fragmentation.Kind{testkit.RandomKind(t), testkit.RandomKind(t), testkit.RandomKind(t)}
		var pods []pod
		for range rapid.IntRange(1, 12).Draw(t, "pods") {
			pods = append(pods, pod{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"), rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.Int64Range(0, 200).Draw(t, "step")})
		}
		var c, other, twice fragmentation.Counter
		for _, p := range pods {
			c.Observe(p.owner, p.kind, p.step)
			twice.Observe(p.owner, p.kind, p.step)
			twice.Observe(p.owner, p.kind, p.step)
		}
		for _, p := range rapid.Permutation(pods).Draw(t, "order") {
			other.Observe(p.owner, p.kind, p.step)
			learned(t, &other, rapid.Int64Range(0, 200).Draw(t, "asked before"))
		}
		now := rapid.Int64Range(200, 240).Draw(t, "now")
		m := learned(t, &c, now)
		if diff := cmp.Diff(m.Kinds(), learned(t, &other, now).Kinds()); diff != "" {
			t.Fatalf("the order changed the mix (-first +other):\n%s", diff)
		}
		if got := learned(t, &twice, now).Weight(); got != 2*m.Weight() {
			t.Fatalf("weight %d of the pods, %d of twice as many", m.Weight(), got)
		}
		later, half := learned(t, &c, now+fragmentation.StepsPerHalfLife), m.Weight()/2
		if later.Weight() > half || later.Weight() < half-int64(len(pods)) {
			t.Fatalf("weight %d, a half-life later %d", m.Weight(), later.Weight())
		}
	})
}

// TestCounterBoundsOwners: a pod of now weighs one.
func TestCounterBoundsOwners(t *testing.T) {
	type pods struct {
		owner string
		slots vgpu.Slots
		count int
	}
	tests := []struct {
		name string
		came []pods
		want map[vgpu.Slots]float64
	}{
		{"one owner is its own measure", []pods{{"a", 1, 900}, {"a", 2, 100}}, map[vgpu.Slots]float64{1: 900, 2: 100}},
		{"half of all is no more than the others", []pods{{"a", 1, 500}, {"b", 2, 300}, {"c", 3, 200}}, map[vgpu.Slots]float64{1: 500, 2: 300, 3: 200}},
		{"the example of bounded", []pods{{"a", 1, 900}, {"b", 2, 100}}, map[vgpu.Slots]float64{1: 100, 2: 100}},
		{"in proportion, and its part of a kind that others have too",
			[]pods{{"a", 1, 600}, {"a", 2, 300}, {"b", 2, 100}}, map[vgpu.Slots]float64{1: 200. / 3, 2: 100. + 100./3}},
		{"an owner of one pod does not count for half", []pods{{"a", 1, 1000}, {"b", 2, 1}}, map[vgpu.Slots]float64{1: 64, 2: 1}},
		{"pods without GPUs neither bound nor are bounded",
			[]pods{{"a", 1, 900}, {"b", 2, 100}, {"b", 0, 5000}, {"a", 0, 7000}}, map[vgpu.Slots]float64{0: 12000, 1: 100, 2: 100}},
		{"and are no company", []pods{{"a", 1, 900}, {"b", 0, 5000}}, map[vgpu.Slots]float64{0: 5000, 1: 900}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var c fragmentation.Counter
			for _, p := range tc.came {
				for range p.count {
					c.Observe(p.owner, fragmentation.Kind{Slots: p.slots}, 0)
				}
			}
			got := map[vgpu.Slots]float64{}
			for _, k := range learned(t, &c, 0).Kinds() {
				got[k.Slots] = float64(k.Weight) / (1 << 20)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateApprox(0, 1e-5)); diff != "" {
				t.Errorf("weights by slots (-want +got):\n%s", diff)
			}
		})
	}
}
