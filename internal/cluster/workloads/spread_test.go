package workloads

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// spreadOf returns entries of keys and slowdowns in turn.
func spreadOf(pairs ...string) []v1alpha1.ProfileSpread {
	var list []v1alpha1.ProfileSpread
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, v1alpha1.ProfileSpread{TopologyKey: pairs[i], Slowdown: intstr.FromString(pairs[i+1])})
	}
	return list
}

func lossesOf(list []v1alpha1.ProfileSpread) *Workload {
	return ReadProfile(profileOf(v1alpha1.WorkloadProfileSpec{Spread: list}))
}

func TestLosses(t *testing.T) {
	tests := []struct {
		name string
		list []v1alpha1.ProfileSpread
		want []gang.Loss
	}{
		{"nothing", nil, nil},
		{"by level", spreadOf("topology.kubernetes.io/zone", "10", "nvlink", "1", "kubernetes.io/hostname", "1.02"), []gang.Loss{
			{Level: "kubernetes.io/hostname", Part: 20}, // 1 − 1/1.02 = 0.0196
			{Level: "nvlink", Part: 0},
			{Level: "topology.kubernetes.io/zone", Part: 900},
		}},
		{"a number", []v1alpha1.ProfileSpread{{TopologyKey: "rack", Slowdown: intstr.FromInt32(2)}}, []gang.Loss{{Level: "rack", Part: 500}}},
		{"the least that is no nothing", spreadOf("rack", "1.001"), []gang.Loss{{Level: "rack", Part: 1}}},
		{"rounded down", spreadOf("rack", "1.5"), []gang.Loss{{Level: "rack", Part: 333}}},
		{"rounded up", spreadOf("rack", "3.000"), []gang.Loss{{Level: "rack", Part: 667}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := lossesOf(test.list)
			if diff := cmp.Diff(test.want, w.Losses()); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
			if len(w.Malformed) > 0 {
				t.Errorf("malformed: %v", w.Malformed)
			}
			if diff := cmp.Diff(test.want, w.With(nil).Losses()); diff != "" {
				t.Errorf("losses beside other things learned (-want +got):\n%s", diff)
			}
		})
	}
}

// An illegal entry is passed over and named; the one before it and the one after it count.
func TestSpreadPassesOver(t *testing.T) {
	const key, number = "it must be the key of a node label or nvlink, and no other entry may have it",
		"it must be a decimal from 1 to 10 with up to three decimals, for example 1.02: time spread ÷ time together"
	long := strings.Repeat("a", 254) + "/rack"
	for want, entry := range map[string][]v1alpha1.ProfileSpread{
		`spec.spread[1].topologyKey: "" is not legal, ` + key:            spreadOf("", "1.1"),
		`spec.spread[1].topologyKey: "a b" is not legal, ` + key:         spreadOf("a b", "1.1"),
		`spec.spread[1].topologyKey: "first" is not legal, ` + key:       spreadOf("first", "1.1"),
		`spec.spread[1].topologyKey: "` + strings.Repeat("a", 64) + `…"`: spreadOf(long, "1.1"),
		`spec.spread[1].slowdown: "0.999" is not legal, ` + number:       spreadOf("rack", "0.999"),
		`spec.spread[1].slowdown: "10.001" is not legal, ` + number:      spreadOf("rack", "10.001"),
		`spec.spread[1].slowdown: "1.0001" is not legal, ` + number:      spreadOf("rack", "1.0001"),
		`spec.spread[1].slowdown: "NaN" is not legal, ` + number:         spreadOf("rack", "NaN"),
		`spec.spread[1].slowdown: "" is not legal, ` + number:            spreadOf("rack", ""),
		`spec.spread[1].slowdown: "11" is not legal, ` + number:          {{TopologyKey: "rack", Slowdown: intstr.FromInt32(11)}},
		`spec.spread[1].slowdown: "0" is not legal, ` + number:           {{TopologyKey: "rack"}},
	} {
		list := append(spreadOf("first", "1.5"), entry...)
		w := lossesOf(append(list, spreadOf("last", "1")...))
		if len(w.Malformed) != 1 || !strings.HasPrefix(w.Malformed[0], want) {
			t.Errorf("malformed %q, want %q", w.Malformed, want)
		}
		if diff := cmp.Diff([]gang.Loss{{Level: "first", Part: 333}, {Level: "last"}}, w.Losses()); diff != "" {
			t.Errorf("%s: the others (-want +got):\n%s", want, diff)
		}
	}
}

func TestTooManySpreads(t *testing.T) {
	var list []v1alpha1.ProfileSpread
	for i := range config.MaxLevels + 1 {
		list = append(list, spreadOf(fmt.Sprint("level", i), "1.1")...)
	}
	if w := lossesOf(list[:config.MaxLevels]); len(w.Losses()) != config.MaxLevels || len(w.Malformed) > 0 {
		t.Errorf("%d losses, malformed %v", len(w.Losses()), w.Malformed)
	}
	w := lossesOf(list)
	if len(w.Losses()) != config.MaxLevels {
		t.Errorf("%d losses, want the first %d", len(w.Losses()), config.MaxLevels)
	}
	if want := `spec.spread[8].topologyKey: "level8" is not legal, there must be at most 8 entries`; len(w.Malformed) != 1 || w.Malformed[0] != want {
		t.Errorf("malformed %q, want %q", w.Malformed, want)
	}
}

// For any profile, core gets losses that it takes, and every entry counts or is named.
func TestSpreadProperty(t *testing.T) {
	keys := rapid.OneOf(rapid.SampledFrom([]string{"nvlink", "kubernetes.io/hostname", "rack", ""}), rapid.String())
	slowdowns := rapid.OneOf(
		rapid.Map(rapid.Int64Range(990, 10010), func(milli int64) string { return fmt.Sprintf("%d.%03d", milli/1000, milli%1000) }),
		rapid.StringMatching(`[0-9.]{0,6}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		list := make([]v1alpha1.ProfileSpread, rapid.IntRange(0, 10).Draw(t, "entries"))
		for i := range list {
			list[i].TopologyKey, list[i].Slowdown = keys.Draw(t, "key"), intstr.FromString(slowdowns.Draw(t, "slowdown"))
		}
		w := lossesOf(list)
		if len(w.Losses())+len(w.Malformed) != len(list) {
			t.Fatalf("%d losses and %q of %d entries", len(w.Losses()), w.Malformed, len(list))
		}
		g := &gang.Group{Name: "ns/gang", Members: []gang.Member{{Request: vgpu.Request{UID: "a", Pod: "ns/a"}}}, MinCount: 1, Losses: w.Losses()}
		if _, err := gang.Place(&gang.Cluster{}, g, gang.Config{}); err != nil {
			t.Fatalf("core refuses %v: %v", w.Losses(), err)
		}
	})
}

// The part that is lost is 1 − 1/slowdown to the nearest thousandth, for each legal slowdown.
func TestLostBy(t *testing.T) {
	before := vgpu.MilliGPU(0)
	for milli := int64(1000); milli <= 10000; milli++ {
		got := lostBy(milli)
		if exact := 1000 - 1e6/float64(milli); math.Abs(float64(got)-exact) > .5+1e-9 || got < before || got == 0 && milli > 1000 {
			t.Fatalf("a slowdown of %d thousandths loses %d, the last %d, exact is %v", milli, got, before, exact)
		}
		before = got
	}
}
