package snapshots

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// fleetOf is what the informer keeps of an InferenceFleet.
type fleetOf struct {
	metav1.ObjectMeta
	shown snapshot.InferenceFleet
}

// watchFleets follows the InferenceFleets until ctx ends, and returns what lists them. A cluster may have none, or not the
// resource: the informer tries again.
func watchFleets(ctx context.Context, client dynamic.Interface) (func() []snapshot.InferenceFleet, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.InferenceFleets, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(condenseFleet); err != nil {
		return nil, fmt.Errorf("watch InferenceFleets: %w", err)
	}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch InferenceFleets: %w", err)
	}
	go informer.RunWithContext(ctx)
	return func() []snapshot.InferenceFleet { return fleetsIn(informer.GetStore()) }, nil
}

func fleetsIn(store cache.Store) []snapshot.InferenceFleet {
	var all []snapshot.InferenceFleet
	for _, object := range store.List() {
		if f, ok := object.(*fleetOf); ok {
			all = append(all, f.shown)
		}
	}
	slices.SortFunc(all, func(a, b snapshot.InferenceFleet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// condenseFleet turns an InferenceFleet into the part that a snapshot has. One that cannot be read keeps its name alone.
func condenseFleet(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	out := &fleetOf{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
		shown:      snapshot.InferenceFleet{Namespace: u.GetNamespace(), Name: u.GetName(), Variants: []snapshot.Variant{}},
	}
	var f v1alpha1.InferenceFleet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &f); err != nil {
		return out, nil //nolint:nilerr // the API server checks fleets; what it lets through is shown without variants
	}
	out.shown.Reason = f.Status.Reason
	for _, v := range f.Spec.Variants {
		variant := snapshot.Variant{Name: v.Name, Model: v.GPUModel, Slots: vgpu.Slots(v.Slots)}
		if at := slices.IndexFunc(f.Status.Variants, func(s v1alpha1.FleetVariantStatus) bool { return s.Name == v.Name }); at >= 0 {
			s := &f.Status.Variants[at]
			variant.Replicas, variant.Ready, variant.WeightMilli = int(s.Replicas), int(s.Ready), int(s.Weight)
		}
		out.shown.Variants = append(out.shown.Variants, variant)
	}
	return out, nil
}
