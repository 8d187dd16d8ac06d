package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// One control plane gets all that a cluster has.
func TestCluster(t *testing.T) {
	ctx := t.Context()
	plane := sandbox.StartForTest(t, sandbox.Options{Authorization: "Node,RBAC"})
	client, err := kubernetes.NewForConfig(plane.Admin())
	must.OK(t, err)
	objects, err := dynamic.NewForConfig(plane.Admin())
	must.OK(t, err)
	rendered, err := Apply(ctx, plane, "deploy")
	if err == nil {
		err = AwaitPolicies(ctx, client)
	}
	must.OK(t, err)
	forged := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{v1alpha1.AnnotationAssignment: "{}"}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}}
	if _, err := client.CoreV1().Pods("default").Create(ctx, forged, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Errorf("once the policies are enforced, a forged assignment: %v", err)
	}
	kinds := map[string]bool{}
	for _, r := range rendered.Resources() {
		kinds[r.GetKind()] = true
	}
	deployments, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil || len(deployments.Items) > 0 || !kinds["Deployment"] || !kinds["DaemonSet"] {
		t.Errorf("of %v are applied %d Deployments, %v", kinds, len(deployments.Items), err)
	}

	has := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1alpha1.ResourceVGPU: resource.MustParse("20")}
	must.OK(t, AddNode(ctx, client, "n1", map[string]string{"rack": "r1"}, has))
	n, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil || len(n.Spec.Taints) > 0 || n.Labels["rack"] != "r1" || !cmp.Equal(has, n.Status.Allocatable) {
		t.Errorf("the node has labels %v, taints %v, and %v to give; %v", n.Labels, n.Spec.Taints, n.Status.Allocatable, err)
	}
	must.OK(t, AddGPUNode(ctx, objects, fakecluster.GPUNode("n1", 2)))
	u, err := objects.Resource(v1alpha1.GPUNodes).Get(ctx, "n1", metav1.GetOptions{})
	must.OK(t, err)
	if devices, _ := u.Object["status"].(map[string]any)["devices"].([]any); len(devices) != 2 {
		t.Errorf("the GPUNode has %d devices, want 2", len(devices))
	}
}
