package gangs

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	rackLabel = "example.com/rack"
	// runsAnnotation is for the kubelets: how long a pod runs.
	runsAnnotation = "example.com/runs"
	xk8sLabel      = "scheduling.x-k8s.io/pod-group"
	// slotsPerGPU of all devices.
	slotsPerGPU = 10
)

var (
	nativeGroups = schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups")
	xk8sGroups   = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
)

// host is a node of the history.
type host struct {
	// wasLost: it was lost at some time, whether or not it is there again.
	wasLost    bool
	name, rack string
	gpus       int
	// island is how many GPUs NVLink joins, 0 for none.
	island int
	// cpus that pods may ask for.
	cpus int
	// lost: the node is gone; unready: its agent does not answer; cordoned: it takes no pods; sick are its devices that are.
	lost, unready, cordoned bool
	// cordons counts the changes of cordoned.
	cordons int
	sick    map[int]bool
	// turned is when it came or went last.
	turned time.Time
}

func (h *host) node() *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: map[string]string{v1.LabelHostname: h.name, rackLabel: h.rack}}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(int64(h.cpus), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("500"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	}
	n.Status.Capacity = n.Status.Allocatable
	if h.cordoned {
		n.Spec.Unschedulable = true
		n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	return n
}

func (h *host) device(i int) string { return fmt.Sprintf("GPU-%s-%d", h.name, i) }

func (h *host) gpuNode() *v1alpha1.GPUNode {
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	ready := metav1.ConditionTrue
	if h.unready {
		ready = metav1.ConditionFalse
	}
	g.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: ready, Reason: "Serving", LastTransitionTime: metav1.Unix(0, 0),
	}}
	for i := range h.gpus {
		health := v1alpha1.Healthy
		if h.sick[i] {
			health = v1alpha1.Unhealthy
		}
		d := v1alpha1.GPUDevice{
			ID: h.device(i), Index: int32(i), Model: "A100", Memory: resource.MustParse("40Gi"), Slots: slotsPerGPU,
			ComputeCapability: "8.0", Health: health, Enforcement: v1alpha1.EnforcementCooperative,
		}
		for k := range h.gpus {
			if h.island > 0 && k != i && k/h.island == i/h.island {
				d.Links = append(d.Links, v1alpha1.GPULink{Peer: h.device(k), Type: v1alpha1.LinkNVLink, Lanes: 2})
			}
		}
		g.Status.Devices = append(g.Status.Devices, d)
	}
	return g
}

// unstructuredOf returns the object as dynamic clients have it.
func unstructuredOf(object any, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(fmt.Sprintf("convert %v: %v", gvk, err))
	}
	u := &unstructured.Unstructured{Object: raw}
	u.SetGroupVersionKind(gvk)
	return u
}

// placeOf returns where a pod is, for people.
func placeOf(pod *v1.Pod) string {
	a, err := kube.AssignmentOf(pod)
	if err != nil {
		return pod.Spec.NodeName
	}
	var devices []string
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			devices = append(devices, strings.TrimPrefix(string(id), "GPU-"))
		}
	}
	return strings.Join(devices, "+")
}
