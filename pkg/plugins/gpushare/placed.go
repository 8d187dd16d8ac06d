package gpushare

import (
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// placedPods has the pods with vGPUs that have a node, by node. The scheduling does not read it, so that whoever does keeps no
// scheduling cycle waiting. The zero value is empty.
type placedPods struct {
	mu    sync.Mutex
	nodes map[string]podsOn
	// version grows with each change.
	version uint64
}

// podsOn are the pods of a node, and the version of their last change.
type podsOn struct {
	pods    map[vgpu.UID]*v1.Pod
	version uint64
}

func (p *placedPods) add(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes == nil {
		p.nodes = map[string]podsOn{}
	}
	on := p.nodes[pod.Spec.NodeName]
	if on.pods == nil {
		on.pods = map[vgpu.UID]*v1.Pod{}
	}
	on.pods[kube.UIDOf(pod)] = pod
	p.changed(pod.Spec.NodeName, on)
}

func (p *placedPods) remove(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	on := p.nodes[pod.Spec.NodeName]
	if delete(on.pods, kube.UIDOf(pod)); len(on.pods) == 0 {
		delete(p.nodes, pod.Spec.NodeName)
		return
	}
	p.changed(pod.Spec.NodeName, on)
}

func (p *placedPods) changed(node string, on podsOn) {
	p.version++
	on.version = p.version
	p.nodes[node] = on
}

// on returns the pods of a node, and the version of their last change, 0 for no pods.
func (p *placedPods) on(node string) (map[vgpu.UID]*v1.Pod, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.nodes[node].pods), p.nodes[node].version
}
