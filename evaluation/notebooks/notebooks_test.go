package notebooks

import (
	"math"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/test/must"
)

func usual() *Notebooks {
	return &Notebooks{
		Count: 24, GPUs: 6, Slots: 4, Bursts: 4000, Seconds: 60, Duties: []float64{.1, .3, .4}, Seeds: []int64{1, 2, 3, 4, 5},
		Profile: interference.Profile{SM: 1, Bandwidth: .5},
	}
}

// closedQueue is the gain of a closed queue with so many customers that a processor serves in equal parts: the part of the time in which it works ÷
// the duty of one customer (the machine repairman's formula).
//
// Example: four at a duty of 0.3, with 3/7 of a burst's time for each idle time: 1 + 4·0.4286 + 12·0.1837 + 24·0.0787 + 24·0.0337 = 7.62, and
// (1 − 1/7.62) ÷ 0.3 = 2.90.
func closedQueue(customers int, duty float64) float64 {
	sum, term := 1.0, 1.0
	for k := range customers {
		term *= float64(customers-k) * duty / (1 - duty)
		sum += term
	}
	return (1 - 1/sum) / duty
}

// TestIdeal: without interference the gain is that of the closed queue, 3.9 at a duty of 10 %, 2.9 at 30 % and 2.38 at 40 %. The last notebook of
// the last GPU counts, whose luck costs a little.
func TestIdeal(t *testing.T) {
	for duty, want := range map[float64]float64{.1: 3.9, .3: 2.9, .4: 2.38} {
		if got := closedQueue(4, duty); math.Abs(got-want) > .05 {
			t.Errorf("the closed queue gains %v at %v, want %v", got, duty, want)
		}
	}
	out, err := usual().Run()
	must.OK(t, err)
	for _, p := range out.Rows[0].Points {
		if want := closedQueue(4, p.Duty); math.Abs(p.Ratio.Mean/want-1) > .03 {
			t.Errorf("at a duty of %v shares gain %v, the closed queue %v", p.Duty, p.Ratio.Mean, want)
		}
	}
	for k := range out.Rows[0].Points {
		ideal, unknown, hard := out.Rows[0].Points[k].Ratio.Mean, out.Rows[1].Points[k].Ratio.Mean, out.Rows[3].Points[k].Ratio.Mean
		if !(ideal > unknown && unknown > hard) {
			t.Errorf("gains are %v without interference, %v with it, %v with hard limits: want them to fall", ideal, unknown, hard)
		}
	}
}

// TestPlayGPU works two notebooks out: one is idle for 10 s and computes for 10 s, the other for 15 and 10. Both compute from 15 s on, at half the
// speed each: the first has 5 s left and ends at 25 s, the other has 5 s left then and ends at 30 s.
func TestPlayGPU(t *testing.T) {
	both := []session{{[]float64{10}, []float64{10}}, {[]float64{15}, []float64{10}}}
	if got := playGPU(both, 2, []float64{0, 1, .5}); math.Abs(got-30) > 1e-9 {
		t.Errorf("two that share end at %v s, want 30", got)
	}
	if got := playGPU(both, 1, []float64{0, 1}); math.Abs(got-45) > 1e-9 {
		t.Errorf("one after the other ends at %v s, want 20 + 25", got)
	}
	if got := (&Notebooks{GPUs: 1}).whole(both); got != 45 {
		t.Errorf("on a whole GPU they end at %v s, want 45", got)
	}
}

// TestPlace: the scheduler fills each GPU with as many as it has slots, and further ones wait behind them.
func TestPlace(t *testing.T) {
	n := usual()
	devices, err := n.place(30)
	must.OK(t, err)
	counts := make([]int, n.GPUs)
	for _, d := range devices {
		counts[d]++
	}
	for d, c := range counts {
		if c != 5 {
			t.Errorf("GPU %d has %d notebooks, want 5", d, c)
		}
	}
}
