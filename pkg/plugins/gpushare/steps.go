package gpushare

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Steps returns how many steps a search for an arrangement of the pod's containers may take on one node. The nodes with GPUs that match the
// pod's selector and affinity share those of a look, so that the searches on all of them are bounded together. No search for the pod on another
// node may take as many.
func (p *Plugin) Steps(pod *v1.Pod, r *vgpu.Request) int {
	d := selectionOf(pod)
	if d.anyNode || len(r.Containers) < 2 {
		return p.stepsOnAll()
	}
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	nodes := 0
	for name := range p.state.nodes {
		if node, err := p.hosts.Get(name); err != nil || d.selects(node) {
			nodes++
		}
	}
	return placement.StepsOn(nodes)
}

// stepsOnAll is Steps for a pod that may use all nodes.
func (p *Plugin) stepsOnAll() int {
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	return placement.StepsOn(len(p.state.nodes))
}
