package gpushare

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/test/fakeapi"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The CRD may be installed after the scheduler: it starts, says what is missing, and goes on when it is there.
func TestCRDAbsentAtStart(t *testing.T) {
	client := fakeapi.NewClientset()
	client.PrependReactor("create", "pods", bindReactor(client))
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(map[string]string{
		"gpunodes": "GPUNodeList", "workloadprofiles": "WorkloadProfileList",
	}))
	var installed atomic.Bool
	absent := func(clienttesting.Action) (bool, runtime.Object, error) {
		if installed.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewGenericServerResponse(404, "list", v1alpha1.GPUNodes.GroupResource(), "", "the server could not find the requested resource", 0, true)
	}
	objects.PrependReactor("list", "*", absent)
	c := &cluster{t: t, client: client, dynamic: objects}
	c.createNode("n1")
	c.start()
	c.createPod(pod("a", 3))
	c.createPod(pod("plain", 0))
	c.await("plain", "it is bound", isBound)
	c.awaitPending("a", "GPUNodes")
	installed.Store(true)
	c.applyGPUNode(gpuNode("n1", 1))
	if got := c.awaitBound("a"); got != "n1/GPU-n1-0" {
		t.Errorf("a is on %s", got)
	}
}

func TestUnreadSaysWhatIsMissing(t *testing.T) {
	d := newDesk(t)
	d.plugin.state = newState(d.plugin.state.pods, d.plugin.metrics, d.plugin.state.learner)
	p := pod("a", 1)
	refused := func() string {
		_, status := d.plugin.PreFilter(t.Context(), nil, p, nil)
		return status.Message()
	}
	expect(t, "before the first answer", refused(), "the GPUNodes are not read yet")
	d.plugin.noteUnread(apierrors.NewNotFound(v1alpha1.GPUNodes.GroupResource(), ""))
	if got := refused(); !strings.Contains(got, "CustomResourceDefinition gpunodes.tandem-gpu.io is not installed") {
		t.Errorf("PreFilter says %q", got)
	}
	d.plugin.noteUnread(apierrors.NewForbidden(v1alpha1.GPUNodes.GroupResource(), "", nil))
	if got := refused(); !strings.Contains(got, "forbidden") {
		t.Errorf("PreFilter says %q", got)
	}
}

func TestNewValidatesItsArguments(t *testing.T) {
	for want, args := range map[string]runtime.Object{
		"arguments of type <nil>": nil,
		`pluginConfig[GPUShare].args.policy: Unsupported value: "best"`: &config.GPUShareArgs{
			Policy: "best", BindTimeout: metav1.Duration{Duration: time.Minute},
		},
		"pluginConfig[GPUShare].args.bindTimeout": &config.GPUShareArgs{Policy: "packed"},
	} {
		if _, err := NewWithClient(t.Context(), args, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("newPlugin = %v, want %q", err, want)
		}
	}
}

// Without the WorkloadProfiles the scheduler works, and takes them in when they can be read.
func TestProfilesAbsentAtStart(t *testing.T) {
	client := fakeapi.NewClientset()
	client.PrependReactor("create", "pods", bindReactor(client))
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(map[string]string{
		"gpunodes": "GPUNodeList", "workloadprofiles": "WorkloadProfileList",
	}))
	var installed atomic.Bool
	objects.PrependReactor("list", "workloadprofiles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !installed.Load(), nil, apierrors.NewNotFound(v1alpha1.WorkloadProfiles.GroupResource(), "")
	})
	c := &cluster{t: t, client: client, dynamic: objects}
	c.createNode("n1")
	c.applyGPUNode(gpuNode("n1", 1))
	c.start()
	c.createPod(tolerating("1.2", tenant("a", "light", 3)))
	c.awaitBound("a")
	c.createPod(tenant("b", "light", 3))
	c.awaitPending("b", "the pod would slow down default/a")
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(declared("light", 10, 5))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	if _, err := objects.Resource(v1alpha1.WorkloadProfiles).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	installed.Store(true)
	c.awaitBound("b")
}
