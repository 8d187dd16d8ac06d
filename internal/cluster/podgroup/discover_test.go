package podgroup

import (
	"slices"
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func TestServedOf(t *testing.T) {
	targets := v1alpha1.ElasticTargets
	beta, stable, xk8s := membership.NativePodGroups, membership.StablePodGroups, membership.XK8sPodGroups
	for _, test := range []struct {
		name string
		has  served.Set
		want Served
	}{
		{"nothing", served.Set{}, Served{}},
		{"Kubernetes 1.37", served.Set{beta: true}, Served{Native: "v1beta1"}},
		{"Kubernetes 1.38", served.Set{stable: true}, Served{Native: "v1"}},
		{"Kubernetes 1.38 with the older version on", served.Set{beta: true, stable: true}, Served{Native: "v1beta1"}},
		{"the scheduler plugins'", served.Set{xk8s: true}, Served{XK8s: true}},
		{"a controller's", served.Set{targets: true}, Served{Elastic: true}},
		{"all", served.Set{beta: true, stable: true, xk8s: true}, both},
	} {
		if got := ServedOf(test.has); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
		for resource := range test.has {
			if !slices.Contains(Resources(), resource) {
				t.Errorf("nobody asks for %v", resource)
			}
		}
	}
}
