package recorder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// view is what the API says of the nodes now.
type view struct {
	nodes    []*v1.Node // by name
	gpuNodes map[string]*v1alpha1.GPUNode
}

// inventory returns what there is, and a text that changes when a difference begins a new period: in the devices, in what hosts have, or
// in which pods nodes admit. used is what pods without GPUs take of each host.
func (v *view) inventory(classes []*v1.Pod, used map[string]vgpu.Room) (inv shadow.Inventory, mark string, err error) {
	inv.Labels, inv.Admits = map[string]map[string]string{}, map[int][]string{}
	var text strings.Builder
	known := make([]*v1.Node, 0, len(v.nodes))
	for _, n := range v.nodes {
		devices, why := devicesOf(n, v.gpuNodes[n.Name])
		if why != "" {
			inv.Unknown = append(inv.Unknown, shadow.Unknown{What: "node " + n.Name, Why: why})
		}
		if len(devices) == 0 {
			continue
		}
		node, err := vgpu.NewNode(n.Name, devices)
		if err != nil {
			return inv, "", fmt.Errorf("read node %s: %w", n.Name, err)
		}
		room := vgpu.Room{MilliCPU: n.Status.Allocatable.Cpu().MilliValue(), Memory: vgpu.Bytes(n.Status.Allocatable.Memory().Value())}
		node.SetRoom(room.Less(used[n.Name]))
		inv.Nodes, inv.Labels[n.Name] = append(inv.Nodes, node), maps.Clone(n.Labels)
		known = append(known, n)
		fmt.Fprintf(&text, "%s %v %v\n", n.Name, devices, room)
	}
	for class, pod := range classes {
		inv.Admits[class] = admitting(pod, known)
		fmt.Fprintf(&text, "%d %v\n", class, inv.Admits[class])
	}
	return inv, text.String(), nil
}

// admitting returns the names of the nodes that take a pod, apart from devices and room.
func admitting(pod *v1.Pod, nodes []*v1.Node) []string {
	demand := admission.Of(pod)
	names := []string{}
	for _, n := range nodes {
		if demand.MetBy(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

// known returns the nodes whose GPUs are known.
func (v *view) known() []*v1.Node {
	return slices.DeleteFunc(slices.Clone(v.nodes), func(n *v1.Node) bool {
		devices, _ := devicesOf(n, v.gpuNodes[n.Name])
		return len(devices) == 0
	})
}

// usedByOthers returns what pods without GPUs take of the hosts.
func usedByOthers(pods []*v1.Pod) map[string]vgpu.Room {
	used := map[string]vgpu.Room{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || ended(pod) {
			continue
		}
		if r, err := requestOf(pod); err == nil && len(r.Containers) > 0 {
			continue // it is booked itself
		}
		host, err := kube.Host(pod)
		if err != nil {
			continue // no host has so much, so the amounts say nothing
		}
		used[pod.Spec.NodeName] = used[pod.Spec.NodeName].Plus(host)
	}
	return used
}

// byName sorts nodes.
func byName(nodes []*v1.Node) []*v1.Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
}
