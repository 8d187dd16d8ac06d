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
	nodes map[string]map[vgpu.UID]*v1.Pod
}

func (p *placedPods) add(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes == nil {
		p.nodes = map[string]map[vgpu.UID]*v1.Pod{}
	}
	on := p.nodes[pod.Spec.NodeName]
	if on == nil {
		on = map[vgpu.UID]*v1.Pod{}
		p.nodes[pod.Spec.NodeName] = on
	}
	on[kube.UIDOf(pod)] = pod
}

func (p *placedPods) remove(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	on := p.nodes[pod.Spec.NodeName]
	if delete(on, kube.UIDOf(pod)); len(on) == 0 {
		delete(p.nodes, pod.Spec.NodeName)
	}
}

// on returns the pods of a node.
func (p *placedPods) on(node string) map[vgpu.UID]*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.nodes[node])
}
