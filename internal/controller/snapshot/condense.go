package snapshot

import (
	"strings"
	"sync"
	"unique"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// maxForeign bounds the values of annotations that are not Tandem's, in bytes. Longer ones, such as the copies that kubectl keeps of
// whole objects, say nothing to the controller.
const maxForeign = 256

// Condenser makes objects of informers small. The zero value is ready, and several informers may use one.
type Condenser struct {
	mu sync.Mutex
	// templates are the last pods by owner: pods of one owner mostly have the same requests and tolerations, which then stand in
	// memory once.
	templates map[types.UID]*v1.PodSpec
}

// maxTemplates bounds the templates. More owners than that share less.
const maxTemplates = 20_000

// Condense is a transform for informers. It keeps what the controller reads of pods, nodes and GPUNodes: the rest would take
// several times as much memory in a large cluster. Other objects only lose their managed fields, but for what says that the activator woke a notebook.
func (c *Condenser) Condense(object any) (any, error) {
	switch o := object.(type) {
	case *v1.Pod:
		out := condensePod(o)
		c.share(out)
		return out, nil
	case *v1.Node:
		return condenseNode(o), nil
	case *v1alpha1.GPUNode:
		condenseGPUNode(o)
		return o, nil
	case metav1.Object:
		var wake []metav1.ManagedFieldsEntry
		for _, e := range o.GetManagedFields() {
			if parking.IsWake(e) {
				wake = append(wake, metav1.ManagedFieldsEntry{Manager: e.Manager, Subresource: e.Subresource})
			}
		}
		o.SetManagedFields(wake)
	}
	return object, nil
}

func condenseMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: same(m.Labels), OwnerReferences: m.OwnerReferences,
		Finalizers: m.Finalizers,
	}
	for key, value := range m.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") || len(value) <= maxForeign {
			metav1.SetMetaDataAnnotation(&out, key, value)
		}
	}
	return out
}

// same returns a map with one copy in memory of each word that occurs in many objects.
func same(words map[string]string) map[string]string {
	if words == nil {
		return nil
	}
	out := make(map[string]string, len(words))
	for key, value := range words {
		out[unique.Make(key).Value()] = unique.Make(value).Value()
	}
	return out
}

func condensePod(p *v1.Pod) *v1.Pod {
	out := &v1.Pod{ObjectMeta: condenseMeta(&p.ObjectMeta)}
	s := &p.Spec
	out.Spec = v1.PodSpec{
		NodeName: unique.Make(s.NodeName).Value(), SchedulerName: unique.Make(s.SchedulerName).Value(), Priority: s.Priority, PriorityClassName: unique.Make(s.PriorityClassName).Value(),
		Containers: condenseContainers(s.Containers), InitContainers: condenseContainers(s.InitContainers), Overhead: s.Overhead, Resources: s.Resources,
		NodeSelector: same(s.NodeSelector), Tolerations: s.Tolerations, SchedulingGates: s.SchedulingGates, SchedulingGroup: s.SchedulingGroup,
	}
	if a := s.Affinity; a != nil && a.NodeAffinity != nil {
		out.Spec.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	out.Status.Phase, out.Status.StartTime = p.Status.Phase, p.Status.StartTime
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled {
			out.Status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	out.Status.ContainerStatuses = condenseEnd(&p.Status)
	if why, _ := kube.RefusedStart(p); why != "" {
		out.Status.InitContainerStatuses, out.Status.ContainerStatuses = p.Status.InitContainerStatuses, p.Status.ContainerStatuses
	}
	return out
}

// condenseEnd returns the last end of a container of a pod that has ended: how long the pod ran rests on it. It returns nil for other pods.
func condenseEnd(s *v1.PodStatus) []v1.ContainerStatus {
	if s.Phase != v1.PodSucceeded && s.Phase != v1.PodFailed {
		return nil
	}
	var last metav1.Time
	for i := range s.ContainerStatuses {
		if t := s.ContainerStatuses[i].State.Terminated; t != nil && last.Before(&t.FinishedAt) {
			last = t.FinishedAt
		}
	}
	if last.IsZero() {
		return nil
	}
	return []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: last}}}}
}

// share makes a pod use what the last pod of its owner has, where that is the same.
func (c *Condenser) share(p *v1.Pod) {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.templates[owner.UID]
	if c.templates == nil || len(c.templates) >= maxTemplates {
		c.templates = map[types.UID]*v1.PodSpec{}
	}
	s := &p.Spec
	c.templates[owner.UID] = s
	if last == nil {
		return
	}
	if equality.Semantic.DeepEqual(last.Containers, s.Containers) {
		s.Containers = last.Containers
	}
	if equality.Semantic.DeepEqual(last.InitContainers, s.InitContainers) {
		s.InitContainers = last.InitContainers
	}
	if equality.Semantic.DeepEqual(last.Tolerations, s.Tolerations) {
		s.Tolerations = last.Tolerations
	}
	if equality.Semantic.DeepEqual(last.NodeSelector, s.NodeSelector) {
		s.NodeSelector = last.NodeSelector
	}
	if equality.Semantic.DeepEqual(last.Affinity, s.Affinity) {
		s.Affinity = last.Affinity
	}
}

func condenseContainers(containers []v1.Container) []v1.Container {
	out := make([]v1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		out[i] = v1.Container{Name: unique.Make(c.Name).Value(), Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return out
}

func condenseNode(n *v1.Node) *v1.Node {
	out := &v1.Node{ObjectMeta: condenseMeta(&n.ObjectMeta)}
	out.Spec.Taints, out.Spec.Unschedulable = n.Spec.Taints, n.Spec.Unschedulable
	out.Status.Allocatable = n.Status.Allocatable
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
			out.Status.Conditions = []v1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

func condenseGPUNode(g *v1alpha1.GPUNode) {
	g.ManagedFields = nil
	for i := range g.Status.Devices {
		d := &g.Status.Devices[i]
		d.Model, d.Health = unique.Make(d.Model).Value(), unique.Make(d.Health).Value()
		d.Usage, d.NUMANode, d.PCIBusID, d.Reason, d.Message, d.ComputeCapability, d.Enforcement = nil, nil, "", "", "", "", ""
		for k := range d.Tenants {
			t := &d.Tenants[k]
			if t.MemoryUsed = nil; !t.Measured { // a use that is not the pod's own says nothing about it
				t.SMUtilizationPercent = nil
			}
		}
	}
}
