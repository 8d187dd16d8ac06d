package gpunode

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
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

// The controller marks an agent whose kubelet does not report. The agent leaves the mark until it has something new to say of itself, or
// starts: both would write in turns for as long as the kubelet is silent.
func TestMarkOfTheControllerStays(t *testing.T) {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	publisher := func() *Publisher {
		return &Publisher{Client: client.Resource(v1alpha1.GPUNodes), Self: client.Resource(SelfReviews), Node: "n1"}
	}
	p := publisher()
	slots := int32(0)
	publish := func(reason string) {
		t.Helper()
		slots++ // a use that changes with each report
		want := v1alpha1.GPUNodeStatus{SlotCount: slots, Conditions: []metav1.Condition{ReadyCondition(reason, "of the agent")}}
		must.OK(t, p.Publish(t.Context(), want))
	}
	ready := func(reason string) {
		t.Helper()
		got, err := p.Client.Get(t.Context(), "n1", metav1.GetOptions{})
		must.OK(t, err)
		g := v1alpha1.GPUNode{}
		must.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &g))
		if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != reason || g.Status.SlotCount != slots {
			t.Errorf("Ready is %+v with %d slots, want %s with %d", c, g.Status.SlotCount, reason, slots)
		}
	}
	mark := func() {
		t.Helper()
		got, err := p.Client.Get(t.Context(), "n1", metav1.GetOptions{})
		must.OK(t, err)
		must.OK(t, unstructured.SetNestedSlice(got.Object, []any{map[string]any{"type": "Ready", "status": "Unknown", "reason": v1alpha1.ReadyAgentLost}}, "status", "conditions"))
		_, err = p.Client.UpdateStatus(t.Context(), got, metav1.UpdateOptions{})
		must.OK(t, err)
	}
	publish(v1alpha1.ReadyServing)
	mark()
	for range 3 {
		publish(v1alpha1.ReadyServing)
		ready(v1alpha1.ReadyAgentLost)
	}
	publish(v1alpha1.ReadyNotRegistered)
	ready(v1alpha1.ReadyNotRegistered)
	publish(v1alpha1.ReadyServing)
	ready(v1alpha1.ReadyServing)
	mark()
	p = publisher()
	publish(v1alpha1.ReadyServing)
	ready(v1alpha1.ReadyServing)
}
