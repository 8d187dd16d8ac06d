package elastic

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// randomOptions draws the options of up to so many jobs. The first option of each job is the size that it has.
func randomOptions(t *rapid.T, most int) [][]option {
	lists := make([][]option, rapid.IntRange(1, most).Draw(t, "jobs"))
	for j := range lists {
		unit := rapid.SampledFrom([]vgpu.MilliGPU{100, 500, 1000, 1000, 2000}).Draw(t, "unit")
		for range rapid.IntRange(1, 5).Draw(t, "options") {
			n := rapid.IntRange(0, 8).Draw(t, "size")
			if !slices.ContainsFunc(lists[j], func(o option) bool { return o.size == n }) {
				value := float64(rapid.IntRange(-20, 40).Draw(t, "value")) / 4
				lists[j] = append(lists[j], option{n, vgpu.MilliGPU(n) * unit, value})
			}
		}
	}
	return lists
}

// sum adds up what chosen options take and are worth.
func sum(lists [][]option, chosen []int) (takes vgpu.MilliGPU, value float64) {
	for j, i := range chosen {
		takes += lists[j][i].takes
		value += lists[j][i].value
	}
	return takes, value
}

// leastOf returns what the smallest options take together.
func leastOf(lists [][]option) (takes vgpu.MilliGPU) {
	for _, list := range lists {
		takes += slices.MinFunc(list, func(a, b option) int { return int(a.takes - b.takes) }).takes
	}
	return takes
}

// bruteForce returns the best value of all choices that fit.
func bruteForce(lists [][]option, capacity vgpu.MilliGPU) (best float64, fits bool) {
	if len(lists) == 0 {
		return 0, true
	}
	for i := range lists[0] {
		o := &lists[0][i]
		if o.takes > capacity {
			continue
		}
		if rest, ok := bruteForce(lists[1:], capacity-o.takes); ok && (!fits || o.value+rest > best) {
			best, fits = o.value+rest, true
		}
	}
	return best, fits
}

// TestOptionsProperty: the exact search finds the best choice. The greedy one is below it by at most the best step that it
// left out. Neither takes more than the capacity, where the smallest options fit at all.
func TestOptionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lists := randomOptions(t, 4)
		capacity := vgpu.MilliGPU(rapid.IntRange(0, 200).Draw(t, "capacity")) * 100
		best, fits := bruteForce(lists, capacity)
		chosen := bestOptions(lists, capacity, enoughSteps())
		takes, value := sum(lists, chosen)
		if !fits {
			if takes != leastOf(lists) {
				t.Fatalf("options %v take %d, the smallest ones %d, and %d is too little for them", chosen, takes, leastOf(lists), capacity)
			}
			return
		}
		if takes > capacity || value != best {
			t.Fatalf("options %v take %d of %d and are worth %v, the best are worth %v", chosen, takes, capacity, value, best)
		}
		base := make([]int, len(lists))
		most := 0.0
		for j, list := range lists {
			base[j] = slices.IndexFunc(list, func(o option) bool {
				return o.takes == slices.MinFunc(list, func(a, b option) int { return int(a.takes - b.takes) }).takes
			})
			for _, s := range hull(j, list, base[j]) {
				most = max(most, s.value)
			}
		}
		greedy := greedyOptions(lists, base, capacity-leastOf(lists))
		takes, value = sum(lists, greedy)
		if takes > capacity || value < best-most {
			t.Fatalf("greedy options %v take %d of %d and are worth %v, the best %v, the largest step %v", greedy, takes, capacity, value, best, most)
		}
	})
}

func enoughSteps() *int { return new(maxSteps) }

// TestMoreCapacityLaw: more capacity never lowers the value of the exact search.
func TestMoreCapacityLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lists := randomOptions(t, 8)
		capacity := leastOf(lists) + vgpu.MilliGPU(rapid.IntRange(0, 100).Draw(t, "capacity"))*100
		more := capacity + vgpu.MilliGPU(rapid.IntRange(0, 100).Draw(t, "more"))*100
		_, before := sum(lists, bestOptions(lists, capacity, enoughSteps()))
		if _, after := sum(lists, bestOptions(lists, more, enoughSteps())); after < before {
			t.Fatalf("worth %v with %d, %v with %d", before, capacity, after, more)
		}
	})
}

// TestHull is one job: 2 workers are worth less than on the line from 1 to 3, and 5 less than 4.
func TestHull(t *testing.T) {
	list := []option{{4, 4000, 6}, {1, 1000, 2}, {2, 2000, 2.5}, {3, 3000, 5}, {5, 5000, 5.5}}
	got := fmt.Sprint(hull(7, list, 1))
	if want := "[{7 3 2000 3} {7 0 1000 1}]"; got != want {
		t.Errorf("hull is %s, want %s", got, want)
	}
}
