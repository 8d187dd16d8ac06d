package snapshot

import (
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// kinds are the words for kinds of containers, and classes those for paths, in the order of vgpu's values.
var (
	kinds   = []string{"app", "init", "sidecar"}
	classes = []string{"SYS", "NODE", "PHB", "PXB", "PIX", "NVLink"}
)

// NameOf splits "namespace/name". A name without a namespace, as in the simulator, has the namespace "".
func NameOf(path string, uid vgpu.UID) Name {
	namespace, name, ok := strings.Cut(path, "/")
	if !ok {
		namespace, name = "", path
	}
	return Name{namespace, name, uid}
}

// Path returns "namespace/name", as vgpu names pods.
func (n *Name) Path() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

// NodeOf returns what a ledger says. The names of workloads, priorities of pods and all that is measured are the caller's to add.
func NodeOf(n *vgpu.Node) Node {
	out := Node{
		Name: n.Name(), FreeMilliCPU: n.Room().MilliCPU, FreeMemoryBytes: n.Room().Memory, Links: linksOf(n),
		Devices: make([]Device, 0, len(n.Devices())), Pods: []Pod{}, Holds: []Hold{},
	}
	for i := range n.Devices() {
		d := &n.Devices()[i]
		out.Devices = append(out.Devices, Device{
			ID: d.ID, Index: d.Index, Model: d.Model, Slots: d.Slots, MemoryBytes: d.Memory, Contexts: d.Contexts, Healthy: d.Healthy,
		})
	}
	n.Each(func(a *vgpu.Assignment) { out.Pods = append(out.Pods, PodOf(a)) })
	n.EachHold(func(h *vgpu.Hold) {
		held := Hold{Pod: PodOf(&h.Assignment)}
		held.Priority = h.Priority
		if h.Until != 0 {
			held.Until = time.Unix(h.Until, 0).UTC()
		}
		out.Holds = append(out.Holds, held)
	})
	return out
}

// IsTopology reports whether a label of a node says where the node is: "topology" is in its key, as in topology.kubernetes.io/zone. Other
// labels may say what is nobody's business.
func IsTopology(key string) bool { return strings.Contains(key, "topology") }

// TopologyOf returns the labels that say where a node is, nil for none.
func TopologyOf(labels map[string]string) map[string]string {
	var out map[string]string
	for key, value := range labels {
		if IsTopology(key) {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// linksOf returns the links of a node that are better than the worst.
func linksOf(n *vgpu.Node) []Link {
	var links []Link
	for j := range n.Devices() {
		for i := range j {
			if l := n.Link(i, j); l.Class != vgpu.LinkSYS || l.Lanes != 0 {
				links = append(links, Link{[2]int{i, j}, classes[l.Class], l.Lanes})
			}
		}
	}
	return links
}

// PodOf returns what an assignment says.
func PodOf(a *vgpu.Assignment) Pod {
	p := Pod{Name: NameOf(a.Pod, a.UID), MaxSlowdownMilli: a.MaxSlowdown, Containers: make([]Container, 0, len(a.Containers))}
	for _, c := range a.Containers {
		p.Containers = append(p.Containers, Container{
			Name: c.Name, Kind: kinds[c.Kind], Devices: c.Devices, Slots: c.Share.Slots, MemoryBytes: c.Share.Memory,
			ComputeLimit: c.Share.ComputeLimit, MemoryLimitBytes: c.Share.MemoryLimit, AskedSlots: c.Asked,
		})
	}
	return p
}
