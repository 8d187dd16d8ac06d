package traffic

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The example of Assign, then one whose busiest variant leaves two others to divide the short requests: these are equally busy.
func TestAssign(t *testing.T) {
	mix := &Mix{Rates: []float64{6, 60}, Loads: [][]float64{{.1, 0}, {.01, .02}}}
	got := Assign(mix, []float64{1, 1})
	for i, want := range [][]float64{{1, 0}, {1. / 3, 2. / 3}} {
		for k := range want {
			near(t, "a part", got.Parts[i][k], want[k], 1e-9)
		}
	}
	near(t, "the busiest", got.Busy, .8, 1e-9)
	mix = &Mix{Rates: []float64{9, 30}, Loads: [][]float64{{.1, 0, 0}, {.01, .02, .01}}}
	got = Assign(mix, []float64{1, 1, 1})
	near(t, "the busiest", got.Busy, .9, 1e-9)
	for i, want := range []float64{0, 1. / 3, 2. / 3} {
		near(t, "a part of the short ones", got.Parts[1][i], want, 1e-9)
	}
}

// A class without requests has the division of its first ones; one that no replica serves has none, and makes the fleet busy beyond all bounds
// only while its requests arrive.
func TestAssignBeforeTheFirstRequest(t *testing.T) {
	mix := &Mix{Rates: []float64{0, 50, 0}, Loads: [][]float64{{.1, .2}, {.02, .02}, {0, .1}}}
	got := Assign(mix, []float64{1, 0})
	if got.Parts[0][0] != 1 || got.Parts[2][0] != 0 || got.Parts[2][1] != 0 {
		t.Errorf("parts: %v", got.Parts)
	}
	near(t, "the busiest", got.Busy, 1, 1e-9)
	mix.Rates[2] = 1e-3
	if got := Assign(mix, []float64{1, 0}); !math.IsInf(got.Busy, 1) || got.Parts[1][0] != 1 {
		t.Errorf("with a class that no replica serves: %+v", got)
	}
	if got := Assign(mix, []float64{0, 0}); got.Parts[1][0] != 0 {
		t.Errorf("without replicas: %+v", got)
	}
}

func drawMix(t *rapid.T, variants int) *Mix {
	mix := &Mix{}
	for range rapid.IntRange(1, 4).Draw(t, "classes") {
		mix.Rates = append(mix.Rates, math.Exp(rapid.Float64Range(-3, 6).Draw(t, "rate")))
		loads, some := make([]float64, variants), rapid.IntRange(0, variants-1).Draw(t, "some")
		for i := range loads {
			if i == some || rapid.Bool().Draw(t, "serves") {
				loads[i] = math.Exp(rapid.Float64Range(-6, 1).Draw(t, "load"))
			}
		}
		mix.Loads = append(mix.Loads, loads)
	}
	return mix
}

// An assignment gives each class just its requests, none to a variant that does not serve it, and no other division has a busiest variant that
// is less busy. More replicas make it no busier, and more requests no less busy.
func TestPropertyAssign(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "variants")
		mix, replicas := drawMix(t, n), make([]float64, n)
		for i := range replicas {
			replicas[i] = rapid.Float64Range(.1, 9).Draw(t, "replicas")
		}
		got := Assign(mix, replicas)
		checkParts(t, mix, replicas, got)
		other := make([][]float64, len(mix.Rates))
		for k := range other {
			other[k] = drawParts(t, mix.Loads[k])
		}
		busiest := 0.0
		for i := range replicas {
			busiest = max(busiest, loadOf(mix, other, i)/replicas[i])
		}
		if busiest < got.Busy*(1-1e-7) {
			t.Fatalf("%v makes the busiest %v busy, and the assignment %v", other, busiest, got.Busy)
		}
		if bound := boundOf(mix, replicas, got.values); math.Abs(bound-got.Busy) > 1e-6*got.Busy {
			t.Fatalf("the classes %v make the busiest %v busy at least, and it is %v", got.values, bound, got.Busy)
		}
		at := rapid.IntRange(0, n-1).Draw(t, "where")
		replicas[at] *= 2
		if more := Assign(mix, replicas); more.Busy > got.Busy*(1+1e-7) {
			t.Fatalf("more replicas: %v busy, before %v", more.Busy, got.Busy)
		}
		replicas[at] /= 2
		mix.Rates[rapid.IntRange(0, len(mix.Rates)-1).Draw(t, "class")] *= 2
		if more := Assign(mix, replicas); more.Busy < got.Busy*(1-1e-7) {
			t.Fatalf("more requests: %v busy, before %v", more.Busy, got.Busy)
		}
	})
}

func checkParts(t *rapid.T, mix *Mix, replicas []float64, got Assignment) {
	for k := range mix.Rates {
		sum := 0.0
		for i, p := range got.Parts[k] {
			if sum += p; p < 0 || p > 0 && (mix.Loads[k][i] == 0 || replicas[i] == 0) {
				t.Fatalf("class %d: part %d of %v", k, i, got.Parts[k])
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("class %d: the sum of %v is %v", k, got.Parts[k], sum)
		}
	}
}

func drawParts(t *rapid.T, loads []float64) []float64 {
	parts, sum := make([]float64, len(loads)), 0.0
	for i := range parts {
		if loads[i] > 0 {
			parts[i] = rapid.Float64Range(1e-3, 1).Draw(t, "part")
			sum += parts[i]
		}
	}
	for i := range parts {
		parts[i] /= sum
	}
	return parts
}

// boundOf returns how busy some variant is at least, by the weak duality of linear programmes: each variant takes the class for which it has the
// highest value.
func boundOf(mix *Mix, replicas, values []float64) float64 {
	sum, most := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	for i, price := range pricesOf(mix, values) {
		most += replicas[i] * price
	}
	return sum / most
}

// With one class all replicas are equally busy, as in the division of Split at the capacity of all pools.
func TestPropertyAssignOneClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "variants")
		pools, replicas, loads, capacity := make([]Pool, n), make([]float64, n), make([]float64, n), 0.0
		for i := range pools {
			replicas[i] = rapid.Float64Range(.1, 9).Draw(t, "replicas")
			pools[i] = Pool{Replica: single(rapid.Float64Range(2, 50).Draw(t, "rate")), Replicas: replicas[i]}
			pools[i].Capacity = pools[i].Replica.Rate * rapid.Float64Range(.1, .9).Draw(t, "use")
			loads[i] = 1 / pools[i].Capacity
			capacity += replicas[i] * pools[i].Capacity
		}
		got := Assign(&Mix{Rates: []float64{capacity}, Loads: [][]float64{loads}}, replicas)
		for i, want := range Split(pools, capacity, Proportional, .99) {
			if math.Abs(got.Parts[0][i]*capacity-want) > 1e-6*capacity {
				t.Fatalf("variant %d gets %v, and %v by Split", i, got.Parts[0][i]*capacity, want)
			}
		}
	})
}
