package lifetime

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// say is a word of a pod.
type say struct{ age, done float64 }

func told(words ...say) *Progress {
	p := &Progress{}
	for _, w := range words {
		p.Say(w.age, w.done)
	}
	return p
}

func TestProjected(t *testing.T) {
	for _, c := range []struct {
		name  string
		words []say
		want  float64
	}{
		{"nothing", nil, 0},
		{"a quarter", []say{{900, .25}}, 3600},
		{"a half", []say{{1800, .5}}, 3600},
		{"a half, and once more", []say{{1800, .5}, {3000, .5}}, 3600},
		{"it resumes: as long again as it ran", []say{{60, .9}}, 120},
		{"it resumes, and has done something since: 300 s for each hundredth", []say{{60, .9}, {360, .91}}, 360 + 9*300},
		{"it resumes, and is done", []say{{60, .9}, {3060, 1}}, 3060},
		{"each hundredth from the start", []say{{36, .01}, {72, .02}, {108, .03}}, 3600},
		{"it slows down", []say{{36, .01}, {1800, .1}}, 18_000},
		{"it speeds up after its start: the slower of both", []say{{900, .1}, {1000, .5}}, 2000},
		{"a report just after the first sight of an old one", []say{{18_000, .5}, {18_001, .51}}, 18_001 / .51},
		{"it goes back behind its first word", []say{{900, .25}, {1000, .1}}, 10_000},
		{"it resumes, and goes back further: 300 s for each hundredth", []say{{60, .9}, {120, .5}, {420, .51}}, 420 + 49*300},
		{"it takes its word back", []say{{900, .25}, {1000, 0}}, 0},
		{"a word at its start", []say{{0, .5}}, 0},
		{"hardly anything, longer than any", []say{{1 << 20, 1e-6}}, 0},
		{"hardly anything since its first word, longer than any", []say{{10, .5}, {1 << 20, .500001}}, 0},
	} {
		if got := told(c.words...).Projected(); math.Abs(got-c.want) > 1e-6*c.want {
			t.Errorf("%s: projected are %v s, want %v s", c.name, got, c.want)
		}
	}
}

func TestJudged(t *testing.T) {
	hundredths := make([]say, 0, 100)
	for i := range 101 {
		hundredths = append(hundredths, say{float64(36 * i), float64(i) / 100})
	}
	for _, c := range []struct {
		name   string
		words  []say
		length float64
		want   float64
	}{
		{"nothing", nil, 3600, 0},
		{"each hundredth", hundredths, 3600, 3600},
		{"a half at half", []say{{1800, .5}}, 3600, 3600},
		{"a half at half, and 1 at the end", []say{{1800, .5}, {3600, 1}}, 3600, 3600},
		{"only near its end", []say{{3500, .97}}, 3600, 0},
		{"only at its end", []say{{3600, 1}}, 3600, 0},
		{".95 all the time: its age at 512 s", []say{{1, .95}}, 3600, 512},
		{".95 already as it starts", []say{{0, .95}}, 3600, 512},
		{"it resumes, and says so as it starts", []say{{0, .9}, {360, .91}}, 3600, 3600},
		{".95 all the time, and 1 at the end", []say{{1, .95}, {3600, 1}}, 3600, 512},
		{".95 from the middle on", append(slices.Clone(hundredths[:50]), say{1800, .95}), 3600, 2048},
		{"it did half of what it said", []say{{36, .02}, {1800, 1}}, 3600, 1800},
		{"it did twice of what it said", []say{{36, .005}}, 3600, 7200},
		{"it resumes, and tells each tenth of the job", []say{{60, .5}, {660, .6}, {1260, .7}, {1860, .8}}, 3060, 3060},
		{"always nearly done, and behind its first word at its end", []say{{1, .01}, {50, .95}, {100, .96}, {400, .97}, {3599, .001}, {3600, .002}}, 3600, 512},
		{"always nearly done, and takes that back at its end", []say{{1, .01}, {50, .95}, {100, .96}, {400, .97}, {3599, 0}, {3600, .97}}, 3600, 512},
		{"the same with a larger first word", []say{{1, .1}, {50, .95}, {100, .96}, {400, .97}, {3599, .05}, {3600, .051}}, 3600, 512},
		{"it goes back just when a word counts", []say{{1, .1}, {50, .95}, {100, .96}, {512, .05}, {600, .06}}, 3600, 512},
		{".95, soon taken back", []say{{1, .95}, {100, 0}}, 3600, 0},
		{"its length is a power of two", []say{{1, .95}}, 512, 128},
		{"a pod of less than a second", []say{{.5, .5}}, .9, 0},
	} {
		if got := told(c.words...).Judged(c.length); math.Abs(got-c.want) > 1e-6*c.want {
			t.Errorf("%s: judged by %v s, want %v s", c.name, got, c.want)
		}
	}
	p := told(hundredths[:30]...)
	before := *p
	if p.Judged(3600); *p != before {
		t.Error("judging a pod changes what it said")
	}
}

// words draws what a pod says that is right at every time: it had done a part of the job before its start, and goes on at one speed.
func words(t *rapid.T, resumed, length float64) (all []say) {
	parts := rapid.SliceOfN(rapid.Float64Range(.001, 1), 0, 20).Draw(t, "parts")
	for _, part := range slices.Sorted(slices.Values(parts)) {
		all = append(all, say{part * length, resumed + part*(1-resumed)})
	}
	return all
}

// A word that is right at every time counts as right, or for nothing. A pod that resumed is right once it has said two of them.
func TestRightWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := math.Exp2(rapid.Float64Range(4, 25).Draw(t, "octave"))
		resumed := rapid.SampledFrom([]float64{0, 0, .1, .5, .9}).Draw(t, "resumed")
		all := words(t, resumed, length)
		if resumed > 0 { // that it resumed is known after two words
			first, second := rapid.Float64Range(.001, .4).Draw(t, "first"), rapid.Float64Range(.41, .9).Draw(t, "second")
			all = slices.DeleteFunc(all, func(w say) bool { return w.age <= second*length })
			for _, part := range []float64{second, first} {
				all = slices.Insert(all, 0, say{part * length, resumed + part*(1-resumed)})
			}
		}
		p := told(all...)
		if got := p.Judged(length); got != 0 && math.Abs(got-length) > 1e-3*length {
			t.Fatalf("a pod of %v s that was right is judged by %v s", length, got)
		}
		if resumed == 0 && len(all) == 20 && all[0].age < length/8 && p.Judged(length) == 0 {
			t.Fatal("a pod that was right from early on counts for nothing")
		}
	})
}

// A word that does not change counts as wrong by a factor of at least 4, whatever the pod says at its end, and one that grows a little too.
func TestConstantWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := math.Exp2(rapid.Float64Range(4, 25).Draw(t, "octave"))
		done := rapid.Float64Range(.5, 1).Draw(t, "done")
		all := []say{{rapid.Float64Range(0, 1./16).Draw(t, "begin") * length, done}}
		if rapid.Bool().Draw(t, "complete") {
			all = append(all, say{length, 1})
		}
		if got := told(all...).Judged(length); !(got > 0 && got <= length/4) {
			t.Fatalf("a pod of %v s that said %v from %v s on is judged by %v s", length, done, all[0].age, got)
		}
	})
}

// All words of a pod have a legal result, and the same words have the same result at whatever ages it says them again.
func TestProgressLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		once, again := &Progress{}, &Progress{}
		age := 0.0
		for range rapid.IntRange(0, 20).Draw(t, "words") {
			age += seconds().Draw(t, "later") / 64
			done := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, .01, .5, 1})).Draw(t, "done")
			again.Say(age, again.done)
			once.Say(age, done)
			again.Say(age, done)
		}
		length := age + seconds().Draw(t, "rest")/2
		if *once != *again {
			t.Fatalf("%+v, and with words said again %+v", once, again)
		}
		for _, got := range []float64{once.Projected(), once.Judged(length)} {
			if err := legal("projected", got); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Pods that say 0.95 all the time are no longer believed after some ends, and pods that are right stay believed.
func TestTrust(t *testing.T) {
	after := func(ends int, words ...say) float64 {
		l := learner(t, Defaults())
		for range ends {
			o := Observation{Pod: Pod{User: "ann", Projected: told(words...).Judged(36_000)}, Length: 36_000}
			observe(t, l, o)
		}
		// It says that it ends in 400 s, and pods like it take 9 hours more. With no such ends that has a probability of 0.58, without a word 0.03
		// after eight ends.
		curve := predict(t, l, Pod{User: "ann", Projected: told(say{72, .02}, say{3600, .9}).Projected()}, 3600)
		return 1 - curve.Survival(800)
	}
	right, constant := []say{{360, .01}, {3600, .1}}, []say{{1, .95}}
	for _, ends := range []int{0, 1, 10, 24, 100} {
		if got := after(ends, right...); got < .55 {
			t.Errorf("after %d pods that were right it ends soon with a probability of %v", ends, got)
		}
	}
	for ends, most := range map[int]float64{4: .28, 8: .15, 24: .04} {
		if got := after(ends, constant...); got > most {
			t.Errorf("after %d pods that said .95 all the time it ends soon with a probability of %v, want %v or less", ends, got, most)
		}
	}
}
