package interference_test

import (
	"math"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// doubt is the standard error of what the book expects of a workload beside another.
func doubt(b *interference.Book, of, beside interference.Workload) float64 {
	m, _ := interference.ByName("default")
	return m.Predict([]interference.Tenant{b.Tenant(of, 1, vgpu.WholeGPU), b.Tenant(beside, 1, vgpu.WholeGPU)}, nil)[0].Error
}

// alikeWorkloads is a book that knows the profiles of so many workloads, from 1 on, which are the same.
func alikeWorkloads(t *testing.T, n interference.Workload) *interference.Book {
	t.Helper()
	b := newBook(t, 100)
	for w := range n {
		if err := b.Declare(w+1, 1, interference.Profile{SM: .8, Bandwidth: .3}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// The book believes a pair that it sees repeatedly, although it is far from what the other pairs of both predict.
func TestPairThatIsFarOff(t *testing.T) {
	b := alikeWorkloads(t, 8)
	for range 30 {
		for of := range interference.Workload(8) {
			for other := range interference.Workload(8) {
				seen := .92
				if of == 0 && other == 1 {
					seen = .55
				}
				if of != other {
					observe(t, b, beside(seen, of+1, other+1), 1)
				}
			}
		}
	}
	b.Settle(30)
	near(t, "the pair that is far off", speed(b, 1, 2), .55, .04)
	near(t, "another pair of the first", speed(b, 1, 3), .92, .03)
	near(t, "another pair of the second", speed(b, 3, 2), .92, .03)
}

// A pair stays known after its row has made room for others.
func TestPairWithoutARow(t *testing.T) {
	b := newBook(t, 100)
	observe(t, b, beside(.6, 1, 2), 3)
	b.Settle(1)
	for w := range interference.Workload(20) {
		observe(t, b, beside(.9, 1, w+10), 5)
	}
	b.Settle(1)
	if known, unseen := doubt(b, 1, 2), doubt(b, 1, 90); known > .8*unseen {
		t.Errorf("the doubt about the pair is %v, that about an unobserved one %v", known, unseen)
	}
	if known, unseen := speed(b, 1, 2), speed(b, 1, 90); known > unseen-.05 {
		t.Errorf("the pair is expected at %v, an unobserved one at %v", known, unseen)
	}
}

// forgetRow lets the row of a pair make room for those of twenty others.
func forgetRow(t *testing.T, b *interference.Book, of interference.Workload, seen float64) {
	t.Helper()
	for w := range interference.Workload(20) {
		observe(t, b, beside(seen, of, w+10), 5)
	}
	b.Settle(1)
}

// The book keeps the speed of a pair: it predicts that speed, however far the traits move afterwards.
func TestPairWithoutARowWhileTraitsMove(t *testing.T) {
	for _, others := range []float64{.98, .7} {
		b := newBook(t, 100)
		observe(t, b, beside(.6, 1, 2), 4)
		b.Settle(5)
		forgetRow(t, b, 1, others)
		forgetRow(t, b, 1, others)
		near(t, "the pair", speed(b, 1, 2), .6, .05)
		observe(t, b, beside(.9, 1, 2), 16)
		near(t, "the pair as it is seen again", speed(b, 1, 2), .9, .05)
	}
}

// A corrected speed without neighbours corrects the kept pairs, and a restarted workload keeps none.
func TestPairWithoutARowIsCorrectedAndForgotten(t *testing.T) {
	b := newBook(t, 100)
	observe(t, b, beside(.6, 1, 2), 4)
	forgetRow(t, b, 1, .9)
	before := speed(b, 1, 2)
	b.Rebase(interference.Runner{Workload: 1, Cap: vgpu.WholeGPU}, 1, 1.2)
	observe(t, b, beside(1.08, 1, 10), 1)
	near(t, "the pair by the corrected speed alone", speed(b, 1, 2), 1.2*before, .02)
	b.Restart(1, 1)
	observe(t, b, beside(.9, 1, 10), 1)
	if known, unseen := doubt(b, 1, 2), doubt(b, 1, 90); known < .9*unseen {
		t.Errorf("the doubt about the pair is %v after a new start, that about an unobserved one %v", known, unseen)
	}
}

// Two neighbours were seen together once: the doubt about each grows with the part of the loss that is unexplained.
func TestWhatIsUnexplainedIsDoubted(t *testing.T) {
	after := func(seen float64) float64 {
		b := alikeWorkloads(t, 12)
		for of := range interference.Workload(8) {
			for other := range interference.Workload(8) {
				if of != other {
					observe(t, b, beside(.92, of+1, other+1), 10)
				}
			}
		}
		b.Settle(10)
		observe(t, b, beside(seen, 1, 10, 11), 1)
		return doubt(b, 1, 10)
	}
	if usual, bad := after(.75), after(.6); bad < 1.15*usual {
		t.Errorf("the doubt beside one of two is %v after a loss of .4, and %v after the usual one of .25", bad, usual)
	}
}

// The number of kept pairs is bounded: the book drops the pair first whose row was replaced first.
func TestPairsAreForgottenInTheEnd(t *testing.T) {
	b := newBook(t, 100)
	observe(t, b, beside(.6, 1, 2), 4)
	observe(t, b, beside(.6, 3, 90), 4) // as much is known of 90 as of 2
	for w := range interference.Workload(60) {
		observe(t, b, beside(.9, 1, w+10), 5)
	}
	if first, unseen := doubt(b, 1, 2), doubt(b, 1, 90); first < .9*unseen {
		t.Errorf("the doubt about the first of 61 pairs is %v, that about an unobserved one %v", first, unseen)
	}
	if later, unseen := doubt(b, 1, 55), doubt(b, 1, 90); later > .8*unseen {
		t.Errorf("the doubt about one of the last pairs is %v, that about an unobserved one %v", later, unseen)
	}
}

// predicted is what the default model expects of the first of some tenants.
func predicted(on ...interference.Tenant) interference.Prediction {
	m, _ := interference.ByName("default")
	return m.Predict(on, nil)[0]
}

// Two neighbours of one workload are off by the same: their errors add up, those of two workloads only as squares.
func TestErrorsOfAlikeNeighboursAddUp(t *testing.T) {
	at := func(w interference.Workload) interference.Tenant {
		return interference.Tenant{Workload: w, SM: .5, Bandwidth: .2, Cap: 1, Traits: interference.Traits{SureOffset: 1, SureSensitivity: 1, SurePressure: 1}}
	}
	base := predicted(at(1), at(2)).Error
	two, alike := predicted(at(1), at(2), at(3)).Error, predicted(at(1), at(2), at(2)).Error
	pair := base*base - .0006
	near(t, "the variance beside two workloads", two*two-.0006, 2*pair, 1e-12)
	near(t, "the variance beside two of one workload", alike*alike-.0006, 4*pair, 1e-12)
	if got := predicted(at(1), at(0), at(0)).Error; got != two {
		t.Errorf("error %v beside two unknown workloads, want %v as beside two workloads", got, two)
	}
}

// A workload that lost less than its profile says has that much more doubt beside an unobserved neighbour.
func TestLosingLessIsDoubtedUntilSeen(t *testing.T) {
	at := func(w interference.Workload, sensitivity, level float64, guessed bool) interference.Tenant {
		return interference.Tenant{Workload: w, SM: .9, Bandwidth: .5, Cap: 1, Guessed: guessed, Traits: interference.Traits{
			Sensitivity: sensitivity, Level: level, SureOffset: 1, SureSensitivity: 1, SurePressure: 1,
		}}
	}
	usual := predicted(at(1, -1, -1, false), at(2, 0, 0, false))
	less := predicted(at(1, -1, 0, false), at(2, 0, 0, false))
	easier := -math.Log(usual.Speed) * (math.E - 1)
	near(t, "the variance by which it is doubted", less.Error*less.Error-usual.Error*usual.Error, easier*easier, 1e-12)
	if more := predicted(at(1, .5, 0, false), at(2, 0, 0, false)); more.Error > usual.Error {
		t.Errorf("the error is %v where it loses more than its profile says, want %v", more.Error, usual.Error)
	}
	if guess := predicted(at(1, -1, 0, false), at(2, 0, 0, true)); guess.Error > less.Error {
		t.Errorf("the error is %v beside a guessed profile, which says nothing, and %v beside a known one", guess.Error, less.Error)
	}
}
