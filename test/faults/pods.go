package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// namespace of all pods. Their names begin with that of their node.
const namespace = "default"

// container is the name of the only container of a pod.
const container = "main"

// Pod is a pod with a share of one device.
type Pod struct {
	name, uid  string
	device     string
	slots      int
	assignment string
}

// pods are the pods of a node without a deletion.
type pods struct {
	node *Node
	mu   sync.Mutex
	live map[string]*Pod
}

func newPods(n *Node) *pods { return &pods{node: n, live: map[string]*Pod{}} }

// list returns the pods by name.
func (p *pods) list() []*Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.live), func(a, b *Pod) int { return compare(a.name, b.name) })
}

func compare(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

// create makes a pod and binds it as the scheduler does: the assignment travels in the Binding.
func (p *pods) create(ctx context.Context, name, device string, slots int) (*Pod, error) {
	n := p.node
	client := n.world.client.CoreV1().Pods(namespace)
	zero := int64(0)
	object, err := client.Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: n.name + "-" + name, Namespace: namespace},
		Spec: v1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName, TerminationGracePeriodSeconds: &zero,
			Containers: []v1.Container{{Name: container, Image: "none", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse(strconv.Itoa(slots))},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod %s: %w", name, err)
	}
	pod := &Pod{name: name, uid: string(object.UID), device: device, slots: slots}
	if pod.assignment, err = n.assign(object, pod); err != nil {
		return nil, fmt.Errorf("assign pod %s: %w", name, err)
	}
	err = client.Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Name: object.Name, UID: object.UID, Annotations: map[string]string{v1alpha1.AnnotationAssignment: pod.assignment},
		},
		Target: v1.ObjectReference{Kind: "Node", Name: n.name},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("bind pod %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[name] = pod
	return pod, nil
}

// assign returns the annotation that gives the pod its share.
func (n *Node) assign(object *v1.Pod, pod *Pod) (string, error) {
	state, err := fakegpu.Load(n.state())
	if err != nil {
		return "", err
	}
	d, _ := state.Find(pod.device)
	request, err := kube.Request(object)
	if err != nil {
		return "", err
	}
	size := vgpu.Device{Slots: vgpu.Slots(n.spec.SlotsPerGPU), Memory: vgpu.Bytes(d.Memory - d.Reserved)}
	share, refusal := request.Containers[0].On(&size, 0, 0)
	if refusal != nil {
		return "", fmt.Errorf("%+v", *refusal)
	}
	return kube.EncodeAssignment(vgpu.Assignment{
		UID: vgpu.UID(pod.uid), Pod: object.Name, Node: n.name,
		Containers: []vgpu.ContainerAssignment{{
			Name: container, Devices: []vgpu.DeviceID{vgpu.DeviceID(pod.device)}, Share: share,
		}},
	})
}

// remove deletes a pod, if it is there.
func (p *pods) remove(ctx context.Context, name string) error {
	p.mu.Lock()
	delete(p.live, name)
	p.mu.Unlock()
	zero := int64(0)
	err := p.node.world.client.CoreV1().Pods(namespace).Delete(ctx, p.node.name+"-"+name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return nil
}

// rejected returns the pods that the kubelet refused for good: what a ReplicaSet would replace.
func (p *pods) rejected(ctx context.Context) (map[string]string, error) {
	list, err := p.node.world.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + p.node.name})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	why := map[string]string{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == v1.PodFailed {
			why[string(pod.UID)] = pod.Status.Message
		}
	}
	return why, nil
}
