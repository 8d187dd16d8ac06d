package experiment

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// use is what the made-up workloads use of the SMs; the memory is as busy.
var use = map[string]float64{"Alder8": .2, "Alder16": .5, "Birch8": .7, "Birch16": .9, "Cedar8": 1, "Cedar16": .4}

// described is all pairs of the made-up workloads, with speeds by a law of the sum of their use, and their profiles.
func described(t *testing.T, law func(of, beside string) float64) []PairSet {
	t.Helper()
	names := []string{"Alder8", "Alder16", "Birch8", "Birch16", "Cedar8", "Cedar16"}
	solos := &measurements.File{Trace: traces.Trace{File: "s.csv", Format: measurements.LucidSingles}}
	var pairs []string
	for i, a := range names {
		solos.Solos = append(solos.Solos, measurements.Solo{
			GPU: "rtx3090", Workload: a, Batch: 8, Share: 1000, SM: use[a], Bandwidth: use[a], L2: math.NaN(), Rate: 80,
		})
		for _, b := range names[i:] {
			pairs = append(pairs, fmt.Sprintf("%s+%s %v %v", a, b, law(a, b), law(b, a)))
		}
	}
	return sets(t, []*measurements.File{solos}, coRuns(t, measurements.LucidPairs, "rtx3090", pairs...))
}

func hingeLaw(of, beside string) float64 { return .91 - .5*max(0, use[of]+use[beside]-1) }

// TestModelsAreFitted: where the speeds follow a hinge, the hinge that was fitted without a family tells those of the
// family; the shipped one does not, and nothing is fitted without families held out.
func TestModelsAreFitted(t *testing.T) {
	p := &Predicting{Sets: described(t, hingeLaw), HoldOut: []string{"Alder", "Cedar"}, Observe: []int{0}, Models: []string{"hinge", "linear-hinge"}, Seeds: []int64{1}, MaxSlowdown: 1.25}
	for _, r := range ran(t, p).Results {
		if *r.MAE != 0 || *r.Precision != 1 || *r.Recall != 1 {
			t.Errorf("%s errs by %v with precision %v and recall %v, want none", r.Model, *r.MAE, *r.Precision, *r.Recall)
		}
	}
	// Each side has its own speed: here the one that uses more is slower.
	own := &Predicting{
		Sets:    described(t, func(of, beside string) float64 { return .95 - .3*use[of] - .1*use[beside] }),
		HoldOut: []string{"Birch"}, Observe: []int{0}, Models: []string{"linear-hinge"}, Seeds: []int64{1}, MaxSlowdown: 1.25,
	}
	if got := *ran(t, own).Results[0].MAE; got != 0 {
		t.Errorf("a line through what each side uses errs by %v, want 0", got)
	}
	p.HoldOut = nil
	shipped, err := interference.ByName("hinge")
	must.OK(t, err)
	want := 0.0
	for _, c := range p.Sets[0].Pairs {
		on := []interference.Tenant{{SM: use[c.Sides[0].Workload]}, {SM: use[c.Sides[1].Workload]}}
		for i, at := range shipped.Predict(on, nil) {
			want += math.Abs(at.Speed-c.Sides[i].Speed) / float64(2*len(p.Sets[0].Pairs))
		}
	}
	if got := *ran(t, p).Results[0].MAE; math.Abs(got-want) > 1e-4 || got == 0 {
		t.Errorf("the shipped hinge errs by %v, want %v", got, want)
	}
}

// TestModelsLearn: two workloads suffer far more than their profiles say. Observations of them beside others tell how they
// do beside the rest; a model that does not learn errs as before.
func TestModelsLearn(t *testing.T) {
	law := func(of, beside string) float64 {
		if of == "Cedar8" || of == "Cedar16" {
			return .5 + .05*use[beside]
		}
		return .95 - .05*use[beside]
	}
	p := &Predicting{
		Sets: described(t, law), HoldOut: []string{"Cedar"}, Observe: []int{0, 3}, Observed: ObservedHeldOut,
		Models: []string{"default", "rank1", "table", "hinge", "none"}, Seeds: []int64{1, 2, 3}, MaxSlowdown: 1.25,
	}
	results := ran(t, p).Results
	for i := 0; i < len(results); i += 2 {
		before, after := *results[i].MAE, *results[i+1].MAE
		learns := results[i].Model != "hinge" && results[i].Model != "none"
		if learns && after > before/2 || !learns && after < before*.8 {
			t.Errorf("%s errs by %v before and %v after three co-runs", results[i].Model, before, after)
		}
	}
	// The table knows a pair that it was shown, exactly.
	set := &p.Sets[0]
	m, err := fitted("table", set, nil)
	must.OK(t, err)
	c := &set.Pairs[4]
	must.OK(t, m.observe([]*Pair{c}))
	if diff := cmp.Diff(c.speeds(), m.predict(c)); diff != "" {
		t.Errorf("the table (-measured +predicted):\n%s", diff)
	}
}

// TestTenantsUnderACap: a measurement under the very cap stands for itself, and the SMs that a workload may use are
// taken to be busy. The profile of the whole device is such that the largest cap makes of it what was measured there.
func TestTenantsUnderACap(t *testing.T) {
	solos := &measurements.File{Trace: traces.Trace{File: "s.csv", Format: measurements.IgniterCurves}}
	for _, s := range []struct {
		share     vgpu.MilliGPU
		bandwidth float64
		latency   time.Duration
	}{{200, .1, 40 * time.Millisecond}, {600, .25, 16 * time.Millisecond}, {400, .2, 20 * time.Millisecond}} {
		solos.Solos = append(solos.Solos, measurements.Solo{
			GPU: "v100", Workload: "vgg19", Batch: 4, Share: s.share, SM: math.NaN(), Bandwidth: s.bandwidth, L2: math.NaN(), Latency: s.latency,
		})
	}
	pairs := coRuns(t, measurements.IgniterPairs, "v100", "vgg19+vgg19 .9 .8", "vgg19+vgg19 .9 .8")
	for i, shares := range [][2]vgpu.MilliGPU{{200, 600}, {400, 600}} {
		pairs.CoRuns[i].A.Share, pairs.CoRuns[i].B.Share = shares[0], shares[1]
	}
	set := sets(t, []*measurements.File{solos}, pairs)[0]
	m, err := fitted("default", &set, nil)
	must.OK(t, err)
	near := cmpopts.EquateApprox(0, 1e-9)
	b := m.(*booked)
	for i, want := range []interference.Tenant{
		{Workload: 1, SM: .2, Bandwidth: .1, Cap: .2, Brisk: math.Sqrt(1. / 40)},
		{Workload: 1, SM: .6, Bandwidth: .25, Cap: .6, Brisk: math.Sqrt(1. / 16)},
	} {
		if diff := cmp.Diff(want, b.tenants(&set.Pairs[0])[i], near); diff != "" {
			t.Errorf("side %d (-want +got):\n%s", i, diff)
		}
	}
	if diff := cmp.Diff(interference.Runner{Workload: 1, Cap: 200}, b.runner(&set.Pairs[0].Sides[0])); diff != "" {
		t.Errorf("as observed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(interference.Tenant{Workload: 1, SM: .6, Bandwidth: .25, Cap: .6, Brisk: .25}, b.book.Tenant(1, setGPU, 600), near); diff != "" {
		t.Errorf("by the profile (-want +got):\n%s", diff)
	}
}

// TestTenantsOfTraining: profiles of Lucid are of the whole device; a step takes the batch ÷ the rate. Without a profile
// nothing is known.
func TestTenantsOfTraining(t *testing.T) {
	set := described(t, hingeLaw)[0]
	m, err := fitted("default", &set, nil)
	must.OK(t, err)
	for workload, class := range map[string]interference.Class{"Alder16": interference.ClassLight, "Birch16": interference.ClassTraining} {
		want := interference.Profile{SM: use[workload], Bandwidth: use[workload], Step: .1, Class: class}
		if diff := cmp.Diff(want, m.(*booked).book.Profile(set.numbers()[workload], setGPU)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", workload, diff)
		}
	}
	for i := range set.Pairs {
		set.Pairs[i].Sides[0].Solo, set.Pairs[i].Sides[1].Solo = nil, nil
	}
	if m, err = fitted("default", &set, nil); err != nil {
		t.Fatal(err)
	}
	if got := m.(*booked).tenants(&set.Pairs[0])[0]; !got.Guessed || got.Cap != 1 {
		t.Errorf("without a profile: %+v", got)
	}
}

// TestTenantsOfTheSuite: the GPU suite's profiles are found by the sharing and by the cap of each side, and the use of the SMs
// tells the class.
func TestTenantsOfTheSuite(t *testing.T) {
	read := func(text string) *measurements.File {
		tr, err := measurements.Read(strings.NewReader(text), "t.csv")
		must.OK(t, err)
		return tr
	}
	profiles := read(`gpu,sharing,model,percent,rate,gpu_util,gmem_util,gmem
h100,mps,decode,40,50,60,20,1024
h100,mps,decode,60,80,65,30,1024
h100,mps,compute,40,10,99,2,512
h100,time-slicing,decode,100,100,69,40,1024
h100,time-slicing,compute,100,25,99,5,512
`)
	all := sets(t, []*measurements.File{profiles}, read(`gpu,sharing,model1,percent1,rate1,solo_rate1,model2,percent2,rate2,solo_rate2
h100,time-slicing,decode,100,60,100,compute,100,10,25
h100,mps,compute,40,9,10,decode,60,60,80
h100,mps,decode,40,45,50,decode,60,72,80
`))
	type side struct {
		Speed float64
		Line  int // of its profile
	}
	got := map[string][][2]side{}
	for i := range all {
		for _, c := range all[i].Pairs {
			a, b := &c.Sides[0], &c.Sides[1]
			got[all[i].Name()] = append(got[all[i].Name()], [2]side{{a.Speed, a.Solo.Line}, {b.Speed, b.Solo.Line}})
		}
	}
	want := map[string][][2]side{
		"tandem-pairs on h100 mps":          {{{.9, 4}, {.75, 3}}, {{.9, 2}, {.9, 3}}},
		"tandem-pairs on h100 time-slicing": {{{.6, 5}, {.4, 6}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
	for i := range profiles.Solos {
		s, class := &profiles.Solos[i], interference.ClassLight
		if s.Workload == "compute" {
			class = interference.ClassTraining
		}
		if got := soloClass(measurements.TandemPairs, s); got != class {
			t.Errorf("%s on %v of %s is %v, want %v", s.Workload, s.Share, s.GPU, got, class)
		}
	}
}
