package experiment

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/test/must"
)

// coRuns is a trace of made-up pairs: "ResNet18+LM .8 .5" is a pair with its speeds. Families are as in the traces, and 0
// stands for a pair that does not fit.
func coRuns(t testing.TB, layout csvtable.Format, gpu string, pairs ...string) *measurements.File {
	t.Helper()
	tr := &measurements.File{Trace: traces.Trace{File: "t.csv", Format: layout}}
	for i, text := range pairs {
		c := measurements.CoRun{Line: i + 2, GPU: gpu}
		names := ""
		if _, err := fmt.Sscanf(text, "%s %g %g", &names, &c.A.Speed, &c.B.Speed); err != nil {
			t.Fatal(err)
		}
		c.A.Workload, c.B.Workload, _ = strings.Cut(names, "+")
		c.A.Family, c.B.Family = measurements.Family(c.A.Workload), measurements.Family(c.B.Workload)
		c.A.Share, c.B.Share = 1000, 1000
		c.Fits = c.A.Speed > 0
		tr.CoRuns = append(tr.CoRuns, c)
	}
	return tr
}

func sets(t testing.TB, profiles []*measurements.File, pairs ...*measurements.File) []PairSet {
	t.Helper()
	all, err := PairSets(pairs, profiles, "oracle")
	must.OK(t, err)
	return all
}

// meanGuess predicts the harmonic mean of the speeds that it has seen, fitted or observed, and 0.8 before.
type meanGuess struct{ seen []*Pair }

func (g *meanGuess) observe(pairs []*Pair) error {
	g.seen = append(g.seen, pairs...)
	return nil
}

func (g *meanGuess) predict(*Pair) [2]float64 {
	sum := 0.0
	for _, c := range g.seen {
		sum += .5/c.Sides[0].Speed + .5/c.Sides[1].Speed
	}
	if len(g.seen) == 0 {
		return [2]float64{.8, .8}
	}
	return [2]float64{float64(len(g.seen)) / sum, float64(len(g.seen)) / sum}
}

func meanGuesses(_ string, _ *PairSet, seen []*Pair) (guesser, error) {
	return &meanGuess{seen: slices.Clone(seen)}, nil
}

// countGuess answers with how many pairs it knows.
type countGuess struct{ known float64 }

func (g *countGuess) observe(pairs []*Pair) error {
	g.known += float64(len(pairs))
	return nil
}

func (g *countGuess) predict(*Pair) [2]float64 { return [2]float64{g.known, g.known} }

func ran(t testing.TB, p *Predicting) *results.Interference {
	t.Helper()
	out, err := p.Run()
	must.OK(t, err)
	return out
}

// threeFamilies has pairs of LM, ResNet and NeuMF.
func threeFamilies(t testing.TB) []PairSet {
	return sets(t, nil, coRuns(t, measurements.GavelPairs, "k80",
		"LM+ResNet18 .5 .5", "LM+ResNet50 .5 .4", "LM+NeuMF 1 .8", "NeuMF+NeuMF .8 .8", "ResNet18+ResNet50 .5 .5"))
}

// TestPredictingByHand: the model says 0.8 of all ten speeds. They differ from it by 0.3 0.3, 0.3 0.4, 0.2 0, 0 0, 0.3 0.3, which is
// 0.21 on average. Their mean is 0.63, the sum of the squares about it 0.361, the sum of the squares of the errors 0.65. All
// pairs are admitted, and two of five keep the promise.
func TestPredictingByHand(t *testing.T) {
	p := &Predicting{Sets: threeFamilies(t), Observe: []int{0}, Models: []string{"m"}, Seeds: []int64{1, 2}, MaxSlowdown: 1.25, fit: meanGuesses}
	f := func(v float64) *float64 { return &v }
	want := results.InterferenceResult{
		Model: "m", Pairs: 5, Seeds: 1, Shown: f(0), MAE: f(.21), MAESD: f(0), R2: f(report.Round(1 - .65/.361)), Precision: f(.4), Recall: f(1),
	}
	if diff := cmp.Diff([]results.InterferenceResult{want}, ran(t, p).Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	// With a promise of 1.2 nothing is admitted and nothing might be: one of a pair of 0.8 and 1 breaks it.
	p.MaxSlowdown = 1.2
	if got := ran(t, p).Results[0]; got.Precision != nil || got.Recall != nil {
		t.Errorf("precision %v, recall %v, want none", got.Precision, got.Recall)
	}
}

// TestPredictingHoldsOut: without LM the model sees 0.8 0.8 and 0.5 0.5, a mean slowdown of 1.625 or 0.615 in speed, and is
// scored on the three pairs with LM; ResNet and NeuMF likewise. A fold sees no pair of its family, and scores no other.
func TestPredictingHoldsOut(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	p := &Predicting{Sets: threeFamilies(t), HoldOut: []string{"LM", "ResNet", "NeuMF"}, Observe: []int{0}, Models: []string{"m"}, Seeds: []int64{1}, MaxSlowdown: 1.25}
	p.fit = func(name string, set *PairSet, pairs []*Pair) (guesser, error) {
		mu.Lock()
		defer mu.Unlock()
		var names []string
		for _, c := range pairs {
			names = append(names, c.Sides[0].Workload+"+"+c.Sides[1].Workload)
		}
		seen[strings.Join(names, " ")]++
		return meanGuesses(name, set, pairs)
	}
	got := ran(t, p).Results[0]
	want := map[string]int{"NeuMF+NeuMF ResNet18+ResNet50": 1, "LM+NeuMF NeuMF+NeuMF": 1, "LM+ResNet18 LM+ResNet50 ResNet18+ResNet50": 1}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("fitted to (-want +got):\n%s", diff)
	}
	// LM: |0.5 − 1/1.625| = 0.1154 three times, |0.4 − …| = 0.2154, |1 − …| = 0.3846, |0.8 − …| = 0.1846: 1.1308 together.
	// ResNet: the slowdowns 1, 1.25, 1.25, 1.25 make 1/1.1875 = 0.8421; off by 0.3421 five times and 0.4421 once: 2.1526.
	// NeuMF: the slowdowns 2, 2, 2, 2.5, 2, 2 make 12/25 = 0.48; off by 0.52, 0.32, 0.32, 0.32: 1.48.
	if mae := (1.13077 + 2.15263 + 1.48) / 16; got.Pairs != 8 || math.Abs(*got.MAE-mae) > 1e-4 {
		t.Errorf("%d pairs, MAE %v, want 8 and %v", got.Pairs, *got.MAE, mae)
	}
}

// TestPredictingBySet: the results count what is left out, sets are told apart, and a family that only one of them has
// is held out only there.
func TestPredictingBySet(t *testing.T) {
	gavel := coRuns(t, measurements.GavelPairs, "k80", "LM+LM .5 .5", "LM+A3C 0 0", "A3C+A3C 1 1")
	gavel.CoRuns[2].Set = "simulation"
	fast := coRuns(t, measurements.GavelPairs, "v100", "LM+A3C .5 .5", "A3C+A3C 1 1")
	lucid := coRuns(t, measurements.LucidPairs, "rtx3090", "VGG11+TD3 1.4 .5", "TD3+TD3 .9 .9", "TD3+VGG11 .5 1.4")
	p := &Predicting{Sets: sets(t, nil, gavel, fast, lucid), HoldOut: []string{"LM"}, Observe: []int{0}, Models: []string{"m"}, Seeds: []int64{1}, MaxSlowdown: 1.25, fit: meanGuesses}
	out := ran(t, p)
	want := []results.InterferencePairs{
		{Layout: "gavel-pairs", GPU: "k80", Measured: 1, NoFit: 1, OtherSets: 1},
		{Layout: "gavel-pairs", GPU: "v100", Measured: 2},
		{Layout: "lucid-pairs", GPU: "rtx3090", Measured: 1, Dropped: 2},
	}
	if diff := cmp.Diff(want, out.Pairs); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
	var rows []string
	for _, r := range out.Results {
		rows = append(rows, fmt.Sprintf("%s %s %d", r.Layout, r.GPU, r.Pairs))
	}
	if diff := cmp.Diff([]string{"gavel-pairs k80 1", "gavel-pairs v100 1"}, rows); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	p.Sets = p.Sets[:2]
	if out := ran(t, p); out.Results[1].GPU != "v100" || out.Pairs[1].GPU != "v100" {
		t.Errorf("two sets are not told apart: %+v", out)
	}
	p.Sets = p.Sets[:1]
	if out := ran(t, p); out.Results[0].GPU != "" || out.Pairs[0].Layout != "" {
		t.Errorf("a single set is named: %+v", out)
	}
}

// TestPropertyObserved: of each workload that counts a model is shown so many co-runs, or all that it has; not more than all
// of them together need; each of them a scored pair of one that counts; and a seed always draws the same.
func TestPropertyObserved(t *testing.T) {
	names := []string{"LM", "ResNet18", "ResNet50", "NeuMF", "BERT", "TD3"}
	rapid.Check(t, func(rt *rapid.T) {
		var pairs []string
		for range rapid.IntRange(1, 20).Draw(rt, "pairs") {
			pairs = append(pairs, rapid.SampledFrom(names).Draw(rt, "a")+"+"+rapid.SampledFrom(names).Draw(rt, "b")+" .5 .5")
		}
		set := sets(t, nil, coRuns(t, measurements.GavelPairs, "k80", pairs...))[0]
		family := rapid.SampledFrom([]string{"", "ResNet", "LM"}).Draw(rt, "family")
		families, whose := []string{family}, rapid.SampledFrom(ObservedKinds()).Draw(rt, "whose")
		if family == "" {
			families = nil
		}
		k, seed := rapid.IntRange(0, 4).Draw(rt, "k"), rapid.Int64Range(0, 9).Draw(rt, "seed")
		for _, f := range set.folds(families) {
			if len(f.seen)+len(f.scored) != len(set.Pairs) {
				rt.Fatalf("%d pairs in the fold, want %d", len(f.seen)+len(f.scored), len(set.Pairs))
			}
			drawn := f.draw(k, whose, seed)
			if !slices.Equal(drawn, f.draw(k, whose, seed)) {
				rt.Fatal("the same seed draws others")
			}
			if history := len(f.seen); whose == ObservedHistory {
				if len(drawn) < history || !slices.Equal(drawn[:history], f.seen) {
					rt.Fatal("the pairs without the family do not come first")
				}
				drawn = drawn[history:]
			}
			all := 0
			for _, name := range names {
				if whose != ObservedAll && family != "" && measurements.Family(name) != family {
					continue
				}
				had, shown := 0, 0
				for _, c := range f.scored {
					if c.Sides[0].Workload == name || c.Sides[1].Workload == name {
						had++
						if slices.Contains(drawn, c) {
							shown++
						}
					}
				}
				if shown < min(k, had) {
					rt.Fatalf("%s is shown %d of %d co-runs, want %d", name, shown, had, k)
				}
				all += min(k, had)
			}
			for _, c := range drawn {
				if !slices.Contains(f.scored, c) {
					rt.Fatal("a pair is shown that is not scored")
				}
			}
			if len(drawn) > all || len(slices.Compact(slices.Clone(drawn))) != len(drawn) {
				rt.Fatalf("%d pairs are shown, want at most %d, each once", len(drawn), all)
			}
		}
	})
}

// TestPredictingScoresTheRest: pairs that a model was shown are not scored, and of a set that was shown as a whole there are
// no figures.
func TestPredictingScoresTheRest(t *testing.T) {
	p := &Predicting{Sets: threeFamilies(t), HoldOut: []string{"LM"}, Observe: []int{0, 1, 2, 9}, Observed: ObservedHeldOut, Models: []string{"m"}, Seeds: []int64{1, 2, 3}, MaxSlowdown: 1.25, fit: meanGuesses}
	out := ran(t, p)
	var pairs []int
	for _, r := range out.Results {
		pairs = append(pairs, r.Pairs)
	}
	if diff := cmp.Diff([]int{3, 2, 1, 0}, pairs); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
	// LM is in all three, its partners in one or two of them.
	for i, want := range []float64{0, 1, 2} {
		shown, left := *out.Results[i].Shown, float64(out.Results[i].Pairs)
		if most := (want*left + want) / (2 * left); shown < want/2 || shown > most {
			t.Errorf("%v co-runs are shown on average, want %v to %v", shown, want/2, most)
		}
	}
	// A model that answers with how many pairs it knows: two without LM, and those that it was shown.
	p.fit = func(_ string, _ *PairSet, seen []*Pair) (guesser, error) {
		return &countGuess{known: float64(len(seen))}, nil
	}
	known := ran(t, p).Results
	for i, want := range []float64{2 - 3.7/6, 3, 4} {
		if i > 0 { // the speeds that are left are between 0.4 and 1
			if got := *known[i].MAE; got < want-1 || got > want-.4 {
				t.Errorf("shown %d co-runs it errs by %v, want %v less a speed", i, got, want)
			}
		} else if got := *known[i].MAE; math.Abs(got-want) > 1e-4 {
			t.Errorf("shown none it errs by %v, want %v", got, want)
		}
	}
	if last := out.Results[3]; last.MAE != nil || last.R2 != nil || last.Precision != nil || last.Shown != nil || last.Seeds != 3 {
		t.Errorf("figures without pairs: %+v", last)
	}
	p.Observed = "" // all: each partner of LM draws the only pair that it has with it
	if out := ran(t, p); out.Results[1].Pairs != 0 {
		t.Errorf("%d pairs are left, want none", out.Results[1].Pairs)
	}
	p.Observed = "some"
	if _, err := p.Run(); err == nil || !strings.Contains(err.Error(), `"some"`) || !strings.Contains(err.Error(), "held-out") {
		t.Errorf("co-runs of some: error %v", err)
	}
}

// TestPredictingCountsWhatWasShown: of two co-runs of LM and ResNet18 one is shown. The other is then of two workloads that
// were both seen once, although only LM is held out. Another seed may show another one.
func TestPredictingCountsWhatWasShown(t *testing.T) {
	p := &Predicting{
		Sets:    sets(t, nil, coRuns(t, measurements.GavelPairs, "k80", "LM+ResNet18 .5 .5", "LM+ResNet18 .6 .6", "TD3+TD3 1 1")),
		HoldOut: []string{"LM"}, Observe: []int{1}, Observed: ObservedHeldOut, Models: []string{"m"}, Seeds: []int64{1}, MaxSlowdown: 1.25, fit: meanGuesses,
	}
	if got := ran(t, p).Results[0]; *got.Shown != 1 || got.Pairs != 1 {
		t.Errorf("%v co-runs are shown, %d pairs left; want 1 and 1", *got.Shown, got.Pairs)
	}
	f, other := p.Sets[0].folds(p.HoldOut)[0], false
	for seed := range int64(20) {
		other = other || f.draw(1, ObservedHeldOut, seed)[0] != f.draw(1, ObservedHeldOut, 0)[0]
	}
	if !other {
		t.Error("20 seeds draw the same co-run")
	}
}

// TestPredictingIsTheSameEveryTime: on any number of processors; and without co-runs whatever the order of the pairs.
func TestPredictingIsTheSameEveryTime(t *testing.T) {
	text := func(processors int, all []PairSet, observe ...int) string {
		before := runtime.GOMAXPROCS(processors)
		defer runtime.GOMAXPROCS(before)
		p := &Predicting{Sets: all, HoldOut: []string{"LM", "NeuMF"}, Observe: observe, Observed: ObservedHeldOut, Models: []string{"a", "b"}, Seeds: []int64{4, 5}, MaxSlowdown: 1.25, fit: meanGuesses}
		var b bytes.Buffer
		must.OK(t, report.JSON(&b, ran(t, p)))
		return b.String()
	}
	all := threeFamilies(t)
	if diff := cmp.Diff(text(1, all, 0, 1, 2), text(8, all, 0, 1, 2)); diff != "" {
		t.Errorf("on eight processors (-one +eight):\n%s", diff)
	}
	one := text(1, all, 0)
	slices.Reverse(all[0].Pairs)
	for i := range all[0].Pairs {
		sides := &all[0].Pairs[i].Sides
		sides[0], sides[1] = sides[1], sides[0]
	}
	if diff := cmp.Diff(one, text(1, all, 0)); diff != "" {
		t.Errorf("reversed (-before +after):\n%s", diff)
	}
}

func TestPairSetsRefuse(t *testing.T) {
	lucid := coRuns(t, measurements.LucidPairs, "rtx3090", "TD3+LM .9 .9")
	solo := func(workloads ...string) *measurements.File {
		tr := &measurements.File{Trace: traces.Trace{File: "s.csv", Format: measurements.LucidSingles}}
		for _, w := range workloads {
			tr.Solos = append(tr.Solos, measurements.Solo{GPU: "rtx3090", Workload: w, Share: 1000})
		}
		return tr
	}
	other := coRuns(t, measurements.GavelPairs, "k80", "LM+LM .5 .5")
	other.CoRuns[0].Set = "simulation"
	for _, tc := range []struct {
		name            string
		pairs, profiles []*measurements.File
		says            []string
	}{
		{"jobs as pairs", []*measurements.File{{Trace: traces.Trace{File: "jobs.csv", Jobs: make([]traces.Job, 2)}}}, nil, []string{"jobs.csv", "no pairs"}},
		{"pairs as profiles", []*measurements.File{lucid}, []*measurements.File{lucid}, []string{"t.csv", "no profiles"}},
		{"a profile is missing", []*measurements.File{lucid}, []*measurements.File{solo("TD3")}, []string{"t.csv line 2", `"LM"`, "100% of rtx3090"}},
		{"another measurement", []*measurements.File{other}, nil, []string{`"oracle"`, "simulation"}},
		{"nothing fits", []*measurements.File{coRuns(t, measurements.GavelPairs, "k80", "LM+LM 0 0")}, nil, []string{"no pair is left", "memory"}},
	} {
		_, err := PairSets(tc.pairs, tc.profiles, "oracle")
		for _, want := range tc.says {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one that says %q", tc.name, err, want)
			}
		}
	}
	with := sets(t, []*measurements.File{solo("TD3", "LM")}, lucid)
	if s := with[0].Pairs[0].Sides; s[0].Solo == nil || s[0].Solo.Workload != "TD3" || s[1].Solo.Workload != "LM" {
		t.Errorf("profiles %+v", s)
	}
	// Profiles of Lucid are not for the pairs of Gavel.
	if s := sets(t, []*measurements.File{solo("TD3")}, coRuns(t, measurements.GavelPairs, "rtx3090", "LM+LM .5 .5"))[0].Pairs[0].Sides; s[0].Solo != nil {
		t.Errorf("a profile for Gavel: %+v", s[0].Solo)
	}
}

func TestParseFamilies(t *testing.T) {
	lucid := coRuns(t, measurements.LucidPairs, "rtx3090", "TD3+LM .9 .9", "VGG11+LM 1 1", "ResNet18+MobileNetV3 1 1")
	for _, tc := range []struct{ list, want string }{
		{"all", "LM MobileNet ResNet TD3"},
		{"LM, TD3", "LM TD3"},
		{"resnet50,ResNet18,ResNet", "ResNet"},
		{"MobileNetV3", "MobileNet"},
		{"LM,BERT", `no pair has the family "BERT", legal are LM, MobileNet, ResNet, TD3, or all for each of them`},
		{"", `no pair has the family "", legal are LM, MobileNet, ResNet, TD3, or all for each of them`},
		{"VGG", `family "VGG" is left out of lucid-pairs, since its solo speed there is wrong; legal are LM, MobileNet, ResNet, TD3, or all for each of them`},
	} {
		families, err := ParseFamilies(tc.list, sets(t, nil, lucid))
		got := strings.Join(families, " ")
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.list, got, tc.want)
		}
	}
}
