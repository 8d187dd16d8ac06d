package traffic

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A T4 cannot serve the long requests, and serves the short ones for less than an A100: 9 long ones a second need an A100 (0.9 of it), and
// 100 short ones two T4, since 0.1 of the A100 is left for 10 of them. If the T4 may have only one replica, another A100 takes the rest.
func TestCheapestFor(t *testing.T) {
	mix := &Mix{Rates: []float64{9, 100}, Loads: [][]float64{{.1, 0}, {.01, .02}}}
	options := []Option{{Cost: 10, Most: 9}, {Cost: 3, Most: 9}}
	if got := CheapestFor(options, mix); !slices.Equal(got.Replicas, []int{1, 2}) || got.Cost != 16 || got.Cut {
		t.Errorf("%+v", got)
	}
	options[1].Most = 1
	if got := CheapestFor(options, mix); !slices.Equal(got.Replicas, []int{2, 0}) || got.Cost != 20 {
		t.Errorf("with one T4 at most: %+v", got)
	}
}

// With one A100 at most, the long requests are too many: no T4 helps them, so there are as many as the short ones need.
func TestCheapestForMoreThanTheMost(t *testing.T) {
	mix := &Mix{Rates: []float64{20, 100}, Loads: [][]float64{{.1, 0}, {.01, .02}}}
	got := CheapestFor([]Option{{Cost: 10, Most: 1}, {Cost: 3, Most: 9}}, mix)
	if !slices.Equal(got.Replicas, []int{1, 2}) {
		t.Errorf("%+v", got)
	}
	near(t, "the capacity", got.Capacity, 60, 1e-6) // with half of the requests the A100 is full
}

func drawOptions(t *rapid.T, most int) []Option {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Option {
		least := rapid.IntRange(0, 1).Draw(t, "least")
		return Option{Cost: rapid.Int64Range(1, 9).Draw(t, "cost"), Least: least, Most: least + rapid.IntRange(0, most).Draw(t, "more")}
	}), 1, 3).Draw(t, "options")
}

// The choice is the cheapest of all that are enough. If none is, it has no more capacity by more replicas.
func TestPropertyCheapestFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		options := drawOptions(t, 4)
		mix := drawMix(t, len(options))
		got := CheapestFor(options, mix)
		best, most := int64(math.MaxInt64), make([]int, len(options))
		for i := range options {
			most[i] = options[i].Most
			if n := got.Replicas[i]; n < options[i].Least || n > options[i].Most {
				t.Fatalf("%d replicas of %+v", n, options[i])
			}
		}
		eachChoice(options, func(replicas []int, cost int64) {
			if cost < best && isEnough(mix, replicas) {
				best = cost
			}
		})
		switch feasible := best < math.MaxInt64; {
		case got.Cut:
			t.Fatal("the search was cut")
		case feasible && (got.Cost != best || !isEnough(mix, got.Replicas) || got.Capacity < sumOf(mix.Rates)):
			t.Fatalf("%+v, and the cheapest costs %d", got, best)
		case !feasible && got.Capacity < capacityFor(mix, most)*(1-1e-6):
			t.Fatalf("%+v, and %v have capacity %v", got, most, capacityFor(mix, most))
		}
	})
}

func isEnough(mix *Mix, replicas []int) bool {
	return Assign(mix, numbers(replicas)).Busy <= 1+slack
}

func eachChoice(options []Option, try func(replicas []int, cost int64)) {
	replicas := make([]int, len(options))
	var next func(i int, cost int64)
	next = func(i int, cost int64) {
		if i == len(options) {
			try(replicas, cost)
			return
		}
		for n := options[i].Least; n <= options[i].Most; n++ {
			replicas[i] = n
			next(i+1, cost+int64(n)*options[i].Cost)
		}
	}
	next(0, 0)
}

// One class is sized as by Cheapest. Several together are no dearer than each alone.
func TestPropertyCheapestForAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := drawOptions(t, 200)
		for i := range options {
			options[i].Least = 0
		}
		mix := drawMix(t, len(options))
		sum, isPossible, together := int64(0), true, make([]int, len(options))
		for k, r := range mix.Rates {
			for i, load := range mix.Loads[k] {
				if options[i].Capacity = 0; load > 0 {
					options[i].Capacity = 1 / load
				}
			}
			want := Cheapest(options, r)
			got := CheapestFor(options, &Mix{Rates: []float64{r}, Loads: mix.Loads[k : k+1]})
			if want.Capacity >= r {
				if diff := cmp.Diff(want.Replicas, got.Replicas); diff != "" {
					t.Fatalf("class %d of %v (-Cheapest +CheapestFor):\n%s", k, mix, diff)
				}
			}
			sum += want.Cost
			for i, n := range want.Replicas {
				together[i] += n
				isPossible = isPossible && want.Capacity >= r && together[i] <= options[i].Most
			}
		}
		if got := CheapestFor(options, mix); isPossible && (got.Cost > sum || !isEnough(mix, got.Replicas)) {
			t.Fatalf("together they cost %d, each alone %d", got.Cost, sum)
		}
	})
}

// Eight classes on sixteen variants of thousands of replicas are sized in a bounded number of steps: enough, and hardly dearer than if parts of
// replicas could be had.
func TestCheapestForLarge(t *testing.T) {
	options, mix := make([]Option, 16), &Mix{}
	for i := range options {
		options[i] = Option{Cost: int64(7 + 13*i%17), Most: 5000}
	}
	for k := range 8 {
		loads := make([]float64, len(options))
		for i := range loads {
			if (i*7+k*3)%5 < 3 {
				loads[i] = .01 + .013*float64((i*i+3*k)%11)
			}
		}
		mix.Rates, mix.Loads = append(mix.Rates, 3000+float64(k*777)), append(mix.Loads, loads)
	}
	got := CheapestFor(options, mix)
	if least := cheapestParts(options, mix); float64(got.Cost) < least || float64(got.Cost) > 1.01*least {
		t.Errorf("it costs %d, and parts of replicas %v", got.Cost, least)
	}
	if !isEnough(mix, got.Replicas) {
		t.Errorf("%+v is not enough", got)
	}
}

// cheapestParts returns what the classes cost where parts of replicas could be had.
func cheapestParts(options []Option, mix *Mix) (sum float64) {
	for k, r := range mix.Rates {
		least := math.Inf(1)
		for i, load := range mix.Loads[k] {
			if load > 0 {
				least = min(least, float64(options[i].Cost)*r*load)
			}
		}
		sum += least
	}
	return sum
}
