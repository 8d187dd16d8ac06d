package checks

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// index finds facts by name: a cluster may have thousands of nodes and tens of thousands of pods.
type index struct {
	nodes    map[string]*v1.Node
	gpuNodes map[string]*v1alpha1.GPUNode
	// pods are those of a node, in the order of the facts.
	pods map[string][]*v1.Pod
	// running are the pods of Tandem's DaemonSets that run.
	running map[place]bool
}

// place is a node and the name of a DaemonSet.
type place struct{ node, name string }

// indexed returns the facts with an index.
func (f *Facts) indexed() *Facts {
	out := *f
	x := &index{map[string]*v1.Node{}, map[string]*v1alpha1.GPUNode{}, map[string][]*v1.Pod{}, map[place]bool{}}
	for i := range f.Nodes {
		x.nodes[f.Nodes[i].Name] = &f.Nodes[i]
	}
	for i := range f.GPUNodes {
		x.gpuNodes[f.GPUNodes[i].Name] = &f.GPUNodes[i]
	}
	for i := range f.Pods {
		p := &f.Pods[i]
		x.pods[p.Spec.NodeName] = append(x.pods[p.Spec.NodeName], p)
		if p.Namespace == f.Namespace && runs(p) {
			x.running[place{p.Spec.NodeName, p.Labels[nameLabel]}] = true
		}
	}
	out.index = x
	return &out
}
