package facts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
	"github.com/tandem-gpu/tandem/internal/kubectl/facts"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// read reads a cluster with some pods, whose API server answers one verb of a resource with an error.
func read(t *testing.T, pods []runtime.Object, verb, failing string, with error) (*checks.Facts, []string, error) {
	t.Helper()
	client := fake.NewClientset(pods...)
	custom := fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.GPUNodes: "GPUNodeList"})
	fail := func(a k8stesting.Action) (bool, runtime.Object, error) {
		return a.GetResource().Resource == failing && a.GetVerb() == verb, nil, with
	}
	client.PrependReactor("*", "*", fail)
	custom.PrependReactor("*", "*", fail)
	var steps []string
	step := func(s string, done, of int) {
		if done != len(steps) || of != len(sources)+1 {
			t.Errorf("%s: %d of %d are read before", s, done, of)
		}
		steps = append(steps, s)
	}
	f, err := facts.Read(t.Context(), client, custom, &facts.Options{Namespace: "tandem-system", Scheduler: "tandem-scheduler", Now: time.Unix(0, 0), Step: step})
	return f, steps, err
}

// sources are the resources that are read, with the verb.
var sources = map[checks.Source]string{
	checks.Nodes: "nodes", checks.GPUNodes: "gpunodes", checks.Pods: "pods", checks.Namespaces: "namespaces", checks.Deployments: "deployments",
	checks.DaemonSets: "daemonsets", checks.Leases: "leases", checks.Policies: "validatingadmissionpolicies", checks.Bindings: "validatingadmissionpolicybindings",
}

// The reader notes a Source that the caller may not read, by the verb that the Source names, and reads the rest. Another failure ends the reading
// and says of what.
func TestFailures(t *testing.T) {
	for source, name := range sources {
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: name}, "", errors.New("no right"))
		f, steps, err := read(t, nil, source.Verb(), name, forbidden)
		if err != nil || !slices.Equal(f.Refused, []checks.Source{source}) || len(steps) != len(sources)+1 {
			t.Errorf("%s: %v, %v, %v", source, f, steps, err)
		}
		if _, _, err := read(t, nil, source.Verb(), name, errors.New("etcd is away")); err == nil || !strings.Contains(err.Error(), "read "+string(source)) {
			t.Errorf("%s: the error is %v", source, err)
		}
	}
}

// A cluster that lacks a resource, since its API server is older, is read all the same.
func TestNotServed(t *testing.T) {
	for source, name := range sources {
		f, _, err := read(t, nil, source.Verb(), name, apierrors.NewNotFound(schema.GroupResource{Resource: name}, ""))
		if err != nil || len(f.Refused) > 0 || f.Lease != nil || len(f.GPUNodes)+len(f.Policies) > 0 {
			t.Errorf("%s: %v, %v", source, f, err)
		}
	}
}

// A list whose first pages the API server has forgotten is begun anew, and no object is kept twice.
func TestExpiredList(t *testing.T) {
	for expires, fails := range map[int]bool{1: false, 2: false, 9: true} {
		client, lists := fake.NewClientset(), 0
		client.PrependReactor("list", "namespaces", func(a k8stesting.Action) (bool, runtime.Object, error) {
			if list, ok := a.(k8stesting.ListActionImpl); !ok || list.ListOptions.Continue == "" {
				lists++
				return true, &v1.NamespaceList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}, nil
			}
			if lists <= expires {
				return true, nil, apierrors.NewResourceExpired("too old")
			}
			return true, &v1.NamespaceList{Items: []v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}}}, nil
		})
		custom := fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.GPUNodes: "GPUNodeList"})
		f, err := facts.Read(t.Context(), client, custom, &facts.Options{Namespace: "tandem-system", Scheduler: "tandem-scheduler", Step: func(string, int, int) {}})
		switch {
		case fails && (err == nil || !apierrors.IsResourceExpired(err)):
			t.Errorf("expired %d times: %v", expires, err)
		case !fails && (err != nil || len(f.Namespaces) != 2 || f.Namespaces[0].Name != "a" || f.Namespaces[1].Name != "b"):
			t.Errorf("expired %d times: %v, %v", expires, f, err)
		}
	}
}

// Only the pods that a check looks at are kept, of a list in pages.
func TestPods(t *testing.T) {
	pod := func(namespace, name string, c v1.Container) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.PodSpec{Containers: []v1.Container{c}}}
	}
	vgpu := v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("1")}}}
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		list, ok := a.(k8stesting.ListActionImpl)
		if !ok || list.ListOptions.Limit == 0 {
			return true, nil, errors.New("the list has no limit")
		}
		if list.ListOptions.Continue == "" {
			return true, &v1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []v1.Pod{*pod("a", "web", v1.Container{}), *pod("a", "train", vgpu)}}, nil
		}
		return true, &v1.PodList{Items: []v1.Pod{*pod("tandem-system", "agent", v1.Container{}), *pod("a", "plugin", v1.Container{Image: "nvidia/k8s-device-plugin"})}}, nil
	})
	custom := fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.GPUNodes: "GPUNodeList"})
	f, err := facts.Read(t.Context(), client, custom, &facts.Options{Namespace: "tandem-system", Scheduler: "tandem-scheduler", Step: func(string, int, int) {}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range f.Pods {
		names = append(names, f.Pods[i].Name)
	}
	if !slices.Equal(names, []string{"train", "agent", "plugin"}) {
		t.Errorf("kept %v", names)
	}
}
