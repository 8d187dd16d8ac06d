package workloads

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func latencyPoint(model string, share int32, latency string) v1alpha1.ProfileThroughput {
	d, err := time.ParseDuration(latency)
	if err != nil {
		panic(err)
	}
	return v1alpha1.ProfileThroughput{Model: model, SharePercent: share, Latency: &metav1.Duration{Duration: d}}
}

func ratePoint(model string, share int32, rate string) v1alpha1.ProfileThroughput {
	return v1alpha1.ProfileThroughput{Model: model, SharePercent: share, Rate: new(resource.MustParse(rate))}
}

func curvesOf(points ...v1alpha1.ProfileThroughput) *Workload {
	return ReadProfile(profileOf(v1alpha1.WorkloadProfileSpec{Throughputs: points}))
}

// The cheapest share that keeps a latency: at 50 percent of a T4 a step takes 80 ms, so at 25 percent it is expected to
// take 160 ms, and on the whole device 40 ms.
func TestCheapestShareForALatency(t *testing.T) {
	w := curvesOf(latencyPoint("T4", 100, "40ms"), latencyPoint("T4", 50, "80ms"), latencyPoint("A100", 100, "10ms"))
	latencies, err := w.Latencies(map[string]int64{"T4": 1_000_000, "A100": 10_000_000})
	must.OK(t, err)
	for _, test := range []struct {
		latency string
		model   string
		share   vgpu.MilliGPU
	}{{"160ms", "T4", 250}, {"80ms", "T4", 500}, {"40ms", "T4", 1000}, {"39ms", "A100", 257}, {"10ms", "A100", 1000}} {
		wanted, _, err := wantedLatency(t, quick(test.latency, "1"))
		must.OK(t, err)
		got, unreachable := latencies.Variants(wanted, nil)
		if unreachable != nil || got[0].Model != test.model || got[0].Compute != test.share {
			t.Errorf("%s: %+v, %v, want %v of %s", test.latency, got, unreachable, test.share, test.model)
		}
	}
	wanted, _, err := wantedLatency(t, quick("9.999ms", "1"))
	must.OK(t, err)
	_, unreachable := latencies.Variants(wanted, nil)
	if unreachable == nil {
		t.Fatal("9.999 ms are promised")
	}
	want := "profile bert takes at least 10ms (on a whole A100)"
	if got := LatencyError(quick("9.999ms", "1"), unreachable).Error(); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// A share that just keeps a latency is not missed by rounding: of 30 ms on the whole device three quarters make 40 ms.
func TestLatencyIsNotMissedByRounding(t *testing.T) {
	latencies, err := curvesOf(latencyPoint("T4", 100, "30ms")).Latencies(nil)
	must.OK(t, err)
	wanted, _, err := wantedLatency(t, quick("40ms", "1"))
	must.OK(t, err)
	if got, unreachable := latencies.Variants(wanted, nil); unreachable != nil || got[0].Compute != 750 {
		t.Errorf("%+v, %v, want 750", got, unreachable)
	}
}

func TestRatesOfProfiles(t *testing.T) {
	w := curvesOf(ratePoint("T4", 100, "120.5"), ratePoint("A100", 50, "300"), latencyPoint("V100", 100, "40ms"))
	if len(w.Malformed) > 0 {
		t.Fatal(w.Malformed)
	}
	for name, test := range map[string]struct {
		prices map[string]int64
		share  map[string]vgpu.MilliGPU // that reaches 120.5 by model, 0 for no promise
	}{
		"prices for some":   {map[string]int64{"T4": 1}, map[string]vgpu.MilliGPU{"T4": 1000, "A100": 0, "V100": 0}},
		"no prices at all":  {nil, map[string]vgpu.MilliGPU{"T4": 1000, "A100": 201, "V100": 0}},
		"an empty list":     {map[string]int64{}, map[string]vgpu.MilliGPU{"T4": 1000, "A100": 201, "V100": 0}},
		"prices for others": {map[string]int64{"K80": 1}, nil},
	} {
		rates, err := w.Rates(test.prices)
		if err != nil || (rates == nil) != (test.share == nil) {
			t.Errorf("%s: %v, %v", name, rates, err)
		}
		for model, want := range test.share {
			if got, ok := rates.Share("bert", model, 120_500_000); got != want || ok != (want > 0) {
				t.Errorf("%s: %v of %s, %v, want %v", name, got, model, ok, want)
			}
		}
	}
	if rate, ok := w.Rate("T4", 1000); !ok || rate != 120_500_000 {
		t.Errorf("the whole T4 has %v, %v", rate, ok)
	}
	for model, share := range map[string]vgpu.MilliGPU{"T4": 500, "A100": 1000, "V100": 1000} {
		if rate, ok := w.Rate(model, share); ok {
			t.Errorf("%v of %s has %v, nobody declared it", share, model, rate)
		}
	}
	if rates, err := curvesOf().Latencies(nil); rates != nil || err != nil {
		t.Errorf("a workload without points has %v, %v", rates, err)
	}
	if _, err := w.Rates(map[string]int64{"T4": -1}); err == nil || !strings.Contains(err.Error(), "WorkloadProfile ns/bert") {
		t.Errorf("an illegal price: %v", err)
	}
}

func TestIllegalPointsArePassedOver(t *testing.T) {
	good := ratePoint("T4", 100, "5")
	for want, points := range map[string][]v1alpha1.ProfileThroughput{
		`spec.throughputs[1].model: "" is not legal`:                                    {good, ratePoint("", 50, "1")},
		`spec.throughputs[1].model: "*" is not legal, it must be the product name`:      {good, ratePoint("*", 50, "1")},
		`spec.throughputs[1].sharePercent: "0" is not legal`:                            {good, ratePoint("T4", 0, "1")},
		`spec.throughputs[1].sharePercent: "150" is not legal, it must be from 1 to`:    {good, ratePoint("T4", 150, "1")},
		`spec.throughputs[1].sharePercent: "12900" is not legal`:                        {good, ratePoint("T4", 12900, "9")},
		`spec.throughputs[1]: "" is not legal, a point tells a rate`:                    {good, {Model: "T4", SharePercent: 50}},
		`spec.throughputs[1].rate: "0" is not legal, it must be a decimal above 0`:      {good, ratePoint("T4", 50, "0")},
		`spec.throughputs[1].rate: "1e999999999" is not legal`:                          {good, ratePoint("T4", 50, "1e999999999")},
		`spec.throughputs[1].latency: "0s" is not legal, it must be from 1us to 1h`:     {good, latencyPoint("T4", 50, "0s")},
		`spec.throughputs[1].latency: "1h0m1s" is not legal`:                            {good, latencyPoint("T4", 50, "1h1s")},
		`spec.throughputs: the rate on A100 at 100% is worse than at 50%, or the share`: {good, ratePoint("A100", 100, "3"), ratePoint("A100", 50, "4")},
		`spec.throughputs: the rate on A100 at 50% is worse than at 50%`:                {good, ratePoint("A100", 50, "3"), ratePoint("A100", 50, "3")},
		`spec.throughputs: the latency on A100 at 100% is worse than at 50%`:            {good, latencyPoint("A100", 100, "2s"), latencyPoint("A100", 50, "1s"), latencyPoint("A100", 25, "9s")},
	} {
		w := curvesOf(points...)
		if len(w.Malformed) != 1 || !strings.HasPrefix(w.Malformed[0], want) {
			t.Errorf("malformed %q, want %q", w.Malformed, want)
		}
		rates, err := w.Rates(nil)
		must.OK(t, err)
		if share, ok := rates.Share("bert", "T4", 5_000_000); !ok || share != 1000 {
			t.Errorf("%s: the good point does not count: %v", want, share)
		}
		if share, ok := rates.Share("bert", "A100", 1); ok {
			t.Errorf("%s: a bad curve promises %v", want, share)
		}
	}
}

// TestLatencyProperty: whatever the points, the tables are legal, and a promised share keeps the latency as exactly as
// latencyRate is.
func TestLatencyProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []v1alpha1.ProfileThroughput
		for range rapid.IntRange(0, 6).Draw(t, "points") {
			p := v1alpha1.ProfileThroughput{
				Model:        rapid.SampledFrom([]string{"A100", "T4"}).Draw(t, "model"),
				SharePercent: rapid.SampledFrom([]int32{1, 33, 50, 100, 200, 12800}).Draw(t, "share"),
			}
			if rapid.Bool().Draw(t, "has latency") {
				p.Latency = &metav1.Duration{Duration: time.Duration(rapid.Int64Range(-1, int64(2*time.Hour)).Draw(t, "latency"))}
			}
			if rapid.Bool().Draw(t, "has rate") {
				p.Rate = resource.NewScaledQuantity(rapid.Int64Range(-1, 100).Draw(t, "rate"), resource.Milli)
			}
			points = append(points, p)
		}
		w := curvesOf(points...)
		if _, err := w.Rates(nil); err != nil {
			t.Fatal(err)
		}
		latencies, err := w.Latencies(nil)
		must.OK(t, err)
		target := time.Duration(rapid.Int64Range(int64(kube.MinLatency), int64(kube.MaxLatency)).Draw(t, "target"))
		for _, model := range []string{"A100", "T4"} {
			share, ok := latencies.Share("bert", model, latencyRate(target))
			if !ok {
				continue
			}
			kept := float64(placement.MaxRate) / float64(latencies.At("bert", model, share))
			if kept > float64(target)*(1+4e-6)+1 {
				t.Fatalf("%v of %s keeps %v ns, wanted %v", share, model, kept, target)
			}
		}
	})
}

func TestLatencyRateIsExactAtTheBounds(t *testing.T) {
	for _, d := range []time.Duration{kube.MinLatency, time.Millisecond, 40 * time.Millisecond, time.Second, time.Minute, kube.MaxLatency} {
		rate := latencyRate(d)
		if rate < 1 || rate > placement.MaxRate || rateLatency(rate) != d {
			t.Errorf("%v is rate %d, which is %v", d, rate, rateLatency(rate))
		}
	}
}
