package elastic_test

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// TestFitLaw: where the rates follow one of the two forms, those of combinations that were not measured are found, and a
// combination between the measured ones counts.
func TestFitLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c [5]float64
		for i := range c {
			c[i] = float64(between(t, "coefficient", 0, 5))
		}
		c[0]++
		own := between(t, "form", 0, 1) == 1
		truth := func(workers, servers int) float64 {
			w, p := float64(workers), float64(servers)
			if own {
				return 1 / (c[0]/w + c[1]/p/10 + c[2]/100 + c[3]*p/w/100)
			}
			return 1 / (c[0]/w + c[1]/10 + c[2]*w/p/100 + c[3]*w/1000 + c[4]*p/1000)
		}
		tn := elastic.Tuning{Workers: []int{1, 2, 3, 4, 5, 6, 7, 8}, Servers: []int{1, 2, 3, 4}, Rate: 1, Worker: workerPrice, Server: serverPrice}
		for _, w := range []int{1, 2, 5, 8} {
			for _, p := range []int{1, 2, 4} {
				tn.Rates = append(tn.Rates, rateOf(w, p, truth(w, p)))
			}
		}
		for _, w := range tn.Workers {
			for _, p := range tn.Servers {
				if got, want := estimate(t, tn, w, p), truth(w, p); math.Abs(got-want) > 1e-4*want {
					t.Fatalf("%d workers with %d servers have the rate %v, the estimate is %v", w, p, want, got)
				}
			}
		}
	})
}

// TestFewRates: with four rates only these count, and beyond the known numbers nothing counts.
func TestFewRates(t *testing.T) {
	tn := elastic.Tuning{
		Rates:   []elastic.CombinationRate{rateOf(1, 1, 10), rateOf(4, 1, 30), rateOf(1, 4, 11), rateOf(4, 4, 40)},
		Workers: []int{2, 3, 8}, Servers: []int{1, 2, 8}, Rate: 15, Worker: workerPrice, Server: serverPrice,
	}
	if c := choose(t, tn); c.Why != elastic.Unknown {
		t.Errorf("four rates: %+v", c)
	}
	tn.Rates = append(tn.Rates, rateOf(2, 4, 21))
	c := choose(t, tn)
	if c.Why != elastic.Cheapest || c.Workers != 2 || c.Servers != 1 || c.Measured {
		t.Errorf("five rates: %+v, want the estimate of 2 workers with 1 server", c)
	}
	tn.Rate = 41
	if c := choose(t, tn); c.Workers == 8 || c.Servers == 8 {
		t.Errorf("%+v is beyond what was measured", c)
	}
}

// dl2 reads the measurements of DL2 (Peng et al., IEEE TPDS 2021; github.com/pengyanghua/DL2, config_speed.txt): images
// per second of synchronous training in MXNet, by 1 to 12 workers and parameter servers, for each model.
func dl2(t *testing.T) map[string][]elastic.CombinationRate {
	t.Helper()
	dir := published.Data(t)
	f, err := os.Open(filepath.Join(dir, "dl2", "config_speed.txt"))
	if os.IsNotExist(err) {
		t.Skipf("%v: it has no licence, so it is not part of this repository; put config_speed.txt of github.com/pengyanghua/DL2 there", err)
	}
	must.OK(t, err)
	defer f.Close()
	line := regexp.MustCompile(`^\('([^']+)', '\w+', \d+, (\d+), (\d+), \[([^\]]*)\]`)
	models := map[string][]elastic.CombinationRate{}
	for s := bufio.NewScanner(f); s.Scan(); {
		m := line.FindStringSubmatch(s.Text())
		if m == nil {
			t.Fatalf("%s: %q has no rates", f.Name(), s.Text())
		}
		servers, _ := strconv.Atoi(m[2])
		workers, _ := strconv.Atoi(m[3])
		sum := 0.0
		for _, word := range strings.Split(m[4], ", ") {
			rate, err := strconv.ParseFloat(word, 64)
			must.OK(t, err)
			sum += rate
		}
		if sum > 0 { // nine runs have no rate
			models[m[1]] = append(models[m[1]], rateOf(workers, servers, sum))
		}
	}
	return models
}

// TestPublishedBruteForce: on the published curves every rate gets the combination that a search of all lines finds.
func TestPublishedBruteForce(t *testing.T) {
	for model, list := range dl2(t) {
		checkCurve(t, model, list)
	}
}

// TestTrainerBruteForce: the same for curves of the trainer in examples/elastic/trainer, which testdata says how they were
// measured. Each curve is paced in another way.
func TestTrainerBruteForce(t *testing.T) {
	files, err := filepath.Glob("testdata/trainer-*.csv")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d curves, %v", len(files), err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		must.OK(t, err)
		var list []elastic.CombinationRate
		for line := range strings.Lines(string(content)) {
			var servers, workers int
			var rate float64
			if n, _ := fmt.Sscanf(line, "%d,%d,%g", &servers, &workers, &rate); n == 3 {
				list = append(list, rateOf(workers, servers, rate))
			}
		}
		if len(list) < 10 {
			t.Fatalf("%s: %d rates", name, len(list))
		}
		checkCurve(t, name, list)
		one := leftOut(t, list, func(i, j int) bool { return i != j })
		t.Logf("%s: %d combinations; median error of one that is left out %.1f %%, of the worst tenth at least %.1f %%", name, len(list), one[0], one[1])
	}
}

// checkCurve chooses for every rate of a curve, and for a thousandth less and more.
func checkCurve(t *testing.T, name string, list []elastic.CombinationRate) {
	t.Helper()
	tn := gridOf(list)
	for _, at := range list {
		for _, factor := range []float64{.999, 1, 1.001} {
			tn.Rate = at.Rate * factor
			got := choose(t, tn)
			want, reached := scan(list, tn.Rate)
			if reached != (got.Refused == nil) || reached && got.Combination != want {
				t.Errorf("%s: the rate %v gets %+v, the search found %v, %v", name, tn.Rate, got, want, reached)
			}
		}
	}
}

// scan returns the line with the fewest workers, then servers, then the highest rate, that has a rate.
func scan(list []elastic.CombinationRate, rate float64) (best elastic.Combination, reached bool) {
	key := math.Inf(1)
	for _, p := range list {
		if k := float64(1000*p.Workers + p.Servers); p.Rate >= rate && k < key {
			best, key, reached = p.Combination, k, true
		}
	}
	return best, reached
}

// gridOf returns a job with the rates and all their numbers of workers and servers.
func gridOf(list []elastic.CombinationRate) elastic.Tuning {
	tn := elastic.Tuning{Rates: list, Worker: workerPrice, Server: serverPrice}
	for _, p := range list {
		tn.Workers, tn.Servers = append(tn.Workers, p.Workers), append(tn.Servers, p.Servers)
	}
	slices.Sort(tn.Workers)
	slices.Sort(tn.Servers)
	tn.Workers, tn.Servers = slices.Compact(tn.Workers), slices.Compact(tn.Servers)
	return tn
}

// TestPublishedLeftOut: the estimates of combinations that are left out, one at a time, and where every third one alone is
// given. The bounds are the measured errors with a little room: docs/decisions/0030-parameter-servers.md has these.
func TestPublishedLeftOut(t *testing.T) {
	for model, list := range dl2(t) {
		one := leftOut(t, list, func(i, j int) bool { return i != j })
		third := leftOut(t, list, func(i, j int) bool { return i != j && j%3 == 0 })
		t.Logf("%s: %d combinations; median error %.1f %%, of the worst tenth at least %.1f %%; where a third is given %.1f %% and %.1f %%",
			model, len(list), one[0], one[1], third[0], third[1])
		if one[0] > 15 || third[0] > 20 {
			t.Errorf("%s: the median errors are %.1f %% and %.1f %%", model, one[0], third[0])
		}
	}
}

// leftOut returns the median and the 90th percentile of the errors in percent of the estimates for each combination i, where
// the combinations j are given.
func leftOut(t *testing.T, list []elastic.CombinationRate, given func(i, j int) bool) (percentiles [2]float64) {
	t.Helper()
	var errs []float64
	for i, p := range list {
		tn := elastic.Tuning{Workers: []int{p.Workers}, Servers: []int{p.Servers}, Rate: 1e-9, Worker: workerPrice, Server: serverPrice}
		for j, o := range list {
			if given(i, j) {
				tn.Rates = append(tn.Rates, o)
			}
		}
		if c := choose(t, tn); c.Why != elastic.Unknown { // it may be beyond what is given
			errs = append(errs, 100*math.Abs(c.Rate/p.Rate-1))
		}
	}
	if len(errs) < len(list)/2 {
		t.Fatalf("%d estimates of %d combinations", len(errs), len(list))
	}
	slices.Sort(errs)
	return [2]float64{errs[len(errs)/2], errs[len(errs)*9/10]}
}
