package workloads

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/pods"
)

// rated returns a pod of a profile that wants a rate.
func rated(rate string, limits ...string) *v1.Pod {
	p := pods.Annotated(pods.New(limits...), v1alpha1.AnnotationRate, rate)
	p.Labels = map[string]string{v1alpha1.LabelProfile: "bert"}
	return p
}

func wanted(t *testing.T, p *v1.Pod) (placement.Wanted, bool, error) {
	t.Helper()
	r, err := kube.Request(p)
	if err != nil {
		t.Fatal(err)
	}
	return WantedRate(p, &r)
}

func TestWantedRate(t *testing.T) {
	for raw, want := range map[string]placement.Rate{
		"120": 120_000_000, "0.5": 500_000, "0.000001": 1, "1000000000000": placement.MaxRate, "007.250": 7_250_000,
	} {
		got, wants, err := wanted(t, rated(raw, "", "3"))
		if err != nil || !wants {
			t.Fatalf("%q: %v, %v", raw, wants, err)
		}
		if diff := cmp.Diff(placement.Wanted{Profile: "bert", Rate: want, Least: 3}, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", raw, diff)
		}
	}
	limited := rated("1", "3")
	limited.Annotations[v1alpha1.AnnotationModels] = "T4,A100"
	if got, _, err := wanted(t, limited); err != nil || !cmp.Equal(got.Models, []string{"A100", "T4"}) {
		t.Errorf("models %v, %v", got.Models, err)
	}
	for name, p := range map[string]*v1.Pod{"no rate": pods.New("3"), "no slots": rated("x", "")} {
		if got, wants, err := wanted(t, p); wants || err != nil {
			t.Errorf("%s: %+v, %v, %v; want nothing", name, got, wants, err)
		}
	}
}

func TestWantedRateRefuses(t *testing.T) {
	const rate, label = "metadata.annotations[tandem-gpu.io/rate]", "metadata.labels[tandem-gpu.io/profile]"
	nameless := rated("1", "3")
	nameless.Labels = nil
	cases := []struct {
		name, field, value string
		pod                *v1.Pod
	}{
		{"empty", rate, "", rated("", "3")},
		{"zero", rate, "0", rated("0", "3")},
		{"zero with decimals", rate, "0.000000", rated("0.000000", "3")},
		{"negative", rate, "-1", rated("-1", "3")},
		{"a sign", rate, "+1", rated("+1", "3")},
		{"seven decimals", rate, "0.0000001", rated("0.0000001", "3")},
		{"too high", rate, "1000000000000.000001", rated("1000000000000.000001", "3")},
		{"far too high", rate, "99999999999999999999", rated("99999999999999999999", "3")},
		{"a suffix", rate, "1k", rated("1k", "3")},
		{"an exponent", rate, "1e3", rated("1e3", "3")},
		{"not a number", rate, "NaN", rated("NaN", "3")},
		{"words", rate, "fast", rated("fast", "3")},
		{"blanks", rate, " 1", rated(" 1", "3")},
		{"no digit before the point", rate, ".5", rated(".5", "3")},
		{"no profile", label, "", nameless},
		{"two containers", rate, "1", rated("1", "3", "2")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, wants, err := wanted(t, c.pod)
			var got *kube.FieldError
			if !wants || !errors.As(err, &got) {
				t.Fatalf("%v, %v, want a FieldError", wants, err)
			}
			if got.Field != c.field || got.Value != c.value || got.MustReplace || got.Legal == "" {
				t.Errorf("%+v, want field %s, value %q", got, c.field, c.value)
			}
		})
	}
}

func TestRateMessages(t *testing.T) {
	nameless := rated("1", "3")
	nameless.Labels = nil
	_, _, err := wanted(t, nameless)
	want := "metadata.labels[tandem-gpu.io/profile]: a pod with the annotation tandem-gpu.io/rate needs this label: it names " +
		"the throughputs that tell what a rate takes; set the label and the pod is tried again"
	if err == nil || err.Error() != want {
		t.Errorf("without a profile: %v, want %s", err, want)
	}
	u := &placement.Unreachable{
		Wanted: placement.Wanted{Profile: "bert", Rate: 500_000_000}, Known: []string{"T4"}, Best: 320_500_000, Model: "T4", Share: 1000,
	}
	want = `metadata.annotations[tandem-gpu.io/rate]: "500" is not legal, profile bert reaches at most 320.5 (on a whole T4), ` +
		`the pod asks for 500; correct the annotation and the pod is tried again`
	if got := RateError(rated("500", "3"), u).Error(); got != want {
		t.Errorf("too high a rate: %s, want %s", got, want)
	}
	models := pods.Annotated(pods.New("3"), v1alpha1.AnnotationModels, "H100,K80")
	want = `metadata.annotations[tandem-gpu.io/gpu-models]: "H100,K80" is not legal, the cluster has none of these models ` +
		`but A100, T4; correct the annotation and the pod is tried again`
	got, ok := kube.FieldOf(models, vgpu.Refusal{Reason: vgpu.NoAllowedModel, Present: []string{"A100", "T4"}})
	if !ok || got.Error() != want {
		t.Errorf("no allowed model: %v, %v, want %s", got, ok, want)
	}
	if e, ok := kube.FieldOf(pods.New("3"), vgpu.Refusal{Reason: vgpu.NoAllowedModel}); ok {
		t.Errorf("a pod without the annotation: %v", e)
	}
}

func FuzzModels(f *testing.F) {
	for _, raw := range []string{"T4", "NVIDIA-A100-SXM4-40GB, Tesla-T4", "T4,T4", ",", " ", ""} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := kube.Request(pods.Annotated(pods.New("3"), v1alpha1.AnnotationModels, raw))
		if err == nil && (len(r.Variants) == 0 || r.Validate() != nil) {
			t.Fatalf("%q is read as %+v: %v", raw, r.Variants, r.Validate())
		}
	})
}

func FuzzWantedRate(f *testing.F) {
	for _, raw := range []string{"120", "0.5", "0.000001", "1000000000000", "-1", "1e9", ""} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		w, _, err := wanted(t, rated(raw, "3"))
		if err != nil {
			return
		}
		if w.Rate < 1 || w.Rate > placement.MaxRate {
			t.Fatalf("%q is rate %d", raw, w.Rate)
		}
		again, _, err := wanted(t, rated(w.Rate.String(), "3"))
		if err != nil || again.Rate != w.Rate {
			t.Fatalf("%q is %v, which reads as %v, %v", raw, w.Rate, again.Rate, err)
		}
	})
}

// A pod whose quota does not count what its rate or latency takes keeps the models that it allows, for those that look at it although it waits.
func TestChargeErrorLeavesModels(t *testing.T) {
	own := ReadProfile(profileOf(v1alpha1.WorkloadProfileSpec{Throughputs: []v1alpha1.ProfileThroughput{latencyPoint("A100", 50, "80ms"), latencyPoint("A100", 100, "40ms")}}))
	p := rated("", "1")
	p.Annotations = map[string]string{v1alpha1.AnnotationModels: "A100", v1alpha1.AnnotationMaxLatency: "40ms"}
	r, err := kube.Request(p)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(r.Variants)
	offers := []vgpu.Offer{{Device: vgpu.Device{Model: "A100", Slots: 10, Memory: 40 << 30}, Most: 1}}
	err = new(Curves).Complete(p, &r, own, offers)
	if err == nil || !strings.Contains(err.Error(), LabelOwnCurves) {
		t.Fatalf("the error is %v", err)
	}
	if len(before) == 0 || !slices.Equal(r.Variants, before) {
		t.Errorf("the variants are %+v, want %+v", r.Variants, before)
	}
}
