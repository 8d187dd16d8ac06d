package membership

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Package podgroup tests how a PodGroup is read, with the gangs that it declares. This test checks that nothing that an API
// server may send breaks the reader.
func FuzzReadPodGroup(f *testing.F) {
	for _, raw := range []string{
		`{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup","metadata":{"name":"g","namespace":"ns"},"spec":{"minMember":4}}`,
		`{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup","spec":{"minMember":4.5}}`,
		`{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup","spec":[]}`,
		`{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup","spec":{"minMember":9223372036854775807}}`,
		`{"apiVersion":"scheduling.k8s.io/v1beta1","kind":"PodGroup","spec":{"schedulingPolicy":{"gang":{"minCount":4}}}}`,
		`{"apiVersion":"scheduling.k8s.io/v1beta1","kind":"PodGroup","spec":{"schedulingPolicy":{"gang":{"minCount":"x"}}}}`,
		`{"apiVersion":"scheduling.k8s.io/v1beta1","kind":"PodGroup","spec":{"schedulingPolicy":{"basic":{}},"schedulingConstraints":{"topology":[{"key":"a"},{"key":"a"}]}}}`,
		`{"apiVersion":"scheduling.k8s.io/v1beta1","kind":"PodGroup","metadata":{"annotations":{"tandem-gpu.io/required-topology":"a"},"creationTimestamp":"x"}}`,
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON([]byte(raw)) != nil {
			return
		}
		g, err := ReadPodGroup(u)
		native := strings.HasPrefix(u.GetAPIVersion(), "scheduling.k8s.io/")
		switch {
		case g.Object.Name != u.GetName() || g.Object.UID != u.GetUID():
			t.Fatalf("the object is %+v", g.Object)
		case err == nil && (g.MinCount < 1 || !native && g.MinCount > MaxMinMembers):
			t.Fatalf("%d members", g.MinCount)
		case err == nil && !native && len(g.Required) > 0:
			t.Fatalf("requires %q", g.Required)
		}
	})
}
