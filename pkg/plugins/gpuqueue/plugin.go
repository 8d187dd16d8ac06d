// Package gpuqueue decides which of the waiting pods the scheduler tries next: the one of the highest priority, then the one
// that has waited longest, as kube-scheduler does. But each further container with vGPUs puts a pod back by some seconds,
// because an attempt to place a pod of many unlike containers takes as long as thirty attempts of others. Without that, ten
// such pods of one tenant that fit nowhere keep the pods of all other tenants waiting for more than a second.
//
// The package does not decide where a pod goes, and a pod that is alone in the queue is tried at once.
package gpuqueue

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "GPUQueue"

// PutBack is by how much a pod is put back in the queue for each container with vGPUs but the first. It is the longest time
// for which a stream of other pods of the same priority keeps the pod waiting. A longer one protects neighbours from more
// such pods. On 1,000 nodes (BenchmarkNeighbourExtremes) an attempt takes at most 10 ms for each container, so a pod of n
// containers comes after the neighbours of the time in which 400 (n-1)/n attempts of its kind are made.
const PutBack = 4 * time.Second

// Plugin is the QueueSort plugin. It has no arguments and no state.
type Plugin struct{}

var _ fwk.QueueSortPlugin = Plugin{}

// New returns the plugin.
func New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return Plugin{}, nil }

// Name returns the plugin's name.
func (Plugin) Name() string { return Name }

// Less reports whether a is tried before b. The order of two entities does not change while they are queued.
func (Plugin) Less(a, b fwk.QueuedEntityInfo) bool {
	if a.GetPriority() != b.GetPriority() {
		return a.GetPriority() > b.GetPriority()
	}
	return turn(a).Before(turn(b))
}

// turn returns the time by which an entity is queued.
func turn(e fwk.QueuedEntityInfo) time.Time {
	further := 0
	switch e := e.(type) {
	case *framework.QueuedPodInfo:
		further = furtherContainers(e.Pod)
	case *framework.QueuedPodGroupInfo: // it is as dear as its dearest member
		for _, members := range e.QueuedPodInfos {
			for _, m := range members {
				further = max(further, furtherContainers(m.Pod))
			}
		}
	}
	return e.GetTimestamp().Add(time.Duration(further) * PutBack)
}

// furtherContainers returns how many containers with vGPUs a pod has beside the first: at most as many as count, since a pod
// of more than vgpu.MaxContainers is refused before any search. It is called some ten times for each pod that comes into the
// queue, and nearly all pods have one container.
func furtherContainers(pod *v1.Pod) int {
	if len(pod.Spec.InitContainers)+len(pod.Spec.Containers) <= 1 {
		return 0
	}
	n := 0
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if kube.AnyWants(containers[i : i+1]) {
				n++
			}
		}
	}
	return min(max(0, n-1), vgpu.MaxContainers-1)
}
