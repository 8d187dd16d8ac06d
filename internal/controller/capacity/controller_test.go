package capacity

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// node returns a Node that says so much device memory, "" for none.
func node(name, memory string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}
	if memory != "" {
		n.Status.Allocatable[v1alpha1.ResourceMemory] = resource.MustParse(memory)
	}
	n.Status.Capacity = n.Status.Allocatable.DeepCopy()
	return n
}

// passed returns what a pass did, and its error. The GPUNodes are those of devices with 40Gi. The API server refuses to write one Node, and
// does not know the Node "deleted" any more.
func passed(t *testing.T, nodes []*v1.Node, refuse string, gpus ...*v1alpha1.GPUNode) (*kubefake.Clientset, []string, error) {
	t.Helper()
	kube := kubefake.NewClientset()
	factory := informers.NewSharedInformerFactory(kube, 0)
	scheme := runtime.NewScheme()
	must.OK(t, v1alpha1.AddToScheme(scheme))
	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, g := range gpus {
		b = b.WithObjects(g)
	}
	c := New(Options{Informers: factory, Kube: kube, GPUNodes: b.Build()})
	for _, n := range nodes {
		must.OK(t, kube.Tracker().Add(n))
		must.OK(t, factory.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	var patched []string
	kube.PrependReactor("patch", "nodes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		p := a.(k8stesting.PatchAction)
		patched = append(patched, p.GetName()+"/"+p.GetSubresource())
		switch p.GetName() {
		case refuse:
			return true, nil, errors.New("refused")
		case "deleted":
			return true, nil, apierrors.NewNotFound(v1.Resource("nodes"), p.GetName())
		}
		return false, nil, nil
	})
	err := c.Pass(t.Context())
	return kube, patched, err
}

func TestPass(t *testing.T) {
	sick := fakecluster.GPUNode("sick", 2)
	sick.Status.Devices[1].Health = v1alpha1.Unhealthy
	kube, patched, err := passed(t, []*v1.Node{
		node("new", ""), node("right", "80Gi"), node("grown", "40Gi"), node("gone", "40Gi"), node("plain", ""), node("sick", ""), node("refused", ""),
		node("zeroed", "0"), node("left", "0"), node("deleted", "40Gi"),
	}, "refused", fakecluster.GPUNode("new", 8), fakecluster.GPUNode("right", 2), fakecluster.GPUNode("grown", 2), sick,
		fakecluster.GPUNode("zeroed", 2), fakecluster.GPUNode("refused", 1), fakecluster.GPUNode("without-node", 1))
	if err == nil || err.Error() != "write the memory of Node refused: refused" {
		t.Errorf("the error is %v", err)
	}
	if len(patched) != 8 {
		t.Errorf("patches: %v; want one each of new, grown, gone, sick, refused, zeroed, left and deleted", patched)
	}
	for name, want := range map[string]string{"new": "320Gi", "right": "80Gi", "grown": "80Gi", "gone": "", "plain": "", "sick": "80Gi",
		"zeroed": "80Gi", "left": ""} { // a kubelet that starts anew writes 0 for what it does not know
		n, err := kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		must.OK(t, err)
		for where, list := range map[string]v1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
			got := ""
			if q, ok := list[v1alpha1.ResourceMemory]; ok {
				got = q.String()
			}
			if cpu := list[v1.ResourceCPU]; got != want || cpu.Value() != 8 {
				t.Errorf("%s of node %s has %q, want %q, and %v CPUs", where, name, got, want, cpu.Value())
			}
		}
	}
	for _, p := range patched {
		if !strings.HasSuffix(p, "/status") {
			t.Errorf("patch of %s, want one of the status", p)
		}
	}
}

// A GPUNode that cannot be read is an error. Its Node keeps what it says, and the others are written.
func TestPassUnreadable(t *testing.T) {
	broken := fakecluster.GPUNode("broken", 1)
	broken.Status.Devices[0].Slots = 0
	_, patched, err := passed(t, []*v1.Node{node("broken", "40Gi"), node("new", "")}, "", broken, fakecluster.GPUNode("new", 1))
	if err == nil || !strings.Contains(err.Error(), "read GPUNode broken") || len(patched) != 1 || patched[0] != "new/status" {
		t.Errorf("patches %v, error %v", patched, err)
	}
}
