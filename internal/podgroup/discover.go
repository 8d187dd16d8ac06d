package podgroup

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/tandem-gpu/tandem/internal/kube"
)

// Served says which PodGroups an API server has.
type Served struct {
	// Native: those of scheduling.k8s.io/v1beta1.
	Native bool
	// XK8s: those of scheduling.x-k8s.io/v1alpha1.
	XK8s bool
}

// Discover asks an API server which PodGroups it has.
func Discover(ctx context.Context, client discovery.DiscoveryInterface) (Served, error) {
	var s Served
	var err error
	if s.Native, err = serves(ctx, client, kube.NativePodGroups); err != nil {
		return Served{}, err
	}
	if s.XK8s, err = serves(ctx, client, kube.XK8sPodGroups); err != nil {
		return Served{}, err
	}
	return s, nil
}

func serves(ctx context.Context, client discovery.DiscoveryInterface, gvr schema.GroupVersionResource) (bool, error) {
	version := gvr.GroupVersion().String()
	list, err := discovery.ToDiscoveryInterfaceWithContext(client).ServerResourcesForGroupVersionWithContext(ctx, version)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("discover %s of %s: %w", gvr.Resource, version, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }), nil
}
