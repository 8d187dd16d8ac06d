package podsource

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Over reports whether all containers of the pod have ended for good.
func Over(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// Tenant is a pod that requests vGPUs. Tenants are immutable.
type Tenant struct {
	Pod *v1.Pod
	// Assignment is what the pod's annotation says, err why it says nothing valid.
	Assignment vgpu.Assignment
	Err        error
	// Kill is the time of the kubelet's SIGKILL; zero for a pod that may go on.
	Kill time.Time
}

// keep adds a pod that requests vGPUs, and reports whether it does.
func keep(pods map[types.UID]*Tenant, pod *v1.Pod) bool {
	if !kube.WantsVGPU(pod) && pod.Annotations[v1alpha1.AnnotationAssignment] == "" {
		return false
	}
	pods[pod.UID] = NewTenant(pod)
	return true
}

// NewTenant returns the tenant of a pod. The tenant shares no memory with the pod that the caller may change.
func NewTenant(pod *v1.Pod) *Tenant {
	t := &Tenant{Pod: essential(pod)}
	t.Assignment, t.Err = kube.AssignmentOf(t.Pod)
	return t
}

// essential returns the part of a pod that the agent reads: an agent keeps a hundred of them, and a pod may have a
// megabyte.
func essential(pod *v1.Pod) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: map[string]string{}, CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec: v1.PodSpec{
			NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, HostNetwork: pod.Spec.HostNetwork,
			TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
			InitContainers:                essentialContainers(pod.Spec.InitContainers), Containers: essentialContainers(pod.Spec.Containers),
		},
		Status: v1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason,
			PodIP: pod.Status.PodIP, HostIP: pod.Status.HostIP, HostIPs: pod.Status.HostIPs,
			InitContainerStatuses: essentialStatuses(pod.Status.InitContainerStatuses),
			ContainerStatuses:     essentialStatuses(pod.Status.ContainerStatuses),
		},
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, v1alpha1.Domain+"/") {
			p.Annotations[key] = value
		}
	}
	return p
}

func essentialContainers(list []v1.Container) []v1.Container {
	out := make([]v1.Container, 0, len(list))
	for i := range list {
		c := &list[i]
		out = append(out, v1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return out
}

func essentialStatuses(list []v1.ContainerStatus) []v1.ContainerStatus {
	out := make([]v1.ContainerStatus, 0, len(list))
	for i := range list {
		c := &list[i]
		out = append(out, v1.ContainerStatus{Name: c.Name, ContainerID: c.ContainerID, State: c.State, RestartCount: c.RestartCount})
	}
	return out
}

// ByName returns the pods in the order of namespace, name and UID.
func ByName(pods map[types.UID]*Tenant) []*Tenant {
	return slices.SortedFunc(maps.Values(pods), func(a, b *Tenant) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
}

// Ended reports whether nothing of the pod runs any more. The phase alone does not say so: a pod that the kubelet
// evicts is Failed while its containers still have their grace.
func Ended(pod *v1.Pod) bool { return Over(pod) && !running(pod) }

func running(pod *v1.Pod) bool {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if c.State.Running != nil {
				return true
			}
		}
	}
	return false
}
