package gpushare

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// The nodes that a pod may use share the steps of a look, however many others there are. The pod of the test just fills a node, which takes
// some two hundred steps: all nodes together are not searched as well.
func TestSelectedNodesShareSteps(t *testing.T) {
	const many = 1000
	gpuNodes := make([]*v1alpha1.GPUNode, many)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%03d", i), 4)
	}
	d := newDesk(t, gpuNodes...)
	hosts := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, n := range d.nodes {
		must.OK(t, hosts.Add(n.Node()))
	}
	d.plugin.hosts = corelisters.NewNodeLister(hosts)
	full := func(name string) *v1.Pod {
		return with(pod(name, 2), func(p *v1.Pod) {
			for i, slots := range []int{2, 4, 2, 2, 3, 2, 3, 2, 3, 5, 3, 2, 3, 2} {
				c := pod(name, slots).Spec.Containers[0]
				c.Name = fmt.Sprint("c", i)
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		})
	}
	anywhere, selected, named := full("anywhere"), full("selected"), full("named")
	selected.Spec.NodeSelector = map[string]string{"name": "node-700"}
	var terms []v1.NodeSelectorTerm
	for _, name := range []string{"node-700", "node-701"} {
		terms = append(terms, v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}}}})
	}
	named.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	for _, c := range []struct {
		pod         *v1.Pod
		nodes       int
		fits, lists bool
	}{{anywhere, many, false, false}, {selected, 1, true, true}, {named, 2, true, true}} {
		cs := d.preFilter(c.pod)
		if got := requestOf(cs).Steps; got != placement.StepsOn(c.nodes) || got*c.nodes > max(30_000, 30*c.nodes) {
			t.Errorf("%s: each of %d nodes has %d steps, want %d", c.pod.Name, c.nodes, got, placement.StepsOn(c.nodes))
		}
		if why := d.filter(cs, c.pod, d.byName["node-700"]); (why == "") != c.fits {
			t.Errorf("%s: node-700 refuses %q", c.pod.Name, why)
		}
		if _, err := cs.Read(shortlistedKey); (err == nil) != c.lists {
			t.Errorf("%s: a shortlist: %v", c.pod.Name, err)
		}
	}
	if got := d.plugin.Steps(with(pod("one", 1), func(p *v1.Pod) { p.Spec.NodeSelector = selected.Spec.NodeSelector }), &vgpu.Request{Containers: make([]vgpu.ContainerRequest, 1)}); got != placement.StepsOn(many) {
		t.Errorf("a pod of one container, which needs no search, has %d steps", got)
	}
}

// The nodes that a pod does not select are neither compared for it nor, by the words for its owner, searched as long as its own.
func TestOtherNodesAreNotCompared(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1), gpuNode("n3", 1))
	p := with(pod("p", 1), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n2"} })
	cs := d.preFilter(p)
	demand := newDemand(p, vgpu.Room{})
	d.plugin.state.ranking.mu.Lock()
	defer d.plugin.state.ranking.mu.Unlock()
	d.plugin.state.nodeEntries(d.nodes)
	d.plugin.state.ranking.scoresOf(requestOf(cs), d.plugin.state.ruling())
	for i, at := range d.plugin.state.entrants(d.nodes, requestOf(cs), &demand) {
		if name := d.nodes[i].Node().Name; (at.Node != nil) != (name == "n2") {
			t.Errorf("%s takes part: %v", name, at.Node != nil)
		}
	}
}
