package gpugang

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// admittance says which nodes take which members by everything except devices and room of the host, as far as a look
// can see. The in-tree plugins decide when the scheduler tries the member.
type admittance struct {
	nodes []fwk.NodeInfo
	// most is how many members a node takes that refused one, by name.
	most  map[string]int
	kinds []kind
}

// kind is members that the same nodes take.
type kind struct {
	pod    *v1.Pod
	demand admission.Demand
	// but are the nodes where the pod may have devices, which it would get again.
	but []vgpu.Assignment
	// known is the answer per node, plus one; 0 before the first count.
	known []int32
}

// kind returns the number of the kind of a pod, which takes none of the nodes where it may have devices.
func (a *admittance) kind(pod *v1.Pod, unresolved []vgpu.Assignment) int {
	for i := range a.kinds {
		if len(unresolved) == 0 && len(a.kinds[i].but) == 0 && admission.Alike(a.kinds[i].pod, pod) {
			return i
		}
	}
	a.kinds = append(a.kinds, kind{pod: pod, demand: admission.Of(pod), but: unresolved})
	return len(a.kinds) - 1
}

// count returns how many members of a kind a node takes: all that it has places for pods for, or none.
func (a *admittance) count(number, node int) int {
	k := &a.kinds[number]
	if k.known == nil {
		k.known = make([]int32, len(a.nodes))
	}
	if k.known[node] == 0 {
		k.known[node] = int32(a.look(k, a.nodes[node])) + 1
	}
	return int(k.known[node]) - 1
}

// bar returns why a node takes no member of a kind before the node or the pod changes, "" where it may take some.
func (a *admittance) bar(number, node int) string {
	return a.kinds[number].demand.Bar(a.nodes[node].Node())
}

func (a *admittance) look(k *kind, info fwk.NodeInfo) int {
	node := info.Node()
	most, capped := a.most[node.Name]
	if capped && most == 0 || slices.ContainsFunc(k.but, func(a vgpu.Assignment) bool { return a.Node == node.Name }) {
		return 0
	}
	if !k.demand.MetBy(node) {
		return 0
	}
	places := max(0, info.GetAllocatable().GetAllowedPodNumber()-len(info.GetPods()))
	if capped {
		return min(places, most)
	}
	return places
}
