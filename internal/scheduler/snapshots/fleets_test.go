package snapshots

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// The snapshot shows the fleets that the API server has at the moment: sorted, with the variants in the order of the fleet, and
// each variant with its own figures of the status. A variant without a status has no figures, and a fleet that cannot be read has
// no variants.
func TestFleets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		broken := fleetObject("b", "broken", nil, nil)
		broken.Object["spec"] = "no object"
		chat := fleetObject("b", "chat",
			[]any{variantSpec("small", "T4", 3), variantSpec("large", "A100", 40), variantSpec("new", "L4", 5)},
			[]any{variantStatus("large", 2, 1, 250), variantStatus("gone", 9, 9, 9), variantStatus("small", 7, 6, 750)})
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{v1alpha1.InferenceFleets: "InferenceFleetList"},
			chat, broken, fleetObject("a", "z", nil, nil))
		list, err := watchFleets(ctx, client)
		must.OK(t, err)
		none := []snapshot.Variant{}
		first := snapshot.InferenceFleet{Namespace: "a", Name: "z", Reason: "Decided", Variants: none}
		second := snapshot.InferenceFleet{Namespace: "b", Name: "broken", Variants: none}
		third := snapshot.InferenceFleet{Namespace: "b", Name: "chat", Reason: "Decided", Variants: []snapshot.Variant{
			{Name: "small", Model: "T4", Slots: 3, Replicas: 7, Ready: 6, WeightMilli: 750},
			{Name: "large", Model: "A100", Slots: 40, Replicas: 2, Ready: 1, WeightMilli: 250},
			{Name: "new", Model: "L4", Slots: 5},
		}}
		expect := func(what string, want ...snapshot.InferenceFleet) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, list()); diff != "" {
				t.Errorf("%s (- want, + got):\n%s", what, diff)
			}
		}
		expect("at first", first, second, third)

		fleets := client.Resource(v1alpha1.InferenceFleets)
		must.OK(t, fleets.Namespace("b").Delete(ctx, "broken", metav1.DeleteOptions{}))
		smaller := fleetObject("b", "chat", []any{variantSpec("large", "A100", 40)}, []any{variantStatus("large", 3, 3, 1000)})
		if _, err := fleets.Namespace("b").Update(ctx, smaller, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		third.Variants = []snapshot.Variant{{Name: "large", Model: "A100", Slots: 40, Replicas: 3, Ready: 3, WeightMilli: 1000}}
		expect("after a deletion and an update", first, third)
	})
}

func fleetObject(namespace, name string, spec, status []any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "InferenceFleet",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       map[string]any{"variants": spec},
		"status":     map[string]any{"reason": "Decided", "variants": status},
	}}
}

func variantSpec(name, model string, slots int64) map[string]any {
	return map[string]any{"name": name, "gpuModel": model, "slots": slots}
}

func variantStatus(name string, replicas, ready, weight int64) map[string]any {
	return map[string]any{"name": name, "replicas": replicas, "ready": ready, "weight": weight}
}
