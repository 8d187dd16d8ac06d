package experiment

import (
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// unlike is three kinds of jobs on two models: the V100 does ten, three and six times as much as the K80, which costs a
// fifth. So the first is cheaper on the V100, the second on the K80, and the third depends on the slots that it fills.
func unlike(jobs int) *Rating {
	rate := func(app, model string, whole float64) measurements.Rate {
		return measurements.Rate{App: app, Model: model, Workers: 1, Together: whole}
	}
	return &Rating{
		Rates: []measurements.Rate{
			rate("conv", "k80", 3), rate("conv", "v100", 30), rate("rec", "k80", .2), rate("rec", "v100", .6),
			rate("lm", "k80", 20), rate("lm", "v100", 120), rate("k80 only", "k80", 1),
			{App: "conv", Model: "v100", Workers: 4, Together: 100},
		},
		Devices: map[string]int{"k80": 100, "v100": 100},
		Prices:  []map[string]int64{{"k80": 500_000, "v100": 2_500_000}},
		Jobs:    jobs, Policies: []string{"packed"}, Seeds: []int64{1, 2, 3},
	}
}

func played(t *testing.T, r *Rating) map[string]results.RateResult {
	t.Helper()
	rates, err := r.Run()
	must.OK(t, err)
	last := map[string]results.RateResult{}
	for _, x := range rates.Results {
		last[x.Prices+" "+x.Policy+" "+x.Choice] = x
	}
	return last
}

// TestRatesCostWhatTheCheapestSharesDo: while there is room, the cheapest-share choice costs exactly the sum over the jobs
// of the cheapest of all shares that reach the rate, under every policy, and misses none.
func TestRatesCostWhatTheCheapestSharesDo(t *testing.T) {
	r := unlike(50)
	r.Policies = placement.Policies()
	apps, err := r.measured()
	must.OK(t, err)
	if _, has := apps["k80 only"]; has {
		t.Error("a job is drawn that was not measured on every model")
	}
	sums := make([]float64, 0, len(r.Seeds))
	for _, seed := range r.Seeds {
		sum := 0.0
		for _, w := range r.draw(apps, seed) {
			best := 0.0
			for model, whole := range apps[w.app] {
				for slots := 1.0; slots <= 10; slots++ {
					if cost := float64(r.Prices[0][model]) / 1e6 * slots / 10; whole*slots/10*(1+1e-9) >= float64(w.rate)/1e6 && (best == 0 || cost < best) {
						best = cost
					}
				}
			}
			sum += best
		}
		sums = append(sums, sum)
	}
	last := played(t, r)
	for _, policy := range r.Policies {
		got := last["k80=0.5,v100=2.5 "+policy+" cheapest-share"]
		if diff := cmp.Diff(results.SpreadOf(sums), got.CostPerHour); diff != "" {
			t.Errorf("%s: cost (-want +got):\n%s", policy, diff)
		}
		if got.Met.Mean != 50 || got.Missed.Mean != 0 || got.Unplaced.Mean != 0 {
			t.Errorf("%s: met %v, missed %v, unplaced %v", policy, got.Met, got.Missed, got.Unplaced)
		}
		for _, other := range []string{"cheapest-model", "any-model"} {
			if o := last["k80=0.5,v100=2.5 "+policy+" "+other]; o.CostPerHour.Mean < got.CostPerHour.Mean || o.Missed.Mean != 0 {
				t.Errorf("%s: %s costs %v and misses %v", policy, other, o.CostPerHour, o.Missed)
			}
		}
	}
}

// TestRatesThatAreMissed: packed fills the K80s first, which come first by name. There a job has as many slots as it was
// measured with, and its rate on them is too low if it was measured on a V100, even if only by a little.
func TestRatesThatAreMissed(t *testing.T) {
	r := unlike(50)
	r.Seeds = []int64{7}
	apps, err := r.measured()
	must.OK(t, err)
	missed := 0.0
	for _, w := range r.draw(apps, 7) {
		if apps[w.app]["k80"]*float64(w.measured)/10 < float64(w.rate)/1e6-1e-6 {
			missed++
		}
	}
	got := played(t, r)["k80=0.5,v100=2.5 packed measured-slots"]
	if got.Missed.Mean != missed || got.Met.Mean != 50-missed || missed == 0 {
		t.Errorf("missed %v, met %v; want %v of 50 missed", got.Missed, got.Met, missed)
	}
	// The slowest V100 does three times as much as a K80: a rate that is missed by a little is missed.
	r.Rates = append(r.Rates, measurements.Rate{App: "near", Model: "k80", Workers: 1, Together: .999999}, measurements.Rate{App: "near", Model: "v100", Workers: 1, Together: 1})
	if apps, err = r.measured(); err != nil {
		t.Fatal(err)
	}
	run := ratedRun{rating: r, apps: apps, prices: r.Prices[0]}
	c, err := r.cluster()
	must.OK(t, err)
	request := ask(10, nil)
	request.UID, request.Pod = "u", "p"
	plan, err := placement.Choose(c, &request, placement.Config{})
	must.OK(t, err)
	var sum spent
	must.OK(t, run.book(c, plan.Place, wanting{app: "near", rate: 1e6}, &sum, map[vgpu.DeviceID]bool{}))
	if want := (spent{shares: 500_000, devices: 500_000, missed: 1}); sum != want {
		t.Errorf("spent %+v, want %+v", sum, want)
	}
}

// TestRatesOfChoices works one job out for each choice.
func TestRatesOfChoices(t *testing.T) {
	r := unlike(1)
	apps, err := r.measured()
	must.OK(t, err)
	table, err := tableOf(apps, r.Prices[0])
	must.OK(t, err)
	for _, tc := range []struct {
		choice string
		job    wanting
		want   string
	}{
		// 3 of 30 are 1 slot of a V100 at 0.25, 3 of 3 a whole K80 at 0.50.
		{"cheapest-share", wanting{app: "conv", rate: 3e6, measured: 10}, "1 slots: v100 at 0.25, k80 at 0.5"},
		{"cheapest-model", wanting{app: "conv", rate: 3e6, measured: 10}, "1 slots: v100 at 2.5, k80 at 0.5"},
		{"any-model", wanting{app: "conv", rate: 3e6, measured: 10}, "1 slots: v100 at 0, k80 at 0"},
		{"same-slots", wanting{app: "conv", rate: 3e6, measured: 1}, "10 slots: "},
		{"same-slots", wanting{app: "conv", rate: 6e6, measured: 2}, "10 slots: "}, // a K80 does not reach it
		{"same-slots", wanting{app: "rec", rate: 4e4, measured: 2}, "2 slots: "},
		{"measured-slots", wanting{app: "conv", rate: 3e6, measured: 1}, "1 slots: "},
		{"cheapest-share", wanting{app: "conv", rate: 6e6, measured: 2}, "1 slots: v100 at 0.5"},
	} {
		c := choices[slices.IndexFunc(choices, func(c choice) bool { return c.name == tc.choice })]
		request, ok := c.request(&ratedRun{rating: r, apps: apps, prices: r.Prices[0], table: table}, tc.job)
		var variants []string
		for _, v := range request.Variants {
			variants = append(variants, fmt.Sprintf("%s at %v", v.Model, placement.Rate(v.Cost)))
		}
		if got := fmt.Sprintf("%d slots: %s", request.Containers[0].Slots, strings.Join(variants, ", ")); got != tc.want || !ok {
			t.Errorf("%s of %+v: %s, %v; want %s", tc.choice, tc.job, got, ok, tc.want)
		}
	}
}

// TestRatesWithoutRoom: jobs that find no share are counted, and none is given less than it wants.
func TestRatesWithoutRoom(t *testing.T) {
	r := unlike(200)
	r.Devices = map[string]int{"k80": 3, "v100": 5}
	rates, err := r.Run()
	must.OK(t, err)
	for _, x := range rates.Results {
		if sum := x.Met.Mean + x.Missed.Mean + x.Unplaced.Mean; report.Round(sum) != float64(x.Jobs) && sum-float64(x.Jobs) > .001 {
			t.Errorf("%s after %d jobs: %v met, %v missed, %v unplaced", x.Choice, x.Jobs, x.Met, x.Missed, x.Unplaced)
		}
		if x.DeviceCostPerHour.Mean > 3*.5+5*2.5 || x.CostPerHour.Mean > x.DeviceCostPerHour.Mean {
			t.Errorf("%s after %d jobs: shares cost %v, devices %v", x.Choice, x.Jobs, x.CostPerHour, x.DeviceCostPerHour)
		}
		if x.Choice == "cheapest-share" && x.Missed.Mean != 0 {
			t.Errorf("after %d jobs %v are missed", x.Jobs, x.Missed)
		}
		if x.Jobs == 200 && x.Unplaced.Mean == 0 {
			t.Errorf("%s: 200 jobs fit on 8 devices", x.Choice)
		}
	}
}

// TestRatesAreTheSameEveryTime: on any number of processors.
func TestRatesAreTheSameEveryTime(t *testing.T) {
	text := func(processors int) string {
		before := runtime.GOMAXPROCS(processors)
		defer runtime.GOMAXPROCS(before)
		r := unlike(40)
		r.Policies = []string{"packed", "random", "tandem"}
		rates, err := r.Run()
		must.OK(t, err)
		var b bytes.Buffer
		must.OK(t, report.JSON(&b, rates))
		return b.String()
	}
	if one, eight := text(1), text(8); one != eight {
		t.Errorf("one processor and eight differ:\n%s", cmp.Diff(one, eight))
	}
}

func TestRatingRefuses(t *testing.T) {
	for want, change := range map[string]func(*Rating){
		"no job was measured on all of k80, p100, v100":                  func(r *Rating) { r.Devices["p100"] = 1 },
		`profile "conv" on model "v100" at 100%: the model has no price`: func(r *Rating) { delete(r.Prices[0], "v100") },
		"1 lists of prices, 0 policies, 3 seeds, 10 jobs":                func(r *Rating) { r.Policies = nil },
		"1 lists of prices, 1 policies, 0 seeds, 10 jobs":                func(r *Rating) { r.Seeds = nil },
		"0 lists of prices": func(r *Rating) { r.Prices = nil },
		"0 jobs: want at least one of each, and at most 10000 jobs": func(r *Rating) { r.Jobs = 0 },
		"10001 jobs":                     func(r *Rating) { r.Jobs = 10_001 },
		`unknown name "tetris"`:          func(r *Rating) { r.Policies = []string{"tetris"} },
		"no job was measured on all of ": func(r *Rating) { r.Devices = nil },
	} {
		r := unlike(10)
		change(r)
		if _, err := r.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestGavelRates: on Gavel's measurements, and while there is room, the cheapest shares miss no rate and cost less than
// the cheapest models and than whichever model, for every price of a V100 from that of a K80 to nine times that. At ten
// times a K80 is the cheaper share for all jobs that it can serve, and the cheapest model is the same.
func TestGavelRates(t *testing.T) {
	dir := published.Data(t)
	trace, err := measurements.Load(filepath.Join(dir, "gavel", "pairs.csv"))
	must.OK(t, err)
	r := &Rating{
		Devices: map[string]int{"k80": 72, "v100": 72}, Jobs: 100, Policies: []string{"packed"},
		Seeds: []int64{42, 43, 44, 45, 46, 47, 48, 49, 50, 51},
	}
	for _, v100 := range []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} {
		r.Prices = append(r.Prices, map[string]int64{"k80": 1_000_000, "v100": v100 * 1_000_000})
	}
	for _, rate := range trace.Rates {
		if rate.Set == "oracle" {
			r.Rates = append(r.Rates, rate)
		}
	}
	last := played(t, r)
	for _, prices := range r.Prices {
		key := PricesText(prices) + " packed "
		ours := last[key+"cheapest-share"]
		t.Logf("%s: cheapest share %v, cheapest model %v, any model %v", PricesText(prices), ours.CostPerHour,
			last[key+"cheapest-model"].CostPerHour, last[key+"any-model"].CostPerHour)
		if ours.Met.Mean != 100 {
			t.Errorf("%s: %v of 100 rates are met", PricesText(prices), ours.Met)
		}
		for _, other := range []string{"cheapest-model", "any-model"} {
			o := last[key+other]
			if o.CostPerHour.Mean < ours.CostPerHour.Mean || o.CostPerHour.Mean == ours.CostPerHour.Mean && prices["v100"] < 10_000_000 {
				t.Errorf("%s: %s costs %v, the cheapest shares %v", PricesText(prices), other, o.CostPerHour, ours.CostPerHour)
			}
		}
	}
}
