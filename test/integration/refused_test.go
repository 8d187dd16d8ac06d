package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// Two nodes of one GPU. The kubelet of the one refuses a pod, and that of the other loses its agent.
func refusedByAKubelet(t *testing.T, api *rest.Config) {
	admin := clientFor(t, api)
	for _, name := range []string{"a", "b"} {
		createNode(t, api, fakecluster.GPUNode(name, 1))
	}
	startScheduler(t, api)

	createPod(t, admin, "first", 2)
	bad := nodeOf(t, admin, "first")
	good := map[string]string{"a": "b", "b": "a"}[bad]
	refused, pause := time.Now(), 30*time.Second
	refusePod(t, admin, "first")
	awaitEvent(t, admin, "first", fmt.Sprintf("node %s gets no vGPU pods for 30s, since its kubelet refused this one", bad))
	for i, left := 0, 3; left > 0; i++ {
		name := fmt.Sprintf("next-%d", i)
		createPod(t, admin, name, 1)
		if node := nodeOf(t, admin, name); node == good {
			left--
			continue
		}
		if after := time.Since(refused); after < pause {
			t.Fatalf("pod %s is on the node that refused a pod %v before, want %v at least", name, after, pause)
		}
		// The machine is so slow that the pause was over. The next one is twice as long.
		refused, pause = time.Now(), min(2*pause, 10*time.Minute)
		refusePod(t, admin, name)
		awaitEvent(t, admin, name, fmt.Sprintf("node %s gets no vGPU pods for", bad))
	}

	createLate(t, admin)
	offer(t, admin, good, "0")
	label(t, admin, good, lateLabel) // the scheduler sees it after what the node offers, and tries the pod then
	awaitEvent(t, admin, "late", "offers fewer vGPU slots than its healthy GPUs have")
	offer(t, admin, good, "10")
	awaitOn(t, admin, "late", good)
}

// lateLabel is the label of the nodes that the pod late may go to.
const lateLabel = "example.com/late"

// createLate makes a pod that no node takes yet.
func createLate(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	limits := v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("1")}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Spec: v1.PodSpec{NodeSelector: map[string]string{lateLabel: "yes"}, Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits},
		}}},
	}, metav1.CreateOptions{})
	must.OK(t, err)
}

// label gives a node a label.
func label(t *testing.T, client kubernetes.Interface, node, name string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"yes"}}}`, name)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// nodeOf waits until a pod is bound and returns its node.
func nodeOf(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	node := ""
	poll(t, name+" is bound", func(ctx context.Context) (bool, string) {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		node = p.Spec.NodeName
		return node != "", "it has no node"
	})
	return node
}

// refusePod does what a kubelet does with a pod that it cannot give devices to.
func refusePod(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	must.OK(t, err)
	p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "UnexpectedAdmissionError", "Allocate failed due to no healthy devices present"
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// offer sets how many slots the kubelet of a node offers.
func offer(t *testing.T, client kubernetes.Interface, node, slots string) {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	must.OK(t, err)
	n.Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse(slots)
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
