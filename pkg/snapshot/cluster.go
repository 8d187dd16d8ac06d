package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Cluster returns the nodes with their ledgers, on which decisions can be tried. Nodes with a Problem are among them: a caller
// that tries a pod leaves them out. The number of a workload is its position in Workloads plus one. The error names the field
// that is broken.
//
// A scheduler that does not know to which node a pod was bound keeps room for it on several. A vgpu.Cluster has one hold of a pod:
// the others are there under the UID "uid@node", so that they keep their room from everybody.
func (s *Snapshot) Cluster() (*vgpu.Cluster, error) {
	nodes, err := s.Ledgers()
	if err != nil {
		return nil, err
	}
	c, err := vgpu.NewCluster(nodes...)
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	return c, nil
}

// Ledgers returns the nodes of Cluster. It does not look whether a pod or a device is on two of them, which Check does.
func (s *Snapshot) Ledgers() ([]*vgpu.Node, error) {
	b := clusterBuilder{numbers: numbered(s.Workloads()), held: map[vgpu.UID]bool{}}
	nodes := make([]*vgpu.Node, 0, len(s.Nodes))
	for i := range s.Nodes {
		n, err := b.ledger(&s.Nodes[i])
		if err != nil {
			return nil, fmt.Errorf("nodes[%d]%w", i, err)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// Workloads returns the workloads of all pods, "namespace/profile", sorted.
func (s *Snapshot) Workloads() []string {
	all := map[workload]bool{}
	add := func(namespace, name string) {
		if name != "" {
			all[workload{namespace, name}] = true
		}
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			add(s.Nodes[i].Pods[k].Namespace, s.Nodes[i].Pods[k].Workload)
		}
		for k := range s.Nodes[i].Holds {
			add(s.Nodes[i].Holds[k].Namespace, s.Nodes[i].Holds[k].Workload)
		}
	}
	for i := range s.Pending {
		add(s.Pending[i].Namespace, s.Pending[i].Workload)
	}
	names := make([]string, 0, len(all))
	for w := range all {
		names = append(names, w.namespace+"/"+w.name)
	}
	slices.Sort(names)
	return names
}

// workload names a WorkloadProfile.
type workload struct{ namespace, name string }

// numbers are the numbers of workloads, from 1 on.
type numbers map[workload]uint32

// numbered numbers workloads by their positions. A namespace has no slash.
func numbered(workloads []string) numbers {
	all := make(numbers, len(workloads))
	for i, w := range workloads {
		namespace, name, _ := strings.Cut(w, "/")
		all[workload{namespace, name}] = uint32(i) + 1
	}
	return all
}

// of returns the number of a workload, 0 for none.
func (n numbers) of(namespace, name string) uint32 { return n[workload{namespace, name}] }

// clusterBuilder makes nodes, with the numbers of workloads and the pods for which room was held on the nodes before.
type clusterBuilder struct {
	numbers numbers
	held    map[vgpu.UID]bool
}

// ledger makes a node. Its errors begin with the path of a field in the node.
func (b *clusterBuilder) ledger(n *Node) (*vgpu.Node, error) {
	devices, err := n.devices()
	if err != nil {
		return nil, err
	}
	out, err := vgpu.NewNode(n.Name, devices)
	if err != nil {
		return nil, fmt.Errorf(".devices: %w", err)
	}
	out.Grow(len(n.Pods))
	for i := range n.Pods {
		a, err := n.Pods[i].assignment(n.Name, b.numbers)
		if err == nil {
			err = out.Add(a)
		}
		if err != nil {
			return nil, fmt.Errorf(".pods[%d]: %w", i, err)
		}
	}
	for i := range n.Holds {
		hold, err := b.hold(n, &n.Holds[i])
		if err == nil {
			err = out.Hold(hold)
		}
		if err != nil {
			return nil, fmt.Errorf(".holds[%d]: %w", i, err)
		}
	}
	out.SetRoom(vgpu.Room{MilliCPU: n.FreeMilliCPU, Memory: n.FreeMemoryBytes})
	return out, nil
}

func (b *clusterBuilder) hold(n *Node, h *Hold) (vgpu.Hold, error) {
	a, err := h.assignment(n.Name, b.numbers)
	if b.held[a.UID] {
		a.UID += vgpu.UID("@" + n.Name)
	}
	b.held[h.UID] = true
	hold := vgpu.Hold{Assignment: a, Priority: h.Priority}
	if !h.Until.IsZero() {
		hold.Until = h.Until.Unix()
	}
	return hold, err
}

// devices returns the devices with their links.
func (n *Node) devices() ([]vgpu.Device, error) {
	devices := make([]vgpu.Device, 0, len(n.Devices))
	for _, d := range n.Devices {
		devices = append(devices, vgpu.Device{
			ID: d.ID, Index: d.Index, Model: d.Model, Slots: d.Slots, Memory: d.MemoryBytes, Contexts: d.Contexts, Healthy: d.Healthy,
		})
	}
	n.makeRoomForLinks(devices)
	for i, l := range n.Links {
		class := slices.Index(classes, l.Class)
		a, b := l.Between[0], l.Between[1]
		switch {
		case class < 0:
			return nil, fmt.Errorf(".links[%d].class: %q, legal are %v", i, l.Class, classes)
		case a < 0 || b <= a || b >= len(devices):
			return nil, fmt.Errorf(".links[%d].between: %v, legal are two positions of the %d devices, the lower first", i, l.Between, len(devices))
		case l.Lanes < 0:
			return nil, fmt.Errorf(".links[%d].lanes: %d, legal is 0 or more", i, l.Lanes)
		}
		devices[a].Links = append(devices[a].Links, vgpu.Link{Peer: devices[b].ID, Class: vgpu.LinkClass(class), Lanes: l.Lanes})
	}
	return devices, nil
}

// makeRoomForLinks gives each device an empty list with room for its links: nodes have many.
func (n *Node) makeRoomForLinks(devices []vgpu.Device) {
	count := make([]int, len(devices))
	for _, l := range n.Links {
		if a := l.Between[0]; a >= 0 && a < len(count) {
			count[a]++
		}
	}
	for i := range devices {
		if count[i] > 0 {
			devices[i].Links = make([]vgpu.Link, 0, count[i])
		}
	}
}

// assignment returns the assignment of a pod.
func (p *Pod) assignment(node string, n numbers) (vgpu.Assignment, error) {
	a := vgpu.Assignment{UID: p.UID, Pod: p.Path(), Node: node}
	a.Workload, a.MaxSlowdown = n.of(p.Namespace, p.Workload), p.MaxSlowdownMilli
	for i, c := range p.Containers {
		kind, err := kindOf(c.Kind)
		if err != nil {
			return a, fmt.Errorf("containers[%d].kind: %w", i, err)
		}
		a.Containers = append(a.Containers, vgpu.ContainerAssignment{
			Name: c.Name, Kind: kind, Devices: c.Devices, Asked: c.AskedSlots, Share: vgpu.Share{
				Devices: len(c.Devices), Slots: c.Slots, Memory: c.MemoryBytes, ComputeLimit: c.ComputeLimit, MemoryLimit: c.MemoryLimitBytes,
			},
		})
	}
	return a, nil
}

func kindOf(word string) (vgpu.ContainerKind, error) {
	at := slices.Index(kinds, word)
	if at < 0 {
		return 0, fmt.Errorf("%q, legal are %v", word, kinds)
	}
	return vgpu.ContainerKind(at), nil
}
