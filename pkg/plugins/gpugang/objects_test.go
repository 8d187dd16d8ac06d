package gpugang

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func (c *cluster) createNode(name, inRack string, devices int) {
	c.t.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, rack: inRack}}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if _, err := c.client.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
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
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		c.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	if _, err := c.dynamic.Resource(v1alpha1.GPUNodes).Create(c.t.Context(), u, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// removeNode takes a node and its GPUs away, and the pods that were on it.
func (c *cluster) removeNode(name string) {
	c.t.Helper()
	if err := c.client.CoreV1().Nodes().Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if err := c.dynamic.Resource(v1alpha1.GPUNodes).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range c.pods() {
		if p.Spec.NodeName == name {
			c.deletePod(p.Name)
		}
	}
}

func (c *cluster) pods() []v1.Pod {
	c.t.Helper()
	list, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

func (c *cluster) create(pods ...*v1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		p.CreationTimestamp = metav1.NewTime(c.clock.now().Truncate(time.Second))
		if _, err := c.client.CoreV1().Pods(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	none := int64(0)
	if err := c.client.CoreV1().Pods("default").Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		c.t.Fatal(err)
	}
}

// bound returns the nodes of the bound pods whose names begin with a prefix, by pod.
func (c *cluster) bound(prefix string) map[string]string {
	c.t.Helper()
	nodes := map[string]string{}
	for _, p := range c.pods() {
		if strings.HasPrefix(p.Name, prefix) && p.Spec.NodeName != "" {
			nodes[p.Name] = p.Spec.NodeName
		}
	}
	return nodes
}

func message(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// members returns pods NAME-0, NAME-1, … of a gang, each with so many slots.
func members(name string, count, least, slots int) []*v1.Pod {
	pods := make([]*v1.Pod, 0, count)
	for i := range count {
		p := pod(fmt.Sprintf("%s-%d", name, i), slots)
		p.Labels = map[string]string{v1alpha1.LabelGang: name}
		p.Annotations = map[string]string{v1alpha1.AnnotationMinMembers: fmt.Sprint(least)}
		pods = append(pods, p)
	}
	return pods
}

func requireLevel(pods []*v1.Pod, level string) []*v1.Pod {
	for _, p := range pods {
		p.Annotations[v1alpha1.AnnotationRequiredTopology] = level
	}
	return pods
}

// pod returns a pod in namespace default with one container that asks for slots; 0 for none.
func pod(name string, slots int) *v1.Pod {
	limits := v1.ResourceList{}
	if slots != 0 {
		limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(int64(slots), resource.DecimalSI)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName,
			Containers: []v1.Container{{
				Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits},
			}},
		},
	}
}
