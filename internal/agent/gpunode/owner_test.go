package gpunode

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The GPUNode belongs to the node that the token names, and is created without an owner where it names none.
func TestGPUNodeBelongsToItsNode(t *testing.T) {
	extra := func(name, uid any) map[string]any { return map[string]any{tokenNodeName: name, tokenNodeUID: uid} }
	one := func(s string) []any { return []any{s} }
	mine := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-1"}}
	tests := map[string]struct {
		extra  map[string]any
		err    error
		want   []metav1.OwnerReference
		broken bool
	}{
		"token of the node":     {extra: extra(one("n1"), one("uid-1")), want: mine},
		"token of another node": {extra: extra(one("other"), one("uid-1"))},
		"token of no node":      {},
		"no UID":                {extra: map[string]any{tokenNodeName: one("n1")}},
		"two UIDs":              {extra: extra(one("n1"), []any{"uid-1", "uid-2"})},
		"not allowed to ask":    {err: apierrors.NewForbidden(SelfReviews.GroupResource(), "", errors.New("no"))},
		"API server away":       {err: errors.New("connection refused"), broken: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleDynamicClient(runtime.NewScheme())
			client.PrependReactor("create", SelfReviews.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				review := &unstructured.Unstructured{Object: map[string]any{}}
				_ = unstructured.SetNestedMap(review.Object, test.extra, "status", "userInfo", "extra")
				return true, review, test.err
			})
			p := &Publisher{Client: client.Resource(v1alpha1.GPUNodes), Self: client.Resource(SelfReviews), Node: "n1"}
			err := p.Publish(t.Context(), v1alpha1.GPUNodeStatus{})
			if (err != nil) != test.broken {
				t.Fatal(err)
			}
			got, err := p.Client.Get(t.Context(), "n1", metav1.GetOptions{})
			if test.broken {
				if !apierrors.IsNotFound(err) {
					t.Errorf("a GPUNode without its owner was created: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.GetOwnerReferences()); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}
