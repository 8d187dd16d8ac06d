package fakecluster

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// CreateNode creates a node with its GPUs.
func (c *Cluster) CreateNode(name, rack string, devices int) {
	c.T.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, Rack: rack}}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if _, err := c.Client.CoreV1().Nodes().Create(c.T.Context(), n, metav1.CreateOptions{}); err != nil {
		c.T.Fatal(err)
	}
	u, err := Unstructured(GPUNode(name, devices))
	if err == nil {
		_, err = c.Dynamic.Resource(v1alpha1.GPUNodes).Create(c.T.Context(), u, metav1.CreateOptions{})
	}
	must.OK(c.T, err)
}

// GPUNode returns a ready GPUNode with so many devices of 10 slots and 40 GiB, named GPU-<node>-<index>.
func GPUNode(name string, devices int) *v1alpha1.GPUNode {
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Unix(0, 0),
	}}
	for i := range devices {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: fmt.Sprintf("GPU-%s-%d", name, i), Index: int32(i), Model: "A100", Memory: resource.MustParse("40Gi"), Slots: 10,
			ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		})
	}
	return g
}

// Unstructured returns a GPUNode as the dynamic client takes it.
func Unstructured(g *v1alpha1.GPUNode) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	return u, nil
}

// RemoveNode takes a node and its GPUs away. The pods that were on it exist on, as they do for minutes.
func (c *Cluster) RemoveNode(name string) {
	c.T.Helper()
	must.OK(c.T, c.Client.CoreV1().Nodes().Delete(c.T.Context(), name, metav1.DeleteOptions{}))
	must.OK(c.T, c.Dynamic.Resource(v1alpha1.GPUNodes).Delete(c.T.Context(), name, metav1.DeleteOptions{}))
}

// MakeSick has the devices of a node report a fault.
func (c *Cluster) MakeSick(node string) {
	c.T.Helper()
	client := c.Dynamic.Resource(v1alpha1.GPUNodes)
	u, err := client.Get(c.T.Context(), node, metav1.GetOptions{})
	must.OK(c.T, err)
	devices, _, err := unstructured.NestedSlice(u.Object, "status", "devices")
	must.OK(c.T, err)
	for _, d := range devices {
		d.(map[string]any)["health"] = string(v1alpha1.Unhealthy)
	}
	must.OK(c.T, unstructured.SetNestedSlice(u.Object, devices, "status", "devices"))
	if _, err := client.Update(c.T.Context(), u, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

// Message returns why a pod has no node, "" without a reason.
func Message(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// Pod returns a pod in namespace default with one container and its slots; 0 for none.
func Pod(name string, slots int) *v1.Pod {
	limits := v1.ResourceList{}
	if slots != 0 {
		limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(int64(slots), resource.DecimalSI)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName,
			Containers: []v1.Container{{
				Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits.DeepCopy()},
			}},
		},
	}
}

// Join makes pods the members of a gang of which so many must run.
func Join(gang string, least int, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Labels = map[string]string{v1alpha1.LabelGang: gang}
		p.Annotations = map[string]string{v1alpha1.AnnotationMinMembers: fmt.Sprint(least)}
	}
	return pods
}
