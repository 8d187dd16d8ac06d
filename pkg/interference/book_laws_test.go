package interference_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawObservation draws any legal co-run of few workloads.
func drawObservation(t *rapid.T) interference.Observation {
	runner := rapid.Custom(func(t *rapid.T) interference.Runner {
		return interference.Runner{
			Workload: interference.Workload(rapid.IntRange(1, 12).Draw(t, "workload")),
			Cap:      vgpu.MilliGPU(rapid.SampledFrom([]int{1, 250, 500, 1000}).Draw(t, "cap")),
		}
	})
	return interference.Observation{
		GPU:    interference.GPU(rapid.IntRange(1, 2).Draw(t, "gpu")),
		Of:     runner.Draw(t, "of"),
		Owner:  interference.Owner(rapid.IntRange(0, 3).Draw(t, "owner")),
		Beside: rapid.SliceOfN(runner, 1, interference.MaxBeside).Draw(t, "beside"),
		Speed:  min(10, math.Exp(rapid.Float64Range(math.Log(.0011), math.Log(10)).Draw(t, "speed"))),
		Loose:  rapid.Bool().Draw(t, "loose"),
	}
}

// After any observations, restores and forgets the book stays within its bounds. Traits stay finite and legal, and so
// do speeds.
func TestBookLaws(t *testing.T) {
	m, err := interference.ByName("default")
	must.OK(t, err)
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 20).Draw(t, "most")
		b := interference.NewBook(m, most)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w := interference.Workload(rapid.IntRange(1, 12).Draw(t, "w"))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				b.Forget(w)
				if b.Traits(w, 1).CoRuns != 0 || b.Pairs(w, 1) != nil {
					t.Fatalf("workload %d is not forgotten", w)
				}
			case 1:
				part := rapid.Float64Range(0, 1)
				must.OK(t, b.Declare(w, 1, interference.Profile{SM: part.Draw(t, "sm"), Bandwidth: part.Draw(t, "bandwidth")}))
			case 2:
				b.Settle(rapid.IntRange(0, 3).Draw(t, "rounds"))
			case 3:
				b.Restart(w, 1)
			case 4:
				b.Rebase(interference.Runner{Workload: w, Cap: 500}, 1, rapid.Float64().Draw(t, "factor"))
			default:
				must.OK(t, b.Observe(drawObservation(t)))
			}
			checkBook(t, b, max(most, interference.MaxBeside+1))
		}
	})
}

func checkBook(t *rapid.T, b *interference.Book, most int) {
	if b.Len() > most {
		t.Fatalf("%d entries, legal are %d", b.Len(), most)
	}
	m, _ := interference.ByName("default")
	for gpu := range interference.GPU(2) {
		var on []interference.Tenant
		for w := range interference.Workload(13) {
			tr := b.Traits(w, gpu+1)
			if err := b.Restore(w, gpu+1, tr); w > 0 && err != nil {
				t.Fatalf("traits of workload %d cannot be restored: %v", w, err)
			}
			if w > 0 && b.Len() <= most-1 {
				// Restoring what was learned changes nothing.
				again := b.Traits(w, gpu+1)
				if diff := cmp.Diff(tr, again, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
					t.Fatalf("traits of workload %d (-before +after):\n%s", w, diff)
				}
			}
			on = append(on, b.Tenant(w, gpu+1, 500))
		}
		for i := 0; i+4 <= len(on); i += 3 {
			for _, p := range m.Predict(on[i:i+4], nil) {
				if math.IsNaN(p.Speed) || p.Speed <= 0 || p.Speed > 100 || math.IsNaN(p.Error) || p.Error <= 0 {
					t.Fatalf("predicted %+v", p)
				}
			}
		}
	}
}

// The numbers that workloads have do not matter, and the order of the observations matters little once they are settled.
func TestOrderAndNumbersHardlyMatter(t *testing.T) {
	m, err := interference.ByName("default")
	must.OK(t, err)
	rapid.Check(t, func(t *rapid.T) {
		const workloads = 6
		part := rapid.Float64Range(.2, 1)
		profiles, suffers, harms := [workloads]interference.Profile{}, [workloads]float64{}, [workloads]float64{}
		for i := range profiles {
			profiles[i] = interference.Profile{SM: part.Draw(t, "sm"), Bandwidth: part.Draw(t, "bandwidth")}
			suffers[i], harms[i] = part.Draw(t, "suffers"), part.Draw(t, "harms")
		}
		var all [][2]int
		for i := range workloads {
			for j := range workloads {
				if i != j {
					all = append(all, [2]int{i, j})
				}
			}
		}
		learn := func(order [][2]int, number func(i int) interference.Workload) (speeds []float64) {
			b := interference.NewBook(m, 100)
			for i := range profiles {
				must.OK(t, b.Declare(number(i), 1, profiles[i]))
			}
			for _, p := range order {
				o := interference.Observation{
					GPU: 1, Of: interference.Runner{Workload: number(p[0]), Cap: 1000},
					Beside: []interference.Runner{{Workload: number(p[1]), Cap: 1000}}, Speed: 1 / (1 + suffers[p[0]]*harms[p[1]]),
				}
				must.OK(t, b.Observe(o))
			}
			b.Settle(30)
			for _, p := range all {
				on := []interference.Tenant{b.Tenant(number(p[0]), 1, 1000), b.Tenant(number(p[1]), 1, 1000)}
				speeds = append(speeds, m.Predict(on, nil)[0].Speed)
			}
			return speeds
		}
		plain := func(i int) interference.Workload { return interference.Workload(i + 1) }
		numbers := rapid.Permutation([]int{3, 5, 100, 7, 2, 41}).Draw(t, "numbers")
		before := learn(all, plain)
		renamed := learn(all, func(i int) interference.Workload { return interference.Workload(numbers[i]) })
		shuffled := learn(rapid.Permutation(all).Draw(t, "order"), plain)
		for i := range all {
			if math.Abs(renamed[i]/before[i]-1) > .01 {
				t.Fatalf("pair %v at %v, with other numbers at %v", all[i], before[i], renamed[i])
			}
			if math.Abs(shuffled[i]/before[i]-1) > .03 {
				t.Fatalf("pair %v at %v, in another order at %v", all[i], before[i], shuffled[i])
			}
		}
	})
}
