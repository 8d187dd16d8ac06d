package placement_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// units is a rate or a price in millionths.
const units = 1_000_000

// point is a throughput in units.
func point(profile, model string, share vgpu.MilliGPU, rate placement.Rate) placement.Throughput {
	return placement.Throughput{Profile: profile, Model: model, Share: share, Rate: rate * units}
}

// unlike is a table of two workloads: bert does three times as much on an A100 as on a T4, which costs a seventh; net does
// ten times as much, and only it was measured on parts and on two devices.
func unlike(t *testing.T) *placement.Rates {
	t.Helper()
	rates, err := placement.NewRates([]placement.Throughput{
		point("half", "A100", 255, 40), point("same", "V100", 1000, 300), point("same", "T4", 1000, 100), point("bert", "A100", 1000, 300), point("bert", "T4", 1000, 100),
		point("net", "A100", 2000, 900), point("net", "A100", 1000, 600), point("net", "A100", 500, 400), point("net", "T4", 1000, 60),
	}, map[string]int64{"A100": 7 * units, "T4": 1 * units, "V100": 3 * units})
	must.OK(t, err)
	return rates
}

func TestRatesShare(t *testing.T) {
	tests := []struct {
		profile, model string
		want           placement.Rate
		share          vgpu.MilliGPU
		ok             bool
	}{
		{"bert", "A100", 300 * units, 1000, true},
		{"bert", "A100", 300*units + 1, 0, false},
		{"bert", "T4", 50 * units, 500, true},
		{"bert", "T4", 50*units + 1, 501, true}, // a millionth more takes a thousandth more
		{"bert", "T4", 1, 1, true},
		// From (0, 0) to (500, 400): 200 takes 250. From (500, 400) to (1000, 600): 500 takes 750.
		{"net", "A100", 200 * units, 250, true},
		{"net", "A100", 400 * units, 500, true},
		{"net", "A100", 500 * units, 750, true},
		{"net", "A100", 600 * units, 1000, true},
		{"net", "A100", 750 * units, 1500, true},
		{"net", "V100", 1, 0, false},
		{"none", "T4", 1, 0, false},
	}
	rates := unlike(t)
	for _, tc := range tests {
		t.Run(fmt.Sprintf("%s %v on %s", tc.profile, tc.want, tc.model), func(t *testing.T) {
			share, ok := rates.Share(tc.profile, tc.model, tc.want)
			if share != tc.share || ok != tc.ok {
				t.Errorf("share %d, %v; want %d, %v", share, ok, tc.share, tc.ok)
			}
		})
	}
	if _, ok := (*placement.Rates)(nil).Share("bert", "T4", 1); ok {
		t.Error("nil knows a workload")
	}
	if (*placement.Rates)(nil).Knows("bert") || rates.Knows("none") || !rates.Knows("bert") || !rates.Knows("net") {
		t.Error("known are not just bert and net")
	}
}

// TestRatesShareProperty: on any curve the share is the least on which the curve reaches the rate.
func TestRatesShareProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []placement.Throughput
		share, rate := vgpu.MilliGPU(0), placement.Rate(0)
		for range rapid.IntRange(1, 4).Draw(t, "points") {
			share += vgpu.MilliGPU(rapid.IntRange(1, 400).Draw(t, "share"))
			rate += placement.Rate(rapid.Int64Range(0, 1<<rapid.IntRange(1, 57).Draw(t, "bits")).Draw(t, "rate"))
			rate = max(rate, 1)
			points = append(points, placement.Throughput{Profile: "p", Model: "m", Share: share, Rate: rate})
		}
		rates, err := placement.NewRates(rapid.Permutation(points).Draw(t, "order"), map[string]int64{"m": 1})
		must.OK(t, err)
		want := placement.Rate(rapid.Int64Range(1, int64(rate)).Draw(t, "want"))
		least := vgpu.MilliGPU(1)
		for below(points, least, want) {
			least++
		}
		got, ok := rates.Share("p", "m", want)
		if got != least || !ok {
			t.Fatalf("%+v: %d takes %d, %v; the least share is %d", points, want, got, ok, least)
		}
		if at := rates.At("p", "m", got); at < want {
			t.Fatalf("%+v: at share %d the rate is %d, below %d", points, got, at, want)
		}
		if at := rates.At("p", "m", got-1); at >= want {
			t.Fatalf("%+v: at share %d the rate is %d, at least %d", points, got-1, at, want)
		}
	})
}

// below reports whether the curve is below a rate at a share, by exact fractions.
func below(points []placement.Throughput, share vgpu.MilliGPU, want placement.Rate) bool {
	var from placement.Throughput
	for _, to := range points {
		if share <= to.Share {
			rate := big.NewRat(int64(share-from.Share), int64(to.Share-from.Share))
			rate.Mul(rate, new(big.Rat).SetInt64(int64(to.Rate-from.Rate)))
			rate.Add(rate, new(big.Rat).SetInt64(int64(from.Rate)))
			return rate.Cmp(new(big.Rat).SetInt64(int64(want))) < 0
		}
		from = to
	}
	return true
}

func TestRatesVariants(t *testing.T) {
	a100, t4 := offer(testkit.A100, 8), offer(testkit.T4, 4)
	t4in10 := offer(testkit.T4, 1)
	t4in10.Device.Slots = 10
	tests := []struct {
		name   string
		wanted placement.Wanted
		offers []vgpu.Offer
		want   []vgpu.Variant
		why    string
	}{
		{
			// 30 of 300 are 1 of 10 slots at 0.70; 30 of 100 are 0.3, 2 of 4 slots at 0.50.
			name: "rounding up to slots counts", wanted: placement.Wanted{Profile: "bert", Rate: 30 * units, Least: 1}, offers: []vgpu.Offer{a100, t4},
			want: []vgpu.Variant{{Model: "T4", Compute: 300, Cost: 500000}, {Model: "A100", Compute: 100, Cost: 700000}},
		},
		{
			// 15 of 300 are 5 %, 1 of 10 slots; 15 of 100 are 1 of 4 slots. As one slot of an A100 they cost 0.70, not 0.35.
			name: "a slot is paid whole", wanted: placement.Wanted{Profile: "bert", Rate: 15 * units, Least: 1}, offers: []vgpu.Offer{a100, t4},
			want: []vgpu.Variant{{Model: "T4", Compute: 150, Cost: 250000}, {Model: "A100", Compute: 50, Cost: 700000}},
		},
		{
			// A tenth of the A100 does what a T4 does: 0.70 against 1.
			name: "the dearer model is the cheaper share", wanted: placement.Wanted{Profile: "net", Rate: 60 * units, Least: 1}, offers: []vgpu.Offer{a100, t4},
			want: []vgpu.Variant{{Model: "A100", Compute: 75, Cost: 700000}, {Model: "T4", Compute: 1000, Cost: units}},
		},
		{
			name: "a model that does not reach the rate is left out", wanted: placement.Wanted{Profile: "bert", Rate: 101 * units, Least: 1}, offers: []vgpu.Offer{a100, t4},
			want: []vgpu.Variant{{Model: "A100", Compute: 337, Cost: 2800000}},
		},
		{
			name: "the slots asked for are paid too", wanted: placement.Wanted{Profile: "bert", Rate: 15 * units, Least: 3}, offers: []vgpu.Offer{a100, t4},
			want: []vgpu.Variant{{Model: "T4", Compute: 150, Cost: 750000}, {Model: "A100", Compute: 50, Cost: 2100000}},
		},
		{
			// 2 of 4 slots of a T4 are 0.50, 3 of 10 are 0.30.
			name: "unlike slots of one model: the highest cost", wanted: placement.Wanted{Profile: "bert", Rate: 30 * units, Least: 1}, offers: []vgpu.Offer{t4in10, t4},
			want: []vgpu.Variant{{Model: "T4", Compute: 300, Cost: 500000}},
		},
		{
			name: "whole devices", wanted: placement.Wanted{Profile: "net", Rate: 601 * units, Least: 1}, offers: []vgpu.Offer{a100},
			want: []vgpu.Variant{{Model: "A100", Compute: 1004, Cost: 14 * units}},
		},
		{
			name: "no devices are known yet", wanted: placement.Wanted{Profile: "bert", Rate: 30 * units, Least: 1},
			want: []vgpu.Variant{{Model: "T4", Compute: 300, Cost: 300000}, {Model: "A100", Compute: 100, Cost: 700000}},
		},
		{
			name: "equal costs: by name", wanted: placement.Wanted{Profile: "same", Rate: 30 * units, Least: 1},
			want: []vgpu.Variant{{Model: "T4", Compute: 300, Cost: 300000}, {Model: "V100", Compute: 100, Cost: 300000}},
		},
		{
			name: "only the models that the pod allows", wanted: placement.Wanted{Profile: "bert", Rate: 30 * units, Least: 1, Models: []string{"A100", "H100"}}, offers: []vgpu.Offer{a100, t4},
			want: []vgpu.Variant{{Model: "A100", Compute: 100, Cost: 700000}},
		},
		{
			name: "too much for all", wanted: placement.Wanted{Profile: "bert", Rate: 300*units + 500000, Least: 1}, offers: []vgpu.Offer{a100, t4},
			why: "profile bert reaches at most 300 (on a whole A100), the pod asks for 300.5",
		},
		{
			name: "no node has two devices", wanted: placement.Wanted{Profile: "net", Rate: 601 * units, Least: 1}, offers: []vgpu.Offer{offer(testkit.A100, 1)},
			why: "profile net reaches at most 600 (on a whole A100), the pod asks for 601",
		},
		{
			name: "too much for two devices", wanted: placement.Wanted{Profile: "net", Rate: 901 * units, Least: 1}, offers: []vgpu.Offer{a100},
			why: "profile net reaches at most 900 (on 2 whole A100), the pod asks for 901",
		},
		{
			name: "too much for the only part that was measured", wanted: placement.Wanted{Profile: "half", Rate: 41 * units, Least: 1}, offers: []vgpu.Offer{a100},
			why: "profile half reaches at most 40 (on 25.5 percent of one A100), the pod asks for 41",
		},
		{
			name: "too much for what the pod allows", wanted: placement.Wanted{Profile: "bert", Rate: 101 * units, Least: 1, Models: []string{"T4"}}, offers: []vgpu.Offer{a100, t4},
			why: "profile bert reaches at most 100 (on a whole T4), the pod asks for 101",
		},
		{
			name: "unknown profile", wanted: placement.Wanted{Profile: "gpt", Rate: 1, Least: 1}, offers: []vgpu.Offer{a100, t4},
			why: `profile "gpt" has no throughputs; profiles with throughputs are bert, half, net, same`,
		},
		{
			name: "no model that is known", wanted: placement.Wanted{Profile: "bert", Rate: 1, Least: 1}, offers: []vgpu.Offer{offer(testkit.V100, 1), offer(testkit.H100, 1)},
			why: "profile bert has throughputs for A100, T4; the cluster has H100, V100",
		},
		{
			name: "no model that is known and allowed", wanted: placement.Wanted{Profile: "bert", Rate: 1, Least: 1, Models: []string{"H100", "V100"}}, offers: []vgpu.Offer{a100},
			why: "profile bert has throughputs for A100, T4; the pod may only use H100 or V100; the cluster has A100",
		},
	}
	rates := unlike(t)
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, miss := rates.Variants(tc.wanted, tc.offers)
			why := ""
			if miss != nil {
				why = miss.String()
			}
			if diff := cmp.Diff(tc.why, why); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("variants (-want +got):\n%s", diff)
			}
			if r := onModels(tc.wanted.Least, got...); r.Validate() != nil {
				t.Errorf("the variants are illegal: %v", r.Validate())
			}
		})
	}
	_, miss := (*placement.Rates)(nil).Variants(placement.Wanted{Profile: "bert", Rate: 1, Least: 1}, nil)
	if want := `profile "bert" has no throughputs; profiles with throughputs are none`; miss.String() != want {
		t.Errorf("nil says %q, want %q", miss, want)
	}
}

func offer(m testkit.Model, most int) vgpu.Offer {
	return vgpu.Offer{Device: vgpu.Device{Model: m.Name, Slots: m.Slots, Memory: m.Memory}, Most: most}
}

func TestNewRatesRefuses(t *testing.T) {
	prices := map[string]int64{"A100": 1, "T4": 0, "V100": placement.MaxPrice + 1}
	tests := []struct {
		name   string
		points []placement.Throughput
		want   string
	}{
		{"no profile", []placement.Throughput{{Model: "A100", Share: 1, Rate: 1}}, `profile "" on model "A100" at 0.1%: it names no profile or no model`},
		{"no model", []placement.Throughput{{Profile: "p", Share: 1, Rate: 1}}, "it names no profile or no model"},
		{"no share", []placement.Throughput{{Profile: "p", Model: "A100", Rate: 1}}, "the share must be from 0.1% to 12800%"},
		{"too large a share", []placement.Throughput{{Profile: "p", Model: "A100", Share: 128001, Rate: 1}}, "the share must be from 0.1% to 12800%"},
		{"no rate", []placement.Throughput{{Profile: "p", Model: "A100", Share: 1}}, "rate 0 must be from 0.000001 to 1000000000000"},
		{"too high a rate", []placement.Throughput{{Profile: "p", Model: "A100", Share: 1, Rate: placement.MaxRate + 1}}, "rate 1000000000000.000001 must be"},
		{"no price", []placement.Throughput{{Profile: "p", Model: "K80", Share: 1, Rate: 1}}, "the model has no price"},
		{"price 0", []placement.Throughput{{Profile: "p", Model: "T4", Share: 1, Rate: 1}}, "the price 0 of the model must be from 1 to 1000000000000"},
		{"too high a price", []placement.Throughput{{Profile: "p", Model: "V100", Share: 1, Rate: 1}}, "the price 1000000000001 of the model must be"},
		{"a share twice", []placement.Throughput{point("p", "A100", 9, 1), point("p", "A100", 9, 1)}, "at 0.9%: rate 1 follows rate 1 at 0.9%"},
		{"a curve that falls", []placement.Throughput{point("p", "A100", 1000, 1), point("p", "A100", 9, 2)}, "at 100%: rate 1 follows rate 2 at 0.9%"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := placement.NewRates(tc.points, prices); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestRatesVariantsProperty: the variants are all models that reach the rate, each with the least share, and its cost is
// that of the slots which Assign gives on an empty node of that model; the cheapest comes first.
func TestRatesVariantsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prices := map[string]int64{}
		var points []placement.Throughput
		var offers []vgpu.Offer
		for _, m := range testkit.RandomModels {
			prices[m.Name] = rapid.Int64Range(1, 20).Draw(t, "price")
			points = append(points, placement.Throughput{
				Profile: "p", Model: m.Name, Share: vgpu.MilliGPU(rapid.SampledFrom([]int{500, 1000, 2000}).Draw(t, "share")),
				Rate: placement.Rate(rapid.IntRange(1, 100).Draw(t, "rate")),
			})
			offers = append(offers, offer(m, 2))
		}
		rates, err := placement.NewRates(points, prices)
		must.OK(t, err)
		w := placement.Wanted{Profile: "p", Rate: placement.Rate(rapid.IntRange(1, 100).Draw(t, "want")), Least: vgpu.Slots(rapid.IntRange(1, 4).Draw(t, "least"))}
		variants, miss := rates.Variants(w, offers)
		want := 0
		for i, p := range points {
			if p.Rate >= w.Rate {
				want++
				paysForSlots(t, testkit.RandomModels[i], prices, w.Least, variants)
			}
		}
		if len(variants) != want || (miss == nil) != (want > 0) {
			t.Fatalf("%d variants (%v), %d models reach the rate", len(variants), miss, want)
		}
		for i := 1; i < len(variants); i++ {
			if variants[i].Cost < variants[i-1].Cost {
				t.Fatalf("%+v are not in the order of costs", variants)
			}
		}
	})
}

func paysForSlots(t *rapid.T, m testkit.Model, prices map[string]int64, least vgpu.Slots, variants []vgpu.Variant) {
	n, err := vgpu.NewNode("n1", m.Devices("n1", 2))
	must.OK(t, err)
	r := onModels(least, variants...)
	a, refusal := placement.Assign(n, r, placement.Policy{})
	if refusal != nil {
		t.Fatalf("%s: %v", m.Name, refusal)
	}
	slots := int64(a.Containers[0].Share.Slots) * int64(len(a.Containers[0].Devices))
	if cost := (prices[m.Name]*slots + int64(m.Slots) - 1) / int64(m.Slots); r.Cost(m.Name) != cost {
		t.Fatalf("%s costs %d for %d slots, want %d", m.Name, r.Cost(m.Name), slots, cost)
	}
}
