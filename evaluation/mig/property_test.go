package mig

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// demands draws up to so many, each of which needs up to about so many instances.
func demands(t *rapid.T, most, instances int) []Demand {
	all := make([]Demand, rapid.IntRange(1, most).Draw(t, "models"))
	for i := range all {
		all[i] = Demand{Model: fmt.Sprint("m", i), SLO: time.Duration(rapid.IntRange(20, 100).Draw(t, "SLO"))}
		highest := Rate(0)
		for range rapid.IntRange(1, 8).Draw(t, "variants") {
			s := rapid.SampledFrom(Sizes()).Draw(t, "size")
			v := Variant{
				Slices: s, Batch: rapid.IntRange(1, 2).Draw(t, "batch"), Processes: 1,
				Rate:    Rate(int(s)*rapid.IntRange(5, 15).Draw(t, "rate a slice") + rapid.IntRange(0, 9).Draw(t, "more")),
				Latency: time.Duration(rapid.IntRange(1, 30).Draw(t, "latency")),
			}
			highest = max(highest, v.Rate)
			all[i].Variants = append(all[i].Variants, v)
		}
		all[i].Rate = Rate(rapid.IntRange(1, int(highest)*instances).Draw(t, "rate"))
	}
	return all
}

// size is Size for demands that are sound.
func size(t *rapid.T, all []Demand, cfg Config) *Plan {
	plan, err := Size(all, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// checkPlan checks a plan against the demands: no latency above its limit, no rate missed, no device over its capacity.
func checkPlan(t *rapid.T, all []Demand, plan *Plan, permille int) (compute int) {
	reached := map[string]Rate{}
	for _, d := range plan.Devices {
		checkDevice(t, d)
		for _, one := range d {
			at := slices.IndexFunc(all, func(d Demand) bool { return d.Model == one.Model })
			if at < 0 || !slices.Contains(all[at].Variants, one.Variant) {
				t.Fatalf("instance %+v is no variant of its model", one)
			}
			if one.Latency*1000 > all[at].SLO*time.Duration(permille) {
				t.Fatalf("instance %+v is above %d thousandths of %v", one, permille, all[at].SLO)
			}
			reached[one.Model] += one.Rate
			compute += int(one.Slices)
		}
	}
	for _, d := range all {
		refused := slices.ContainsFunc(plan.Refused, func(r Refusal) bool { return r.Model == d.Model })
		if fast := slices.ContainsFunc(d.Variants, func(v Variant) bool { return v.Latency*1000 <= d.SLO*time.Duration(permille) }); fast == refused {
			t.Fatalf("model %s: refused %v, it has a variant that is fast enough: %v", d.Model, refused, fast)
		}
		if !refused && reached[d.Model] < d.Rate {
			t.Fatalf("model %s reaches %d of %d", d.Model, reached[d.Model], d.Rate)
		}
	}
	if plan.LowerBound > len(plan.Devices) || (!plan.Stats.Cut && !plan.Optimal) {
		t.Fatalf("%d devices, bound %d, optimal %v, %+v", len(plan.Devices), plan.LowerBound, plan.Optimal, plan.Stats)
	}
	return compute
}

// twin tries all choices of instances and returns the fewest devices, and with so many the fewest compute slices.
func twin(all []Demand, permille int, have counts) (devices, compute int) {
	if len(all) == 0 {
		for i, s := range Sizes() {
			compute += have[i] * int(s)
		}
		return have.used().devices(), compute
	}
	best := [len(sizes)]Rate{}
	for _, v := range all[0].Variants {
		if v.Latency*1000 <= all[0].SLO*time.Duration(permille) {
			i := slices.Index(Sizes(), v.Slices)
			best[i] = max(best[i], v.Rate)
		}
	}
	devices, compute = math.MaxInt, math.MaxInt
	var try func(i int, rest Rate, have counts)
	try = func(i int, rest Rate, have counts) {
		if rest <= 0 {
			if d, c := twin(all[1:], permille, have); d < devices || (d == devices && c < compute) {
				devices, compute = d, c
			}
			return
		}
		for ; i < len(best); i++ {
			if best[i] > 0 {
				more := have
				more[i]++
				try(i, rest-best[i], more)
			}
		}
	}
	try(0, all[0].Rate, have)
	return devices, compute
}

// TestPropertyTwin: a plan has as few devices, and on them as few compute slices, as any choice of instances. One that says
// that a bound cut the search, as for rates of very many instances, may have more.
func TestPropertyTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := demands(t, 3, 3)
		permille := rapid.SampledFrom([]int{300, 450, 1000}).Draw(t, "permille")
		plan := size(t, all, Config{Permille: permille})
		compute := checkPlan(t, all, plan, permille)
		served := slices.DeleteFunc(slices.Clone(all), func(d Demand) bool {
			return slices.ContainsFunc(plan.Refused, func(r Refusal) bool { return r.Model == d.Model })
		})
		devices, least := twin(served, permille, counts{})
		if plan.Stats.Cut && (len(plan.Devices) > devices || len(plan.Devices) == devices && compute >= least) {
			return
		}
		if len(plan.Devices) != devices || compute != least {
			t.Fatalf("%d devices with %d compute slices, cut %v, want %d with %d", len(plan.Devices), compute, plan.Stats.Cut, devices, least)
		}
	})
}

// TestPropertySize: plans for many models keep what is demanded, whatever the bounds of the search, and are the same in
// whatever order the demands come.
func TestPropertySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := demands(t, 8, 30)
		plan := size(t, all, Config{Permille: 1000})
		checkPlan(t, all, plan, 1000)
		short := size(t, all, Config{Permille: 1000, Sums: 1})
		checkPlan(t, all, short, 1000)
		if len(short.Devices) < plan.LowerBound || short.LowerBound != plan.LowerBound || (plan.Optimal && len(short.Devices) < len(plan.Devices)) {
			t.Fatalf("%d devices by a short search, %d by a long one, bound %d", len(short.Devices), len(plan.Devices), plan.LowerBound)
		}
		shuffled := rapid.Permutation(all).Draw(t, "order")
		for i := range shuffled {
			shuffled[i].Variants = rapid.Permutation(shuffled[i].Variants).Draw(t, "variants")
		}
		before := slices.Clone(shuffled)
		if diff := cmp.Diff(plan, size(t, shuffled, Config{Permille: 1000})); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, shuffled); diff != "" {
			t.Fatalf("the argument changed (-want +got):\n%s", diff)
		}
	})
}

// TestPropertySearch: a search finds the fewest devices if it keeps all sums; with a bar below that it finds nothing. One that
// keeps too few does not claim to be sure, and the second of a pair makes up for the first.
func TestPropertySearch(t *testing.T) {
	const all = 1 << 20
	rapid.Check(t, func(t *rapid.T) {
		var models []model
		for _, d := range demands(t, 5, 15) {
			o, refused := usableOf(&d, MaxSLO)
			if refused != nil {
				t.Fatalf("%+v", refused)
			}
			reached := Rate(0)
			for _, v := range o {
				if v != nil && v.Rate <= reached {
					t.Fatalf("rates do not rise with the sizes: %+v", o)
				} else if v != nil {
					reached = v.Rate
				}
			}
			m := model{name: d.Model, want: d.Rate, variants: o}
			m.mixes, m.whole = mixesOf(&m.variants, m.want)
			models = append(models, m)
		}
		p := &Plan{}
		best, cut := p.search(models, all, math.MaxInt)
		fewest := best.used.devices()
		if cut || boundOf(models) > fewest {
			t.Fatalf("cut %v, %d devices, bound %d", cut, fewest, boundOf(models))
		}
		barred, cut := p.search(models, all, fewest)
		if cut || barred == nil || compareSums(best, barred) != 0 {
			t.Fatalf("up to %d devices: found %+v, cut %v, want %+v", fewest, barred, cut, best)
		}
		if none, cut := p.search(models, all, fewest-1); none != nil || cut {
			t.Fatalf("up to %d devices: found %+v, cut %v", fewest-1, none, cut)
		}
		p = &Plan{LowerBound: boundOf(models)}
		if got := p.sum(models, 1, all).used.devices(); got != fewest || !p.Optimal {
			t.Fatalf("%d devices, optimal %v, want %d", got, p.Optimal, fewest)
		}
		p = &Plan{LowerBound: boundOf(models)}
		if got := p.sum(models, 1, 1).used.devices(); got < fewest || (p.Optimal && got > fewest) || (!p.Optimal && !p.Stats.Cut) {
			t.Fatalf("keeping one sum: %d devices, optimal %v, %+v, want %d", got, p.Optimal, p.Stats, fewest)
		}
	})
}

// TestPropertyMore: where plans are optimal, a higher rate, a shorter SLO and one more model never take fewer devices, and
// all rates times three, measured and wanted, take as many.
func TestPropertyMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := demands(t, 4, 6)
		i := rapid.IntRange(0, len(all)-1).Draw(t, "changed")
		limit := all[i].SLO
		for j := range all { // all can be served
			all[j].SLO *= 100
		}
		plan := size(t, all, Config{})
		higher, shorter, scaled := slices.Clone(all), slices.Clone(all), slices.Clone(all)
		higher[i].Rate += Rate(rapid.IntRange(0, 50).Draw(t, "more"))
		shorter[i].SLO = limit
		for j := range scaled {
			scaled[j].Rate *= 3
			scaled[j].Variants = slices.Clone(scaled[j].Variants)
			for v := range scaled[j].Variants {
				scaled[j].Variants[v].Rate *= 3
			}
		}
		for name, other := range map[string]*Plan{
			"a higher rate": size(t, higher, Config{}), "a shorter SLO": size(t, shorter, Config{}),
			"one more model": plan, "without one": size(t, slices.Delete(slices.Clone(all), i, i+1), Config{}),
		} {
			less, more := plan, other
			if name == "without one" {
				less, more = other, plan
			}
			if plan.Optimal && other.Optimal && len(other.Refused) == 0 && len(more.Devices) < len(less.Devices) {
				t.Fatalf("%s: %d devices, %d before", name, len(other.Devices), len(plan.Devices))
			}
		}
		if other := size(t, scaled, Config{}); len(other.Devices) != len(plan.Devices) {
			t.Fatalf("all rates times three: %d devices, %d before", len(other.Devices), len(plan.Devices))
		}
	})
}
