package workloads

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

func scalingOf(s *v1alpha1.ProfileScaling) *Workload {
	return ReadProfile(profileOf(v1alpha1.WorkloadProfileSpec{Scaling: s}))
}

func rateOf(workers, hosts int32, rate string) v1alpha1.ScalingRate {
	return v1alpha1.ScalingRate{Workers: workers, Hosts: hosts, Rate: resource.MustParse(rate)}
}

func withServers(servers int32, r v1alpha1.ScalingRate) v1alpha1.ScalingRate {
	r.Servers = servers
	return r
}

func ratesOf(list ...v1alpha1.ScalingRate) *v1alpha1.ProfileScaling {
	return &v1alpha1.ProfileScaling{Rates: list}
}

func resizeTime(d time.Duration) *v1alpha1.ProfileScaling {
	return &v1alpha1.ProfileScaling{ResizeTime: &metav1.Duration{Duration: d}}
}

func TestScaling(t *testing.T) {
	tests := []struct {
		name string
		spec *v1alpha1.ProfileScaling
		want Scaling
	}{
		{"nothing", nil, Scaling{ResizeTime: -1}},
		{"an empty declaration", &v1alpha1.ProfileScaling{}, Scaling{ResizeTime: -1}},
		{"no time at all", resizeTime(0), Scaling{ResizeTime: 0}},
		{"a time", resizeTime(90 * time.Second), Scaling{ResizeTime: 90 * time.Second}},
		{"the longest time", resizeTime(24 * time.Hour), Scaling{ResizeTime: 24 * time.Hour}},
		{"rates", ratesOf(rateOf(2, 0, "1.5"), rateOf(4, 1, "3"), rateOf(4, 2, "2500m"), rateOf(10_000, 10_000, "1T")), Scaling{ResizeTime: -1, Points: []elastic.Point{
			{Workers: 2, Rate: 1.5}, {Workers: 4, Hosts: 1, Rate: 3}, {Workers: 4, Hosts: 2, Rate: 2.5}, {Workers: 10_000, Hosts: 10_000, Rate: 1e12},
		}}},
		{"rates with servers", ratesOf(withServers(1, rateOf(4, 2, "3")), withServers(1, rateOf(4, 1, "4")), rateOf(4, 1, "5"), withServers(256, rateOf(4, 0, "6"))),
			Scaling{ResizeTime: -1, Points: []elastic.Point{{Workers: 4, Hosts: 1, Rate: 5}}, Combinations: []elastic.CombinationRate{
				{Combination: elastic.Combination{Workers: 4, Servers: 1}, Rate: 3}, {Combination: elastic.Combination{Workers: 4, Servers: 256}, Rate: 6},
			}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := scalingOf(test.spec)
			if diff := cmp.Diff(test.want, w.Scaling()); diff != "" {
				t.Errorf("scaling (-want +got):\n%s", diff)
			}
			if len(w.Malformed) > 0 {
				t.Errorf("malformed: %v", w.Malformed)
			}
			if diff := cmp.Diff(test.want, w.With(nil).Scaling()); diff != "" {
				t.Errorf("scaling beside other things learned (-want +got):\n%s", diff)
			}
		})
	}
}

// An illegal rate is passed over and named; the one before it and the one after it count.
func TestScalingPassesOver(t *testing.T) {
	const servers = "it must be a number from 1 to 256, or 0 for a gang without parameter servers"
	const workers, hosts, rate = "it must be a number from 1 to 10000, and no other entry may have it with these hosts and servers",
		"it must be a number from 1 to the number of workers, or 0 for any", "it must be a decimal above 0, at most 1T"
	for want, entry := range map[string]v1alpha1.ScalingRate{
		`spec.scaling.rates[1].workers: "0" is not legal, ` + workers:     rateOf(0, 0, "1"),
		`spec.scaling.rates[1].workers: "-1" is not legal, ` + workers:    rateOf(-1, 0, "1"),
		`spec.scaling.rates[1].workers: "10001" is not legal, ` + workers: rateOf(10_001, 0, "1"),
		`spec.scaling.rates[1].workers: "2" is not legal, ` + workers:     rateOf(2, 1, "1"), // as the first one
		`spec.scaling.rates[1].hosts: "-1" is not legal, ` + hosts:        rateOf(3, -1, "1"),
		`spec.scaling.rates[1].hosts: "4" is not legal, ` + hosts:         rateOf(3, 4, "1"),
		`spec.scaling.rates[1].servers: "-1" is not legal, ` + servers:    withServers(-1, rateOf(3, 0, "1")),
		`spec.scaling.rates[1].servers: "257" is not legal, ` + servers:   withServers(257, rateOf(3, 0, "1")),
		`spec.scaling.rates[1].rate: "0" is not legal, ` + rate:           rateOf(3, 0, "0"),
		`spec.scaling.rates[1].rate: "-1" is not legal, ` + rate:          rateOf(3, 0, "-1"),
		`spec.scaling.rates[1].rate: "1001G" is not legal, ` + rate:       rateOf(3, 0, "1001G"),
	} {
		w := scalingOf(ratesOf(rateOf(2, 1, "1"), entry, rateOf(2, 2, "2")))
		if diff := cmp.Diff([]string{want}, w.Malformed); diff != "" {
			t.Errorf("malformed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]elastic.Point{{Workers: 2, Hosts: 1, Rate: 1}, {Workers: 2, Hosts: 2, Rate: 2}}, w.Scaling().Points); diff != "" {
			t.Errorf("%s: the others (-want +got):\n%s", want, diff)
		}
	}
}

func TestMalformedResizeTime(t *testing.T) {
	for want, d := range map[string]time.Duration{
		`spec.scaling.resizeTime: "-1ns" is not legal, it must be from 0s to 24h`:    -1,
		`spec.scaling.resizeTime: "24h0m1s" is not legal, it must be from 0s to 24h`: 24*time.Hour + time.Second,
	} {
		w := scalingOf(resizeTime(d))
		if diff := cmp.Diff([]string{want}, w.Malformed); diff != "" {
			t.Errorf("malformed (-want +got):\n%s", diff)
		}
		if got := w.Scaling().ResizeTime; got != -1 {
			t.Errorf("%v counts as %v", d, got)
		}
	}
}

// If a profile says nothing illegal, core gets legal points.
func TestScalingIsLegal(t *testing.T) {
	w := scalingOf(ratesOf(rateOf(1, 1, "1n"), rateOf(10_000, 0, "1T")))
	if err := (&elastic.Curve{Points: w.Scaling().Points}).Validate(); err != nil || len(w.Scaling().Points) != 2 {
		t.Errorf("%v, malformed %s", err, strings.Join(w.Malformed, "; "))
	}
}
