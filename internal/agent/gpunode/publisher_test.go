package gpunode

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// An agent that ends marks the GPUNode that is there. One that was deleted, before the agent reads it or after, stays deleted.
func TestLastStatusMakesNoGPUNode(t *testing.T) {
	last := v1alpha1.GPUNodeStatus{Conditions: []metav1.Condition{ReadyCondition(v1alpha1.ReadyStopping, "the agent was told to stop")}}
	for name, test := range map[string]struct{ there, deletedMeanwhile bool }{
		"there":             {there: true},
		"deleted":           {},
		"deleted meanwhile": {there: true, deletedMeanwhile: true},
	} {
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		p := &Publisher{Client: client.Resource(v1alpha1.GPUNodes), Self: client.Resource(SelfReviews), Node: "n1"}
		if test.there {
			g := &unstructured.Unstructured{}
			g.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
			g.SetName("n1")
			if _, err := p.Client.Create(t.Context(), g, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if test.deletedMeanwhile {
			client.PrependReactor("update", v1alpha1.GPUNodes.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewNotFound(v1alpha1.GPUNodes.GroupResource(), "n1")
			})
		}
		if err := p.PublishLast(t.Context(), last); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := p.Client.Get(t.Context(), "n1", metav1.GetOptions{})
		if !test.there {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s: the GPUNode is there again: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		if marked := len(conditions) == 1; marked == test.deletedMeanwhile {
			t.Errorf("%s: the conditions are %v", name, conditions)
		}
	}
}
