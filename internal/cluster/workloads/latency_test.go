package workloads

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/test/pods"
)

// quick returns a pod of a profile that accepts a latency.
func quick(latency string, limits ...string) *v1.Pod {
	p := pods.Annotated(pods.New(limits...), v1alpha1.AnnotationMaxLatency, latency)
	return labelled(p, v1alpha1.LabelProfile, "bert")
}

func wantedLatency(t *testing.T, p *v1.Pod) (placement.Wanted, bool, error) {
	t.Helper()
	r, err := kube.Request(p)
	if err != nil {
		t.Fatal(err)
	}
	return WantedLatency(p, &r)
}

func TestWantedLatency(t *testing.T) {
	for raw, want := range map[string]time.Duration{
		"40ms": 40 * time.Millisecond, "1us": time.Microsecond, "1µs": time.Microsecond, "1h": time.Hour, "60m": time.Hour,
		"1.5s": 1500 * time.Millisecond, "1m0.5s": 60500 * time.Millisecond, "0h0m1s": time.Second,
	} {
		got, wants, err := wantedLatency(t, quick(raw, "", "3"))
		if err != nil || !wants {
			t.Errorf("%q: %v, %v", raw, wants, err)
			continue
		}
		if diff := cmp.Diff(placement.Wanted{Profile: "bert", Rate: latencyRate(want) - latencyRate(want)/1_000_000, Least: 3}, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", raw, diff)
		}
	}
	for name, p := range map[string]*v1.Pod{"no latency": pods.New("3"), "no slots": quick("x", "")} {
		if got, wants, err := wantedLatency(t, p); wants || err != nil {
			t.Errorf("%s: %+v, %v, %v; want nothing", name, got, wants, err)
		}
	}
}

func TestWantedLatencyRefuses(t *testing.T) {
	const latency, label = "metadata.annotations[tandem-gpu.io/max-latency]", "metadata.labels[tandem-gpu.io/profile]"
	nameless, both := quick("40ms", "3"), quick("40ms", "3")
	nameless.Labels = nil
	both.Annotations[v1alpha1.AnnotationRate] = "120"
	cases := []struct {
		name, field, value string
		pod                *v1.Pod
	}{
		{"no profile", label, "", nameless},
		{"two containers", latency, "40ms", quick("40ms", "3", "2")},
		{"a rate beside it", latency, "40ms", both},
	}
	for _, raw := range []string{
		"", "40", "40 ms", " 40ms", "-40ms", "+40ms", "0s", "0.9us", "999ns", "1h1us", "61m", "1e3ms", "NaN", "1,5s", "fast", ".5s", "1.s", "40MS",
		"1s1s1s1s1s", "99999999999h",
	} {
		cases = append(cases, struct {
			name, field, value string
			pod                *v1.Pod
		}{raw, latency, raw, quick(raw, "3")})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, wants, err := wantedLatency(t, c.pod)
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

func TestLatencyErrors(t *testing.T) {
	of := func(u placement.Unreachable) *placement.Unreachable {
		u.Wanted = placement.Wanted{Profile: "bert", Rate: latencyRate(20 * time.Millisecond)}
		return &u
	}
	best := latencyRate(40 * time.Millisecond)
	for want, u := range map[string]*placement.Unreachable{
		"the WorkloadProfile ns/bert has no latencies, or does not exist;":             of(placement.Unreachable{}),
		"profile bert takes at least 40ms (on a whole A100);":                          of(placement.Unreachable{Known: []string{"A100"}, Best: best, Model: "A100", Share: 1000}),
		"profile bert takes at least 40ms (on 2 whole A100);":                          of(placement.Unreachable{Known: []string{"A100"}, Best: best, Model: "A100", Share: 2000}),
		"profile bert takes at least 40ms (on 35 percent of one T4);":                  of(placement.Unreachable{Known: []string{"T4"}, Best: best, Model: "T4", Share: 350}),
		"profile bert has throughputs for T4; the cluster has A100; correct the annot": of(placement.Unreachable{Known: []string{"T4"}, Present: []string{"A100"}}),
	} {
		got := LatencyError(quick("20ms", "3"), u).Error()
		if !strings.Contains(got, `metadata.annotations[tandem-gpu.io/max-latency]: "20ms" is not legal, `+want) || strings.Contains(got, "%") {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func FuzzWantedLatency(f *testing.F) {
	for _, raw := range []string{"40ms", "1us", "1h", "1m0.5s", "-1s", "1e9s", ""} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		w, _, err := wantedLatency(t, quick(raw, "3"))
		if err != nil {
			return
		}
		if w.Rate < latencyRate(time.Hour) || w.Rate > latencyRate(time.Microsecond) {
			t.Fatalf("%q is rate %d", raw, w.Rate)
		}
	})
}
