package mig

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// variant is one with a batch of 8 and one process.
func variant(size Slices, rate Rate, latency time.Duration) Variant {
	return Variant{Slices: size, Batch: 8, Processes: 1, Rate: rate, Latency: latency}
}

func sized(t *testing.T, cfg Config, demands ...Demand) *Plan {
	t.Helper()
	plan, err := Size(demands, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestLimit: of 167 ms, 450 thousandths are 75.15 ms.
func TestLimit(t *testing.T) {
	if got, want := Limit(167*time.Millisecond, 450), 75150*time.Microsecond; got != want {
		t.Errorf("limit %v, want %v", got, want)
	}
}

// TestSizeChoosesVariants: the limit of an SLO of 100 ms is 45 ms, and a variant at it is within. Among those within, the
// one with the highest rate counts, then the fastest, the smallest batch and the fewest processes.
func TestSizeChoosesVariants(t *testing.T) {
	best := Variant{Slices: 1, Batch: 8, Processes: 2, Rate: 20, Latency: 45 * time.Millisecond}
	worse := []Variant{
		{Slices: 1, Batch: 8, Processes: 2, Rate: 100, Latency: 45*time.Millisecond + 1},
		{Slices: 1, Batch: 8, Processes: 2, Rate: 19, Latency: 1},
		{Slices: 1, Batch: 16, Processes: 1, Rate: 20, Latency: 45 * time.Millisecond},
		{Slices: 1, Batch: 8, Processes: 3, Rate: 20, Latency: 45 * time.Millisecond},
		{Slices: 2, Batch: 1, Processes: 1, Rate: 20, Latency: 1}, // no more on twice the slices
	}
	for at := range len(worse) + 1 {
		variants := append([]Variant{}, worse[:at]...)
		variants = append(append(variants, best), worse[at:]...)
		plan := sized(t, Config{}, Demand{Model: "m", Rate: 21, SLO: 100 * time.Millisecond, Variants: variants})
		want := []Device{{{Model: "m", Variant: best, Start: 5}, {Model: "m", Variant: best, Start: 6}}}
		if diff := cmp.Diff(want, plan.Devices); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
	}
	faster := best
	faster.Latency--
	plan := sized(t, Config{}, Demand{Model: "m", Rate: 1, SLO: 100 * time.Millisecond, Variants: []Variant{best, faster}})
	if got := plan.Devices[0][0].Variant; got != faster {
		t.Errorf("chose %+v, want %+v", got, faster)
	}
}

// TestSizeTogether: each of three models needs one instance of four compute slices, or five of one. The large ones take
// three devices, since all of them start at 0. Two of them and five small ones take two.
func TestSizeTogether(t *testing.T) {
	var demands []Demand
	for _, name := range []string{"a", "b", "c"} {
		demands = append(demands, Demand{Model: name, Rate: 40, SLO: time.Second, Variants: []Variant{
			variant(4, 40, 1), variant(1, 8, 1),
		}})
	}
	plan := sized(t, Config{}, demands...)
	if len(plan.Devices) != 2 || plan.LowerBound != 2 || !plan.Optimal || plan.Stats.Cut {
		t.Errorf("%d devices, bound %d, optimal %v, %+v: want 2, 2 and true", len(plan.Devices), plan.LowerBound, plan.Optimal, plan.Stats)
	}
	var got []string
	for _, d := range plan.Devices {
		for _, one := range d {
			got = append(got, fmt.Sprintf("%s:%d@%d", one.Model, one.Slices, one.Start))
		}
	}
	want := []string{"a:4@0", "c:1@4", "c:1@5", "c:1@6", "b:4@0", "c:1@5", "c:1@6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	for i := range demands { // the large ones only
		demands[i].Variants = demands[i].Variants[:1]
	}
	plan = sized(t, Config{}, demands...)
	if len(plan.Devices) != 3 || plan.LowerBound != 3 || !plan.Optimal {
		t.Errorf("%d devices, bound %d, optimal %v, want 3, 3 and true", len(plan.Devices), plan.LowerBound, plan.Optimal)
	}
}

// TestSizeRefuses the models that no variant serves in time, and serves the others.
func TestSizeRefuses(t *testing.T) {
	plan := sized(t, Config{Permille: 500},
		Demand{Model: "slow", Rate: 1, SLO: 20 * time.Millisecond, Variants: []Variant{variant(7, 9, 13*time.Millisecond), variant(1, 9, 14*time.Millisecond)}},
		Demand{Model: "fast", Rate: 1, SLO: 20 * time.Millisecond, Variants: []Variant{variant(2, 9, 10*time.Millisecond)}},
		Demand{Model: "none", Rate: 1, SLO: time.Second})
	want := []Refusal{
		{Model: "none", Limit: 500 * time.Millisecond},
		{Model: "slow", Limit: 10 * time.Millisecond, Fastest: 13 * time.Millisecond},
	}
	if diff := cmp.Diff(want, plan.Refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	for i, text := range []string{"no variant is known", "the fastest batch takes 13ms, above 10ms"} {
		if got := plan.Refused[i].Why(); got != text {
			t.Errorf("refusal %q, want %q", got, text)
		}
	}
	if len(plan.Devices) != 1 || len(plan.Devices[0]) != 1 || plan.Devices[0][0].Model != "fast" {
		t.Errorf("devices %+v, want one instance of fast", plan.Devices)
	}
	if plan := sized(t, Config{}); len(plan.Devices) != 0 || plan.LowerBound != 0 || !plan.Optimal {
		t.Errorf("without demands: %+v", plan)
	}
}

// TestSizeHighRates: a model that needs hundreds of devices gets them beside others; the plan says that it left something
// out, and by how much it may be off.
func TestSizeHighRates(t *testing.T) {
	odd := []Variant{variant(1, 100, 1), variant(2, 203, 1), variant(3, 331, 1), variant(4, 410, 1), variant(7, 707, 1)}
	plan := sized(t, Config{},
		Demand{Model: "large", Rate: 300_000, SLO: time.Second, Variants: odd},
		Demand{Model: "small", Rate: 100, SLO: time.Second, Variants: odd})
	reached := Rate(0)
	for _, d := range plan.Devices {
		checkDevice(t, d)
		for _, one := range d {
			if one.Model == "large" {
				reached += one.Rate
			}
		}
	}
	// At most a device reaches 4 + 3 slices: 741, or 3 + 2 + 2: 737. So 405 devices serve 300,000.
	if n := len(plan.Devices); reached < 300_000 || n < 405 || n > 409 || !plan.Stats.Cut {
		t.Errorf("%d devices reach %d, cut %v, want 405 to 409 devices, 300000 and true", n, reached, plan.Stats.Cut)
	}
	if plan.LowerBound < 400 || plan.LowerBound > len(plan.Devices) {
		t.Errorf("bound %d for %d devices", plan.LowerBound, len(plan.Devices))
	}
	// With one size the bound is met, so the plan is known to be optimal: 3,000 slices are 428.6 devices.
	plan = sized(t, Config{}, Demand{Model: "large", Rate: 300_000, SLO: time.Second, Variants: odd[:1]})
	if len(plan.Devices) != 429 || plan.LowerBound != 429 || !plan.Optimal || !plan.Stats.Cut {
		t.Errorf("%d devices, bound %d, optimal %v, %+v: want 429, 429, true, cut", len(plan.Devices), plan.LowerBound, plan.Optimal, plan.Stats)
	}
}

// TestSizeFlat: rates that hardly rise with the size make the most mixes there are to look at.
func TestSizeFlat(t *testing.T) {
	flat := []Variant{variant(1, 1000, 1), variant(2, 1001, 1), variant(3, 1002, 1), variant(4, 1003, 1), variant(7, 1004, 1)}
	plan := sized(t, Config{}, Demand{Model: "m", Rate: 63_500, SLO: time.Second, Variants: flat})
	if len(plan.Devices) != 10 || !plan.Optimal { // 64 instances of one slice, seven on a device
		t.Errorf("%d devices, want 10", len(plan.Devices))
	}
}

func TestSizeErrors(t *testing.T) {
	with := func(change func(*Demand)) []Demand {
		d := Demand{Model: "m", Rate: 10, SLO: time.Second, Variants: []Variant{variant(1, 1, 1)}}
		change(&d)
		return []Demand{d}
	}
	for name, tc := range map[string]struct {
		demands []Demand
		cfg     Config
		want    string
	}{
		"no name":       {with(func(d *Demand) { d.Model = "" }), Config{}, `model "": it has no name`},
		"no rate":       {with(func(d *Demand) { d.Rate = 0 }), Config{}, `model "m": rate 0 must be from 1 to 1000000000000000`},
		"huge rate":     {with(func(d *Demand) { d.Rate = MaxRate + 1 }), Config{}, `model "m": rate 1000000000000001 must be from 1`},
		"no SLO":        {with(func(d *Demand) { d.SLO = 0 }), Config{}, `model "m": SLO 0s must be from 1ns to 1000h0m0s`},
		"endless SLO":   {with(func(d *Demand) { d.SLO = math.MaxInt64 }), Config{}, `model "m": SLO 2562047h47m16.854775807s must be`},
		"size":          {with(func(d *Demand) { d.Variants[0].Slices = 5 }), Config{}, `instance of 5 compute slices: legal are [1 2 3 4 7]`},
		"batch":         {with(func(d *Demand) { d.Variants[0].Batch = 0 }), Config{}, `batch and processes must be at least 1`},
		"processes":     {with(func(d *Demand) { d.Variants[0].Processes = -1 }), Config{}, `batch and processes must be at least 1`},
		"reaches none":  {with(func(d *Demand) { d.Variants[0].Rate = 0 }), Config{}, `rate 0 must be from 1 to`},
		"no latency":    {with(func(d *Demand) { d.Variants[0].Latency = 0 }), Config{}, `latency 0s must be above 0`},
		"twice":         {append(with(func(*Demand) {}), with(func(*Demand) {})...), Config{}, `model "m": it has two demands`},
		"permille":      {nil, Config{Permille: 1001}, "size replicas: 1001 thousandths of the SLO and 1024 sums: legal are 1 to 1000, and 1 or more"},
		"less than 0":   {nil, Config{Permille: -1}, "-1 thousandths"},
		"negative sums": {nil, Config{Sums: -1}, "-1 sums"},
		"one too large": {with(func(d *Demand) { d.Rate = MaxRate }), Config{}, "devices or more are needed, at most 10000 are legal"},
		"too many": {append(with(func(d *Demand) { d.Rate = 40_000 }), with(func(d *Demand) { d.Rate, d.Model = 40_000, "n" })...), Config{},
			"size replicas: 11429 devices or more are needed, at most 10000 are legal"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Size(tc.demands, tc.cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
