package interference_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func newBook(tb testing.TB, most int) *interference.Book {
	tb.Helper()
	m, err := interference.ByName("default")
	must.OK(tb, err)
	return interference.NewBook(m, most)
}

// beside is a co-run on whole devices.
func beside(speed float64, of interference.Workload, others ...interference.Workload) interference.Observation {
	o := interference.Observation{GPU: 1, Of: interference.Runner{Workload: of, Cap: vgpu.WholeGPU}, Speed: speed}
	for _, w := range others {
		o.Beside = append(o.Beside, interference.Runner{Workload: w, Cap: vgpu.WholeGPU})
	}
	return o
}

func observe(tb testing.TB, b *interference.Book, o interference.Observation, times int) {
	tb.Helper()
	for range times {
		must.OK(tb, b.Observe(o))
	}
}

// speed is what the book expects of a workload beside others.
func speed(b *interference.Book, on ...interference.Workload) float64 {
	m, _ := interference.ByName("default")
	tenants := make([]interference.Tenant, 0, len(on))
	for _, w := range on {
		tenants = append(tenants, b.Tenant(w, 1, vgpu.WholeGPU))
	}
	return m.Predict(tenants, nil)[0].Speed
}

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > by {
		t.Errorf("%s is %v, want %v ± %v", what, got, want, by)
	}
}

// The book predicts what it sees repeatedly, for the pair and for both beside others.
func TestBookLearns(t *testing.T) {
	b := newBook(t, 100)
	first := speed(b, 1, 2)
	observe(t, b, beside(.5, 1, 2), 1)
	once := speed(b, 1, 2)
	observe(t, b, beside(.5, 1, 2), 20)
	near(t, "the pair after 21 co-runs", speed(b, 1, 2), .5, .04)
	if once >= first || once < .5 {
		t.Errorf("after one co-run at .5: %v, before %v", once, first)
	}
	observe(t, b, beside(.5, 1, 3), 5)
	observe(t, b, beside(.5, 1, 4), 5)
	if got := speed(b, 1, 5); got > .62 {
		t.Errorf("who suffers beside three neighbours is expected at %v beside a fourth, %v was expected of any", got, first)
	}
	if got := b.Traits(1, 1); got.CoRuns != 31 || got.SureSensitivity < .5 || b.Neighbours(1, 1) != 3 {
		t.Errorf("%+v, %d neighbours", got, b.Neighbours(1, 1))
	}
}

// The book learns a wrong speed without neighbours as the offset, which then says nothing of neighbours.
func TestLooseObservations(t *testing.T) {
	b := newBook(t, 100)
	for _, p := range []struct {
		w  interference.Workload
		sm float64
	}{{1, .9}, {2, .9}, {3, .1}, {4, .5}} {
		must.OK(t, b.Declare(p.w, 1, interference.Profile{SM: p.sm, Bandwidth: p.sm}))
	}
	const wrong = 1.6
	truth := map[interference.Workload]float64{2: speed(b, 1, 2), 3: speed(b, 1, 3), 4: speed(b, 1, 4)}
	for range 10 {
		for w, s := range truth {
			o := beside(s*wrong, 1, w)
			o.Loose = true
			observe(t, b, o, 1)
		}
	}
	for w, s := range truth {
		near(t, "a speed relative to a guess", speed(b, 1, w), s, .05)
	}
	if got := b.Traits(1, 1).Offset; got != 0 {
		t.Errorf("offset %v of an unmeasured speed without neighbours", got)
	}
	b.Rebase(interference.Runner{Workload: 1, Cap: vgpu.WholeGPU}, 1, 1/wrong)
	observe(t, b, beside(truth[2], 1, 2), 1)
	near(t, "the same once it was measured", speed(b, 1, 2), truth[2], .03)
	near(t, "the offset then", b.Traits(1, 1).Offset, 0, .05)
}

// Restart forgets what a workload reported of itself, not what others reported of it.
func TestRestartOfOne(t *testing.T) {
	b := newBook(t, 100)
	observe(t, b, beside(.5, 1, 2), 9)
	observe(t, b, beside(.6, 2, 1), 9)
	press, others := b.Traits(1, 1).Pressure, b.Traits(2, 1)
	b.Restart(1, 1)
	b.Restart(7, 1)
	if got := b.Traits(1, 1); got.CoRuns != 0 || got.Pressure != press || b.Pairs(1, 1) != nil {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(others, b.Traits(2, 1)); diff != "" {
		t.Errorf("the neighbour (-before +after):\n%s", diff)
	}
	observe(t, b, beside(.9, 1, 2), 9)
	near(t, "what is learned anew", speed(b, 1, 2), .9, .04)
}

// Learning continues from restored traits, with the doubt that was left.
func TestRestoredTraitsAreThePrior(t *testing.T) {
	fresh, sure, unsure := newBook(t, 100), newBook(t, 100), newBook(t, 100)
	traits := interference.Traits{Sensitivity: .6, Pressure: .4, CoRuns: 30, SureSensitivity: .95, SurePressure: .9, SureOffset: .5}
	for _, b := range []*interference.Book{sure, unsure} {
		must.OK(t, b.Restore(1, 1, traits))
		traits.SureSensitivity, traits.SurePressure = 0, 0
	}
	for _, b := range []*interference.Book{fresh, sure, unsure} {
		observe(t, b, beside(1, 1, 2), 1)
		observe(t, b, beside(1, 2, 1), 1)
	}
	s, u, f := sure.Traits(1, 1), unsure.Traits(1, 1), fresh.Traits(1, 1)
	near(t, "a sure sensitivity after one co-run that contradicts it", s.Sensitivity, .6, .25)
	near(t, "a sure pressure", s.Pressure, .4, .15)
	if !(f.Sensitivity < u.Sensitivity && u.Sensitivity < s.Sensitivity) {
		t.Errorf("sensitivity %v from nothing, %v where it was not sure, %v where it was", f.Sensitivity, u.Sensitivity, s.Sensitivity)
	}
	observe(t, sure, beside(1, 1, 2), 200)
	for w := range interference.Workload(10) {
		observe(t, sure, beside(1, 1, w+3), 20)
	}
	if got := sure.Traits(1, 1).Sensitivity; got > 0 {
		t.Errorf("sensitivity %v after many co-runs without harm", got)
	}
}

// The false reports of one workload do not raise the pressure of its neighbours where others report otherwise. Those of
// one owner with many workloads do not either.
func TestFalseReports(t *testing.T) {
	learn := func(liars int, owner func(i int) interference.Owner) float64 {
		b := newBook(t, 100)
		expected := speed(b, 1, 2)
		for round := range 10 {
			for i := range 6 + liars {
				w, o := interference.Workload(10+i), beside(expected, interference.Workload(10+i), 1)
				if i >= 6 {
					o.Speed = expected * []float64{.3, .7, .5}[(round+i)%3]
				}
				if o.Owner = owner(i); w == 0 {
					t.Fatal("no number")
				}
				observe(t, b, o, 1)
			}
		}
		b.Settle(5)
		return b.Traits(1, 1).Pressure
	}
	alone := func(int) interference.Owner { return 0 }
	near(t, "the pressure as six say it", learn(0, alone), 0, .05)
	near(t, "beside a liar", learn(1, alone), 0, .1)
	honest := func(i int) interference.Owner { return interference.Owner(1 + min(i, 6)) }
	many, tempered := learn(14, alone), learn(14, honest)
	if tempered >= many*.8 {
		t.Errorf("fourteen liars move the pressure by %v, those of one owner by %v", many, tempered)
	}
}

// One absurd speed among many moves a row little.
func TestOneAbsurdSpeed(t *testing.T) {
	b := newBook(t, 100)
	observe(t, b, beside(.8, 1, 2), 8)
	observe(t, b, beside(.001, 1, 2), 1)
	near(t, "the speed", speed(b, 1, 2), .8, .07)
	observe(t, b, beside(.8, 1, 2), 8)
	near(t, "the speed later", speed(b, 1, 2), .8, .04)
}

// An owner with many workloads beside one neighbour does not displace what others reported of it.
func TestOwnerWithManyWorkloads(t *testing.T) {
	pressure := func(flood int) float64 {
		b := newBook(t, 200)
		for w := range interference.Workload(8) {
			o := beside(.95, 10+w, 1)
			o.Owner = interference.Owner(2 + w)
			observe(t, b, o, 5)
		}
		for i := range flood {
			for _, said := range []interference.Observation{
				beside(.95, interference.Workload(50+i), 2), beside(.95, interference.Workload(50+i), 3), beside(.8, interference.Workload(50+i), 1),
			} {
				said.Owner = 1
				observe(t, b, said, 5)
			}
		}
		b.Settle(3)
		return b.Traits(1, 1).Pressure
	}
	before, after := pressure(0), pressure(60)
	if math.Abs(after-before) > .1 {
		t.Errorf("sixty workloads of one owner move the pressure from %v to %v", before, after)
	}
}

func TestRefusals(t *testing.T) {
	b := newBook(t, 10)
	whole := func(w interference.Workload) interference.Runner { return interference.Runner{Workload: w, Cap: 1000} }
	for name, o := range map[string]interference.Observation{
		"no number":            {GPU: 1, Of: whole(0), Beside: []interference.Runner{whole(1)}, Speed: 1},
		"no neighbour":         {GPU: 1, Of: whole(1), Speed: 1},
		"neighbour's number":   {GPU: 1, Of: whole(1), Beside: []interference.Runner{whole(0)}, Speed: 1},
		"too many":             {GPU: 1, Of: whole(1), Beside: slices.Repeat([]interference.Runner{whole(2)}, 5), Speed: 1},
		"NaN":                  {GPU: 1, Of: whole(1), Beside: []interference.Runner{whole(2)}, Speed: math.NaN()},
		"infinite":             {GPU: 1, Of: whole(1), Beside: []interference.Runner{whole(2)}, Speed: math.Inf(1)},
		"0":                    {GPU: 1, Of: whole(1), Beside: []interference.Runner{whole(2)}},
		"no cap":               {GPU: 1, Of: interference.Runner{Workload: 1}, Beside: []interference.Runner{whole(2)}, Speed: 1},
		"more than the device": {GPU: 1, Of: whole(1), Beside: []interference.Runner{{Workload: 2, Cap: 1001}}, Speed: 1},
	} {
		if err := b.Observe(o); err == nil || b.Len() != 0 {
			t.Errorf("%s: error %v, %d entries", name, err, b.Len())
		}
	}
	for name, err := range map[string]error{
		"declare 0": b.Declare(0, 1, interference.Profile{}), "declare NaN": b.Declare(1, 1, interference.Profile{SM: math.NaN()}),
		"restore 0":    b.Restore(0, 1, interference.Traits{}),
		"restore NaN":  b.Restore(1, 1, interference.Traits{Pressure: math.NaN()}),
		"restore 5":    b.Restore(1, 1, interference.Traits{Sensitivity: 5}),
		"restore sure": b.Restore(1, 1, interference.Traits{SureOffset: 1.5}),
		"restore less": b.Restore(1, 1, interference.Traits{CoRuns: -1}),
	} {
		if err == nil || b.Len() != 0 {
			t.Errorf("%s: error %v, %d entries", name, err, b.Len())
		}
	}
}

// A book goes with every model, also with those that learn nothing.
func TestBookOfEveryModel(t *testing.T) {
	for _, name := range append(interference.Models(), "") {
		m, err := interference.ByName(name)
		if (err != nil) != (name == "") {
			t.Fatal(err)
		}
		b := interference.NewBook(m, 10)
		observe(t, b, beside(.5, 1, 2), 3)
		b.Settle(2)
		out := m.Predict([]interference.Tenant{b.Tenant(1, 1, 1000), b.Tenant(2, 1, 1000)}, nil)
		if got := b.Traits(1, 1); got.CoRuns != 3 || got.Sensitivity <= 0 && name != "rank1" || math.IsNaN(out[0].Speed) {
			t.Errorf("%s: %+v, %+v", name, got, out)
		}
	}
}

// A full book drops the oldest workloads, and with them what others saw of them.
func TestEviction(t *testing.T) {
	b := newBook(t, 6)
	observe(t, b, beside(.4, 1, 2), 9)
	for w := interference.Workload(10); w < 20; w += 2 {
		observe(t, b, beside(.9, w, w+1), 3)
		observe(t, b, beside(.4, 1, 9), 1)
	}
	if b.Len() != 6 || b.Traits(1, 1).CoRuns != 14 || b.Traits(10, 1).CoRuns != 0 || b.Traits(18, 1).CoRuns != 3 {
		t.Errorf("%d entries, %+v", b.Len(), b.Traits(1, 1))
	}
	if got := b.Neighbours(1, 1); got != 1 {
		t.Errorf("%d neighbours are remembered, of two the one that is still known should be", got)
	}
	b.Forget(9)
	if got := b.Neighbours(1, 1); got != 0 {
		t.Errorf("%d neighbours after the last one was forgotten", got)
	}
}

// A forgotten workload leaves no row behind, although it does not know all rows that it is in.
func TestForgetThePopular(t *testing.T) {
	b := newBook(t, 100)
	for w := interference.Workload(2); w < 60; w++ {
		observe(t, b, beside(.5, w, 1), 1)
	}
	b.Forget(1)
	b.Settle(1)
	for w := interference.Workload(2); w < 60; w++ {
		if b.Neighbours(w, 1) != 0 || b.Pairs(w, 1) != nil {
			t.Fatalf("workload %d remembers the neighbour", w)
		}
	}
}
