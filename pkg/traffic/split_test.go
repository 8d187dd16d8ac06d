package traffic

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// A pool that cannot keep the promise gets nothing while the others keep it for all, and then takes the part of the requests that would queue
// without end elsewhere. Two equal pools of 10 a second are both full at 20.
func TestSplitBeyondTheCapacity(t *testing.T) {
	pools := []Pool{{Replica: single(10), Replicas: 1, Capacity: 6}, {Replica: single(10), Replicas: 1}}
	for _, x := range []struct{ demand, first, second float64 }{
		{5, 5, 0}, {6, 6, 0}, {13, 8, 5}, // 7 of 14 that both have beyond the capacity
		{19.9, 6 + 4*13.9/14, 13.9 / 1.4}, {30, 15, 15},
	} {
		for _, o := range Objectives {
			parts := Split(pools, x.demand, o, .99)
			near(t, "the part of the pool that keeps the promise", parts[0], x.first, 1e-6)
			near(t, "the part of the other pool", parts[1], x.second, 1e-6)
		}
	}
}

// A large pool that serves all of its rate within the promise gets that too where a small one has very little room beyond its capacity.
func TestSplitWhereTheCapacityIsNearlyTheRate(t *testing.T) {
	pools := []Pool{{Replica: single(10_000), Replicas: 1, Capacity: 10_000}, {Replica: single(1), Replicas: 1, Capacity: .5}}
	for demand, want := range map[float64]float64{10_000.4: .5, 10_000.5: .5, 10_000.9: .9} {
		for _, o := range Objectives {
			near(t, "the part of the small pool", Split(pools, demand, o, .99)[1], want, 1e-6)
		}
	}
}

// The pools are random, with capacities of which some are 0. None gets more than its capacity while all together have enough, and none is
// overloaded while another one has room. More requests take none from a pool beyond the capacity, and a little more requests change little
// at it, and where all are full.
func TestPropertySplitWithCapacities(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pools := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Pool {
			p := Pool{Replica: drawReplica(t), Replicas: float64(rapid.IntRange(0, 4).Draw(t, "replicas"))}
			if rapid.Bool().Draw(t, "keeps") {
				p.Capacity = p.Replica.top() * rapid.Float64Range(.01, 1).Draw(t, "capacity")
			}
			return p
		}), 1, 5).Draw(t, "pools")
		rate, capacity := 0.0, 0.0
		for i := range pools {
			rate += pools[i].Replicas * pools[i].Replica.Rate
			capacity += pools[i].Replicas * pools[i].Capacity
		}
		if capacity == 0 {
			return
		}
		objective := rapid.SampledFrom(Objectives).Draw(t, "objective")
		checked := func(demand float64) []float64 {
			parts, sum := Split(pools, demand, objective, .99), 0.0
			for i, p := range parts {
				sum += p
				most := pools[i].Replica.Rate
				if demand <= capacity {
					most = pools[i].Capacity
				}
				if p < 0 || demand < rate && p > pools[i].Replicas*most*(1+1e-6) {
					t.Fatalf("%s of %v: pool %d gets %v, %v is the most", objective, demand, i, p, pools[i].Replicas*most)
				}
			}
			if math.Abs(sum-demand) > 1e-6*demand {
				t.Fatalf("the sum of %v is %v, not %v", parts, sum, demand)
			}
			return parts
		}
		checked(capacity * rapid.Float64Range(.01, 1).Draw(t, "within"))
		beyond := rapid.Float64Range(0, 1).Draw(t, "beyond")
		less := checked(capacity + beyond*(rate-capacity))
		more := checked(capacity + min(1, beyond*1.1+.01)*(rate-capacity))
		for i := range less {
			if more[i] < less[i]-1e-6*rate {
				t.Fatalf("with more requests pool %d gets %v instead of %v", i, more[i], less[i])
			}
		}
		for _, edge := range []float64{capacity, rate} {
			before, after := checked(edge*(1-1e-9)), checked(edge*(1+1e-9))
			for i := range before {
				if math.Abs(before[i]-after[i]) > 1e-6*rate {
					t.Fatalf("at %v pool %d jumps from %v to %v", edge, i, before[i], after[i])
				}
			}
		}
	})
}
