package experiment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/mig"
	"github.com/tandem-gpu/tandem/evaluation/results"
)

// served is a way to serve model m with a batch of 8 and one process.
func served(slices mig.Slices, rate float64, latency time.Duration) measurements.Serving {
	return measurements.Serving{Model: "m", Slices: slices, Batch: 8, Processes: 1, Rate: rate, Latency: latency}
}

// placed is an instance of it.
func placed(gpu, start int, slices mig.Slices) measurements.Deployed {
	return measurements.Deployed{Line: 2, GPU: gpu, Start: start, Model: "m", Slices: slices, Batch: 8, Processes: 1}
}

// sizing asks for a rate of m within 100 ms, and so 45 ms for a batch. Two slices reach 20 and three 30, but on three a batch
// takes a nanosecond too long. On seven it does not run.
func sizing(rate float64, published ...measurements.Deployed) *Rightsizing {
	r := &Rightsizing{
		Profile:  []measurements.Serving{served(2, 20, 45*time.Millisecond), served(3, 30, 45*time.Millisecond+1), served(7, 0, 0)},
		Sets:     []measurements.SLOSet{{Number: 4, SLOs: []measurements.SLO{{Model: "m", Rate: rate, Latency: 100 * time.Millisecond}}}},
		Permille: 450,
	}
	if published != nil {
		r.Published = map[int][]measurements.Deployed{4: published}
	}
	return r
}

func resultOf(t *testing.T, r *Rightsizing) results.SizedSet {
	t.Helper()
	out, err := r.Run()
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Results) != 1 {
		t.Fatalf("%d results, want 1", len(out.Results))
	}
	return out.Results[0]
}

func TestRightsizing(t *testing.T) {
	published, compute := 2, 8
	two := results.SizedInstance{Slices: 2, Batch: 8, Processes: 1, Throughput: 20, Latency: 45}
	at := func(gpu, start int) results.SizedInstance {
		one := two
		one.GPU, one.Start = gpu, start
		return one
	}
	want := results.SizedSet{
		Set: 4, GPUs: 2, Slices: 8, PublishedGPUs: &published, PublishedSlices: &compute, LowerBound: 2, Optimal: true,
		Models: []results.SizedModel{{
			Model: "m", Rate: 60.0001, Throughput: 80, SLO: 100, Limit: 45, Latency: 45,
			Instances: []results.SizedInstance{at(0, 0), at(0, 2), at(0, 4), at(1, 4)},
		}},
		Violations: []results.Violation{}, Notes: []string{},
	}
	got := resultOf(t, sizing(60.0001, placed(0, 0, 2), placed(0, 2, 2), placed(1, 0, 2), placed(1, 2, 2)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	want.PublishedGPUs, want.PublishedSlices = nil, nil
	if diff := cmp.Diff(want, resultOf(t, sizing(60.0001))); diff != "" {
		t.Errorf("without a deployment (-want +got):\n%s", diff)
	}
}

// TestRightsizingHoldsDeployments to the profile: each latency, each rate, each GPU.
func TestRightsizingHoldsDeployments(t *testing.T) {
	other, second := placed(0, 2, 2), placed(0, 0, 2)
	other.Model, second.Node = "other", 1
	batch := placed(0, 4, 2)
	batch.Batch = 9
	for name, tc := range map[string]struct {
		rate      float64
		published []measurements.Deployed
		violated  []string
		notes     []string
	}{
		"kept":               {40, []measurements.Deployed{placed(0, 0, 2), placed(0, 4, 2)}, nil, nil},
		"on two nodes":       {40, []measurements.Deployed{placed(0, 0, 2), second}, nil, nil},
		"a rate missed":      {41, []measurements.Deployed{placed(0, 0, 2), placed(0, 4, 2)}, []string{"published, m: it reaches 40 of 41 requests per second"}, nil},
		"a nanosecond late":  {20, []measurements.Deployed{placed(0, 4, 3)}, []string{"published, m: a batch takes 45.000001ms on 3 slices with batch 8 and 1 processes, above 45ms"}, nil},
		"another model":      {20, []measurements.Deployed{placed(0, 0, 2), other}, []string{"published, other: line 2 serves it, but it is not in the set"}, nil},
		"an unknown batch":   {20, []measurements.Deployed{placed(0, 0, 2), batch}, []string{"published, m: the profile has no 2 slices with batch 9 and 1 processes that run"}, nil},
		"what does not run":  {20, []measurements.Deployed{placed(0, 0, 2), placed(1, 0, 7)}, []string{"published, m: the profile has no 7 slices with batch 8 and 1 processes that run"}, nil},
		"too much on a GPU":  {20, []measurements.Deployed{placed(0, 0, 2), placed(0, 2, 2), placed(0, 4, 2), placed(0, 6, 2)}, []string{"published, GPU 0/0: instances of [2 2 2 2] slices do not fit on it, wherever they start"}, nil},
		"starts overlap":     {40, []measurements.Deployed{placed(0, 0, 2), placed(0, 1, 2)}, nil, []string{"published: the starts in the file overlap on 1 of 1 GPUs; with other starts the instances fit"}},
		"more than it needs": {41, []measurements.Deployed{placed(0, 0, 2), placed(0, 2, 2), placed(1, 4, 2)}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := resultOf(t, sizing(tc.rate, tc.published...))
			var violated []string
			for _, v := range got.Violations {
				violated = append(violated, v.String())
			}
			if diff := cmp.Diff(tc.violated, violated); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			if !slices.Equal(tc.notes, got.Notes) {
				t.Errorf("notes %q, want %q", got.Notes, tc.notes)
			}
		})
	}
}

// TestRightsizingNeedsMore: a deployment that does with less than any can is beaten by none, and the result says so.
func TestRightsizingNeedsMore(t *testing.T) {
	var violated []string
	for _, v := range resultOf(t, sizing(80, placed(0, 0, 2))).Violations {
		violated = append(violated, v.String())
	}
	want := []string{"published, m: it reaches 20 of 80 requests per second", "tandem: 2 GPUs, the published deployment has 1"}
	if diff := cmp.Diff(want, violated); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// TestRightsizingRefuses a model that nothing serves in time, once.
func TestRightsizingRefuses(t *testing.T) {
	r := sizing(20)
	r.Permille = 449
	got := resultOf(t, r)
	want := []results.Violation{{Deployment: "tandem", Model: "m", Reason: "the fastest batch takes 45ms, above 44.9ms"}}
	if diff := cmp.Diff(want, got.Violations); diff != "" || got.GPUs != 0 || len(got.Models) != 1 || len(got.Models[0].Instances) != 0 {
		t.Errorf("%+v, violations (-want +got):\n%s", got, diff)
	}
}

// TestRightsizingDistrustsPlans: a plan of its own is held to the set like any other, and its slowest instance counts.
func TestRightsizingDistrustsPlans(t *testing.T) {
	r := sizing(50)
	r.ways = index(r.Profile)
	instance := func(slices mig.Slices, start int) mig.Instance {
		return mig.Instance{Model: "m", Start: start, Variant: mig.Variant{Slices: slices, Batch: 8, Processes: 1}}
	}
	got := r.judge(&r.Sets[0], &mig.Plan{Devices: []mig.Device{{instance(3, 4), instance(2, 5)}}})
	var violated []string
	for _, v := range got.Violations {
		violated = append(violated, v.String())
	}
	want := []string{
		"tandem, m: a batch takes 45.000001ms on 3 slices with batch 8 and 1 processes, above 45ms",
		"tandem, GPU 0/0: an instance of 2 slices starts at 5: legal are [0 2 4]",
	}
	if diff := cmp.Diff(want, violated); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	r.Profile[1].Latency = 50 * time.Millisecond
	if got := r.judge(&r.Sets[0], &mig.Plan{Devices: []mig.Device{{instance(2, 0), instance(3, 4)}, {instance(2, 0)}}}); got.Models[0].Latency != 50 {
		t.Errorf("latency %v, want 50", got.Models[0].Latency)
	}
}

// TestRightsizingStarts: the checker finds starts that overlap or that MIG does not have. The results of Run never have them.
func TestRightsizingStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		deployed []measurements.Deployed
		want     string
	}{
		"side by side":       {[]measurements.Deployed{placed(0, 4, 3), placed(0, 0, 3)}, ""},
		"on two GPUs":        {[]measurements.Deployed{placed(0, 0, 7), placed(1, 0, 7)}, ""},
		"an odd start":       {[]measurements.Deployed{placed(0, 1, 2)}, "tandem, GPU 0/0: an instance of 2 slices starts at 1: legal are [0 2 4]"},
		"three need four":    {[]measurements.Deployed{placed(0, 0, 3), placed(0, 3, 1)}, "tandem, GPU 0/0: an instance of 1 slices that starts at 3 overlaps one of 3"},
		"two errors, told 1": {[]measurements.Deployed{placed(2, 0, 7), placed(2, 0, 1), placed(2, 1, 1)}, "tandem, GPU 0/2: an instance of 1 slices that starts at 0 overlaps one of 7"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &checker{name: "tandem", deployed: tc.deployed}
			c.starts()
			var all []string
			for _, v := range c.violations {
				all = append(all, v.String())
			}
			if got := strings.Join(all, "\n"); got != tc.want {
				t.Errorf("violations %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRightsizingError(t *testing.T) {
	r := sizing(1e6)
	r.Profile = []measurements.Serving{served(7, 1, 1)}
	_, err := r.Run()
	const want = "right-size set 4: size replicas: 1000000 devices or more are needed, at most 10000 are legal"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
