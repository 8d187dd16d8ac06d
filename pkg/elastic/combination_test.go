package elastic_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// rateOf is a known rate.
func rateOf(workers, servers int, rate float64) elastic.CombinationRate {
	return elastic.CombinationRate{Combination: elastic.Combination{Workers: workers, Servers: servers}, Rate: rate}
}

// Workers take one GPU and two cores, servers four cores.
var (
	workerPrice = elastic.Price{GPU: 1000, CPU: 2000, Memory: 1 << 30}
	serverPrice = elastic.Price{CPU: 4000, Memory: 1 << 30}
)

// tuning is a job of four or eight workers and one to three servers that wants a rate.
func tuning(rate float64) elastic.Tuning {
	return elastic.Tuning{
		Rates:   []elastic.CombinationRate{rateOf(4, 1, 90), rateOf(4, 2, 110), rateOf(8, 1, 150), rateOf(8, 3, 220)},
		Workers: []int{4, 8}, Servers: []int{1, 2, 3}, Rate: rate, Worker: workerPrice, Server: serverPrice,
	}
}

func TestChoose(t *testing.T) {
	with := func(rate float64, change func(*elastic.Tuning)) elastic.Tuning {
		tn := tuning(rate)
		change(&tn)
		return tn
	}
	now := func(rate float64, workers, servers int, cost float64) elastic.Tuning {
		return with(rate, func(tn *elastic.Tuning) {
			tn.Now, tn.Cost, tn.Horizon = elastic.Combination{Workers: workers, Servers: servers}, cost, 1000
		})
	}
	for _, tc := range []struct {
		name             string
		tuning           elastic.Tuning
		workers, servers int
		why              elastic.ChoiceWhy
		refused          string
	}{
		{"the least is enough", tuning(90), 4, 1, elastic.Cheapest, ""},
		{"a server is cheaper than four GPUs", tuning(100), 4, 2, elastic.Cheapest, ""},
		{"more workers with one server", tuning(120), 8, 1, elastic.Cheapest, ""},
		{"both", tuning(200), 8, 3, elastic.Cheapest, ""},
		{"nothing reaches it", tuning(500), 8, 3, elastic.Fastest, "no known combination reaches the rate 500: 8 workers with 3 servers is the fastest, with 220"},
		{"nothing is known", with(100, func(tn *elastic.Tuning) { tn.Rates = nil }), 0, 0, elastic.Unknown, "no rate of a legal combination is known"},
		{"what is known is not legal", with(90, func(tn *elastic.Tuning) { tn.Workers = []int{5} }), 0, 0, elastic.Unknown, "no rate of a legal combination is known"},
		// 8 GPUs for 1000 s against 4 for 1100 s: half of them are saved.
		{"a change that repays", now(90, 8, 3, 100), 4, 1, elastic.Cheapest, ""},
		// 4 × (1000 + 1000) is not below 8 × 1000.
		{"a change that takes too long", now(90, 8, 3, 1000), 8, 3, elastic.Kept, ""},
		// With a server less the job takes 12 cores in place of 16; 12 × 1.4 > 16.
		{"fewer servers later", now(90, 4, 2, 400), 4, 2, elastic.Kept, ""},
		{"fewer servers alone", now(90, 4, 2, 0), 4, 1, elastic.Cheapest, ""},
		{"the present one has the least price", now(90, 4, 1, 900), 4, 1, elastic.Cheapest, ""},
		// 150 × (1000 − 100) > 110 × 1000.
		{"growth that repays", now(120, 4, 2, 100), 8, 1, elastic.Cheapest, ""},
		// 150 × (1000 − 300) < 110 × 1000.
		{"growth that does not", now(120, 4, 2, 300), 4, 2, elastic.Kept,
			"8 workers with 1 servers would reach the rate 120, and the change from 4 workers with 2 servers, with a rate of 110, would not repay"},
		// 220 × (1000 − 600) < 110 × 1000, and 500 is out of reach.
		{"growth that does not, towards a rate that nothing reaches", now(500, 4, 2, 600), 4, 2, elastic.Kept,
			"no known combination reaches the rate 500: 8 workers with 3 servers is the fastest, with 220"},
		{"an illegal present size", now(90, 5, 1, 900), 4, 1, elastic.Cheapest, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := elastic.Choose(tc.tuning)
			must.OK(t, err)
			if c.Workers != tc.workers || c.Servers != tc.servers || c.Why != tc.why {
				t.Errorf("%v, %s, want %d with %d, %s", c.Combination, c.Why, tc.workers, tc.servers, tc.why)
			}
			if (c.Refused == nil) != (tc.refused == "") || c.Refused != nil && !strings.Contains(c.Refused.String(), tc.refused) {
				t.Errorf("refused with %v, want %q", c.Refused, tc.refused)
			}
		})
	}
}

// TestChooseTies: a server that costs nothing is one pod more. Choose takes the faster of two combinations with as many
// pods, and the one with fewer workers if they are equally fast.
func TestChooseTies(t *testing.T) {
	for want, list := range map[elastic.Combination][]elastic.CombinationRate{
		{Workers: 4, Servers: 1}: {rateOf(4, 3, 110), rateOf(4, 2, 110), rateOf(4, 1, 100)},
		{Workers: 4, Servers: 2}: {rateOf(3, 3, 100), rateOf(4, 2, 110), rateOf(5, 1, 100)},
		{Workers: 3, Servers: 3}: {rateOf(5, 1, 100), rateOf(4, 2, 100), rateOf(3, 3, 100)},
	} {
		c := choose(t, elastic.Tuning{Rates: list, Workers: []int{3, 4, 5}, Servers: []int{1, 2, 3}, Rate: 90})
		if c.Combination != want {
			t.Errorf("%+v, want %v", c, want)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	for want, change := range map[string]func(*elastic.Tuning){
		"the rate of 4 workers with 1 servers is NaN, legal is above 0":  func(tn *elastic.Tuning) { tn.Rates[0].Rate = math.NaN() },
		"the rate of 4 workers with 2 servers is -1, legal is above 0":   func(tn *elastic.Tuning) { tn.Rates[1].Rate = -1 },
		"the rate of 8 workers with 1 servers is +Inf, legal is above 0": func(tn *elastic.Tuning) { tn.Rates[2].Rate = math.Inf(1) },
		"two rates of 4 workers with 1 servers":                          func(tn *elastic.Tuning) { tn.Rates[3] = rateOf(4, 1, 90) },
		"rate 3 is of 0 workers with 1 servers":                          func(tn *elastic.Tuning) { tn.Rates[3].Combination = elastic.Combination{Servers: 1} },
		"rate 3 is of 1 workers with 257 servers":                        func(tn *elastic.Tuning) { tn.Rates[3].Combination = elastic.Combination{Workers: 1, Servers: 257} },
		"the legal numbers of workers [] are":                            func(tn *elastic.Tuning) { tn.Workers = nil },
		"the legal numbers of servers [2 1] are":                         func(tn *elastic.Tuning) { tn.Servers = []int{2, 1} },
		"the wanted rate is NaN":                                         func(tn *elastic.Tuning) { tn.Rate = math.NaN() },
		"the wanted rate is 0":                                           func(tn *elastic.Tuning) { tn.Rate = 0 },
		"a change costs -1 seconds":                                      func(tn *elastic.Tuning) { tn.Cost = -1 },
		"a horizon of NaN seconds":                                       func(tn *elastic.Tuning) { tn.Horizon = math.NaN() },
		"-1 workers with 0 servers now":                                  func(tn *elastic.Tuning) { tn.Now.Workers = -1 },
		"the price of a server is":                                       func(tn *elastic.Tuning) { tn.Server.CPU = -1 },
	} {
		tn := tuning(100)
		change(&tn)
		if _, err := elastic.Choose(tn); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("says %v, want %q", err, want)
		}
	}
}

// randomTuning draws a job with rates of a part of its combinations, or of all, that want a rate which some reach.
func randomTuning(t *rapid.T) elastic.Tuning {
	tn := elastic.Tuning{
		Worker: elastic.Price{GPU: 1000, CPU: int64(between(t, "worker CPU", 0, 2)), Memory: 1}, Server: elastic.Price{CPU: int64(between(t, "server CPU", 0, 3)), Memory: 1},
		Rate: float64(between(t, "wanted", 1, 120)),
	}
	for n := range between(t, "workers", 1, 6) {
		tn.Workers = append(tn.Workers, n+1)
	}
	for n := range between(t, "servers", 1, 6) {
		tn.Servers = append(tn.Servers, n+1)
	}
	known := between(t, "known", 0, 3)
	for _, w := range tn.Workers {
		for _, p := range tn.Servers {
			if known == 3 || between(t, "is known", 0, 2) <= known {
				tn.Rates = append(tn.Rates, rateOf(w, p, float64(between(t, "rate", 1, 100))))
			}
		}
	}
	return tn
}

// started draws a present combination, and what a change costs.
func started(t *rapid.T, tn *elastic.Tuning) {
	tn.Now = elastic.Combination{Workers: uniform(t, "workers now", tn.Workers...), Servers: uniform(t, "servers now", tn.Servers...)}
	tn.Cost, tn.Horizon = float64(between(t, "cost", 0, 12))*100, 1000
}

func choose(t interface {
	Fatal(args ...any)
	Helper()
}, tn elastic.Tuning) elastic.Choice {
	t.Helper()
	c, err := elastic.Choose(tn)
	must.OK(t, err)
	return c
}

// estimate returns what a job would reach with a combination: that is the choice where nothing else is legal.
func estimate(t *rapid.T, tn elastic.Tuning, workers, servers int) float64 {
	tn.Workers, tn.Servers, tn.Now = []int{workers}, []int{servers}, elastic.Combination{}
	return choose(t, tn).Rate
}

// bruteForce tries all combinations one by one, and orders those that reach the rate by a single number: no sum of
// CPU reaches a GPU here, and no sum of memory a thousandth of a core.
func bruteForce(t *rapid.T, tn elastic.Tuning) (best elastic.Combination, reached bool) {
	least := math.Inf(1)
	for _, w := range tn.Workers {
		for _, p := range tn.Servers {
			rate := estimate(t, tn, w, p)
			if rate < tn.Rate || rate == 0 {
				continue
			}
			price := float64(w)*1e9 + float64(int64(w)*tn.Worker.CPU+int64(p)*tn.Server.CPU)*1e6 + float64(w+p)*1e3 - rate
			if price < least {
				best, reached, least = elastic.Combination{Workers: w, Servers: p}, true, price
			}
		}
	}
	return best, reached
}

// TestChooseBruteForceLaw: the choice is that of all combinations tried one by one, and it is a refusal where none of them
// reaches the rate.
func TestChooseBruteForceLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tn := randomTuning(t)
		got := choose(t, tn)
		want, reached := bruteForce(t, tn)
		if reached != (got.Refused == nil) || reached && got.Combination != want {
			t.Fatalf("chose %+v, want %v, reached %v", got, want, reached)
		}
	})
}

// TestChooseMonotoneLaw: a larger rate never gets a cheaper combination.
func TestChooseMonotoneLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tn := randomTuning(t)
		less := choose(t, tn)
		tn.Rate += float64(between(t, "more", 1, 50))
		if more := choose(t, tn); dearer(less.Price, more.Price) {
			t.Fatalf("%+v, and for the rate %v %+v", less, tn.Rate, more)
		}
	})
}

// dearer orders prices.
func dearer(a, b elastic.Price) bool {
	switch {
	case a.GPU != b.GPU:
		return a.GPU > b.GPU
	case a.CPU != b.CPU:
		return a.CPU > b.CPU
	}
	return a.Memory > b.Memory
}

// TestChooseShuffleLaw: the order of the rates makes no difference.
func TestChooseShuffleLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tn := randomTuning(t)
		want := choose(t, tn)
		tn.Rates = rapid.Permutation(tn.Rates).Draw(t, "rates")
		if diff := cmp.Diff(want, choose(t, tn)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestChooseRepaysLaw: a change from a combination that reaches the rate saves GPUs over the time that it takes, or other
// resources alone; a change from one that does not gets more work done. A second choice after the change changes nothing.
func TestChooseRepaysLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tn := randomTuning(t)
		started(t, &tn)
		now, got := estimate(t, tn, tn.Now.Workers, tn.Now.Servers), choose(t, tn)
		if got.Combination != tn.Now && now > 0 {
			fixed := tn
			fixed.Rates, fixed.Rate = append([]elastic.CombinationRate(nil), tn.Rates...), 1e-9
			fixed.Workers, fixed.Servers = []int{tn.Now.Workers}, []int{tn.Now.Servers}
			before := choose(t, fixed).Price
			if longer := 1 + tn.Cost/1000; now >= tn.Rate && (!dearer(before, got.Price) || float64(got.Price.GPU)*longer > float64(before.GPU) && got.Price.GPU < before.GPU) {
				t.Fatalf("changed to %+v from %v, which reaches the rate", got, tn.Now)
			}
			if now < tn.Rate && got.Rate*(1000-tn.Cost) <= now*1000 {
				t.Fatalf("changed to %+v from %v with %v", got, tn.Now, now)
			}
		}
		if tn.Now = got.Combination; got.Why != elastic.Unknown {
			if again := choose(t, tn); again.Combination != got.Combination {
				t.Fatalf("chose %+v, and then %+v", got, again)
			}
		}
	})
}
