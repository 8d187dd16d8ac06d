package command

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

var gpuNodes = schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "gpunodes"}

// twoGPUs is an API with the GPUNode n1: g0 with two pods, g1 with none, and g7 that is gone and still cordoned.
func twoGPUs(t *testing.T) (dynamic.ResourceInterface, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	g.Spec.CordonedDevices = []v1alpha1.CordonedDevice{{ID: "GPU-gone", Reason: "old"}}
	g.Status.Devices = []v1alpha1.GPUDevice{
		{ID: "GPU-a", Index: 0, Health: v1alpha1.Healthy, Tenants: []v1alpha1.GPUTenant{{UID: "u1"}, {UID: "u2"}}},
		{ID: "GPU-b", Index: 1, Health: v1alpha1.Healthy},
	}
	g.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	must.OK(t, err)
	c := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gpuNodes: "GPUNodeList"},
		&unstructured.Unstructured{Object: raw})
	return c.Resource(gpuNodes), c
}

// cordoned returns the list of n1, and the number of devices in its status.
func cordoned(t *testing.T, nodes dynamic.ResourceInterface) (list []v1alpha1.CordonedDevice, devices int) {
	t.Helper()
	o, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
	must.OK(t, err)
	var g v1alpha1.GPUNode
	must.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &g))
	return g.Spec.CordonedDevices, len(g.Status.Devices)
}

func TestCordon(t *testing.T) {
	gone := v1alpha1.CordonedDevice{ID: "GPU-gone", Reason: "old"}
	nodes, _ := twoGPUs(t)
	for _, step := range []struct {
		name string
		w    cordon
		gpus []string
		said string
		list []v1alpha1.CordonedDevice
	}{
		{"by index", cordon{off: true, reason: "fan"}, []string{"g0"}, "n1/g0 takes no new pods; pods that run there and go on: 2\n",
			[]v1alpha1.CordonedDevice{gone, {ID: "GPU-a", Reason: "fan"}}},
		{"again, for another reason", cordon{off: true, reason: "fan, ticket 1"}, []string{"0"}, "n1/g0 was cordoned already\n",
			[]v1alpha1.CordonedDevice{gone, {ID: "GPU-a", Reason: "fan, ticket 1"}}},
		{"by ID", cordon{off: true}, []string{"GPU-b"}, "n1/g1 takes no new pods\n",
			[]v1alpha1.CordonedDevice{gone, {ID: "GPU-a", Reason: "fan, ticket 1"}, {ID: "GPU-b"}}},
		{"back", cordon{}, []string{"g1", "GPU-gone"}, "n1/g1 takes new pods again\nn1/GPU-gone takes new pods again\n",
			[]v1alpha1.CordonedDevice{{ID: "GPU-a", Reason: "fan, ticket 1"}}},
		{"back again", cordon{}, []string{"g1"}, "n1/g1 was not cordoned\n", []v1alpha1.CordonedDevice{{ID: "GPU-a", Reason: "fan, ticket 1"}}},
		{"all", cordon{off: true, all: true}, nil, "n1/g0 was cordoned already\nn1/g1 takes no new pods\n", []v1alpha1.CordonedDevice{{ID: "GPU-a"}, {ID: "GPU-b"}}},
		{"all back", cordon{all: true}, nil, "n1/g0 takes new pods again\nn1/g1 takes new pods again\n", nil},
		{"nothing to do", cordon{all: true}, nil, "n1: no GPU to change\n", nil},
	} {
		var out strings.Builder
		if err := step.w.change(t.Context(), nodes, "n1", step.gpus, &out); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		list, devices := cordoned(t, nodes)
		if diff := cmp.Diff(step.list, list); diff != "" || devices != 2 || out.String() != step.said {
			t.Errorf("%s: %d devices in the status, said %q (-want +got):\n%s", step.name, devices, out.String(), diff)
		}
	}
}

// A command that cannot be carried out changes nothing and says what is legal.
func TestCordonRefuses(t *testing.T) {
	config, _ := apiServer(t, "")
	for want, args := range map[string][]string{
		"give a node and its GPUs, such as gpu-7 g3, or a node and --all":         {"cordon", "n1"},
		"give a node and its GPUs, such as gpu-7 g3, or a node and --all ":        {"cordon", "n1", "g0", "--all"},
		"give a node and its GPUs, such as gpu-7 g3, or a node and --all  ":       {"uncordon"},
		"--reason: 257 bytes, legal are up to 256":                                {"cordon", "n1", "g0", "--reason", strings.Repeat("x", 257)},
		"--snapshot: the command changes the cluster and reads no snapshot":       {"cordon", "n1", "g0", "--snapshot", "now.json"},
		"there is no GPUNode n1: kubectl get gpunodes lists those that there are": {"cordon", "n1", "g0", "--kubeconfig", config},
		"unknown flag: --reason; see kubectl tandem uncordon --help":              {"uncordon", "n1", "g0", "--reason", "x"},
	} {
		var out, errs strings.Builder
		code := Execute(args, Streams{Out: &out, Errs: &errs, Env: func(string) string { return "" }})
		if code == 0 || !strings.Contains(errs.String(), strings.TrimSpace(want)) || out.Len() > 0 {
			t.Errorf("%v: code %d, %q, want %q", args, code, errs.String(), want)
		}
	}
	nodes, fake := twoGPUs(t)
	w := cordon{off: true}
	if err := w.change(t.Context(), nodes, "n1", []string{"g0", "g2"}, nil); err == nil || err.Error() != "node n1 has no GPU g2, it has g0, g1" {
		t.Errorf("an unknown GPU: %v", err)
	}
	if err := w.change(t.Context(), nodes, "n1", []string{"GPU-gone"}, nil); err == nil || err.Error() != "node n1 has no GPU GPU-gone, it has g0, g1" {
		t.Errorf("a GPU that the node no longer has: %v", err)
	}
	if list, _ := cordoned(t, nodes); len(list) != 1 {
		t.Errorf("after an unknown GPU the list is %v", list)
	}
	fake.PrependReactor("update", "gpunodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(gpuNodes.GroupResource(), "n1", nil)
	})
	if err := w.change(t.Context(), nodes, "n1", []string{"g0"}, nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "write GPUNode n1") {
		t.Errorf("without the right: %v", err)
	}
}

// The command reads a GPUNode again that somebody else has written meanwhile, and keeps what it says then.
func TestCordonTriesAgain(t *testing.T) {
	const node = `{"apiVersion":"tandem-gpu.io/v1alpha1","kind":"GPUNode","metadata":{"name":"n1"},"spec":{"cordonedDevices":[%s]},
		"status":{"devices":[{"id":"GPU-a","index":0,"health":"Healthy"}]}}`
	var written []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		others := ""
		if r.Method == http.MethodPut {
			raw, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if written = append(written, string(raw)); len(written) == 1 {
				w.WriteHeader(http.StatusConflict)
				_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
				return
			}
		}
		if len(written) > 0 {
			others = `{"id":"GPU-b","reason":"theirs"}`
		}
		_, _ = fmt.Fprintf(w, node, others)
	}))
	defer s.Close()
	var out, errs strings.Builder
	code := Execute([]string{"cordon", "n1", "g0", "--kubeconfig", configFor(t, s.URL)}, Streams{Out: &out, Errs: &errs, Env: func(string) string { return "" }})
	if code != 0 || out.String() != "n1/g0 takes no new pods\n" || errs.Len() > 0 {
		t.Errorf("code %d, %q, %q", code, out.String(), errs.String())
	}
	if len(written) != 2 || !strings.Contains(written[1], "theirs") || !strings.Contains(written[1], "GPU-a") {
		t.Errorf("the GPUNode was written as %q, want a second time with what somebody else has written", written)
	}
}
