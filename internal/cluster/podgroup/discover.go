package podgroup

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Served says which of the objects that a Set reads an API server has.
type Served struct {
	// Native is the version of scheduling.k8s.io whose PodGroups the set reads, "" for none.
	Native string
	// XK8s says whether the set reads the PodGroups of scheduling.x-k8s.io/v1alpha1.
	XK8s bool
	// Elastic says whether the API server has ElasticTargets.
	Elastic bool
}

// Resources are the resources that ServedOf checks.
func Resources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{membership.NativePodGroups, membership.StablePodGroups, membership.XK8sPodGroups, v1alpha1.ElasticTargets}
}

// ServedOf returns which objects the set reads from an API server with these resources. For Kubernetes' own PodGroups
// it prefers the version that the scheduler's queue knows.
func ServedOf(set served.Set) Served {
	s := Served{XK8s: set[membership.XK8sPodGroups], Elastic: set[v1alpha1.ElasticTargets]}
	switch {
	case set[membership.NativePodGroups]:
		s.Native = membership.NativePodGroups.Version
	case set[membership.StablePodGroups]:
		s.Native = membership.StablePodGroups.Version
	}
	return s
}

// Discover returns which objects the set reads from an API server.
func Discover(ctx context.Context, client discovery.DiscoveryInterface) (Served, error) {
	set, err := served.Ask(ctx, client, Resources()...)
	if err != nil {
		return Served{}, err
	}
	return ServedOf(set), nil
}

// native returns the resource of Kubernetes' PodGroups in the served version.
func (s Served) native() schema.GroupVersionResource {
	return membership.NativePodGroups.GroupResource().WithVersion(s.Native)
}
