package bound

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestPrice compares a pricing with the best of all patterns at random prices, also with a floor above that, and with limits
// that cut the search: then it may miss the best pattern, and its upper value is still not below it.
func TestPrice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nodeType{count: 1, devices: rapid.IntRange(1, 3).Draw(t, "devices"), slots: 4}
		kinds := make([]float64, rapid.IntRange(1, 3).Draw(t, "kinds"))
		for k := range kinds {
			it := item{kind: k, width: rapid.IntRange(1, n.devices).Draw(t, "width"), slots: 4}
			if it.width == 1 {
				it.slots = rapid.IntRange(2, 4).Draw(t, "slots")
			}
			it.value = 250 * float64(it.width*it.slots)
			it.perDevice = rapid.SampledFrom([]float64{.1, .25, .3, .6}).Draw(t, "memory")
			it.needs = amounts{
				rapid.Float64Range(0, .6).Draw(t, "cpu"), rapid.Float64Range(0, .6).Draw(t, "host memory"),
				it.perDevice * float64(it.width) / float64(n.devices),
			}
			kinds[k] = rapid.Float64Range(-10, it.value).Draw(t, "price")
			n.items = append(n.items, it)
		}
		best := bestPattern(&n, kinds, 0, make([]int, n.devices), make([]float64, n.devices), amounts{})
		floor := best * rapid.SampledFrom([]float64{0, .5, .9, 1, 1.2}).Draw(t, "floor")
		f := fill{types: []nodeType{n}, demand: make([]int, len(kinds)), limits: usual}
		tight := rapid.Bool().Draw(t, "tight")
		if tight {
			f.limits = limits{rapid.IntRange(1, 3).Draw(t, "options"), rapid.IntRange(1, 5).Draw(t, "steps"), 1}
		}
		got := f.price(0, kinds, floor)
		if got.upper < best-1e-6 || got.cut && !tight {
			t.Fatalf("upper %v, best %v, floor %v, cut %v", got.upper, best, floor, got.cut)
		}
		if got.cut {
			return
		}
		if got.upper > max(best, floor)+1e-6 {
			t.Fatalf("upper %v, best %v, floor %v", got.upper, best, floor)
		}
		if found := got.best != nil; found != (best > floor+1e-9) && math.Abs(best-floor) > 1e-6 {
			t.Fatalf("found %v, best %v, floor %v", found, best, floor)
		}
		if got.best != nil {
			gain := got.best.value
			for i, k := range got.best.kinds {
				gain -= max(0, kinds[k]) * float64(got.best.counts[i])
			}
			if math.Abs(gain-best) > 1e-6 {
				t.Fatalf("pattern %+v gains %v, best %v", got.best, gain, best)
			}
		}
	})
}

// bestPattern tries all multisets of items from one on, and all devices for each.
func bestPattern(n *nodeType, kinds []float64, from int, slots []int, memory []float64, used amounts) (best float64) {
	for i := from; i < len(n.items); i++ {
		it := &n.items[i]
		next := used.plus(it.needs)
		if !next.within() || it.value <= kinds[i] {
			continue
		}
		for set := range 1 << n.devices {
			s, m, ok := with(slots, memory, it, set, n.slots)
			if ok {
				best = max(best, it.value-max(0, kinds[i])+bestPattern(n, kinds, i, s, m, next))
			}
		}
	}
	return best
}

// with adds an item to the devices of a set of bits, where it fits.
func with(slots []int, memory []float64, it *item, set, most int) (s []int, m []float64, ok bool) {
	width := 0
	for d := range slots {
		in := set >> d & 1
		width += in
		s, m = append(s, slots[d]+in*it.slots), append(m, memory[d]+float64(in)*it.perDevice)
		if s[d] > most || m[d] > full {
			return nil, nil, false
		}
	}
	return s, m, width == it.width
}
