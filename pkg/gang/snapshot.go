package gang

import (
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// snapshot is the nodes with one state of their ledgers, for a search. The package reads the nodes and never writes
// them.
type snapshot struct {
	c       *Cluster
	members *memberClasses
	nodes   []*vgpu.Node
	policy  placement.Policy
	// maxDomains is the number of domains of one level that the search tries.
	maxDomains int
	hostRule   hostRule
	stats      *Stats

	byNode, byIsland *topology
}

// hostRule says which limits of hosts count.
type hostRule uint8

const (
	// hostsAsTheyAre: the CPU and memory that hosts have free, and Cluster.Admits.
	hostsAsTheyAre hostRule = iota
	// hostsIfEmpty: the CPU and memory that hosts have in the ledgers, and Cluster.Bars, which does not change when
	// pods end.
	hostsIfEmpty
	// hostsIgnored: CPU, memory, Cluster.Admits and Cluster.Bars do not count.
	hostsIgnored
)

// newSnapshot returns the nodes as the members see them: without the members' own holds.
func newSnapshot(c *Cluster, mc *memberClasses, cfg Config, stats *Stats) *snapshot {
	snap := &snapshot{c: c, members: mc, nodes: slices.Clone(c.Nodes), policy: cfg.Policy.Remembering(), maxDomains: cfg.MaxDomains, stats: stats}
	if snap.maxDomains == 0 {
		snap.maxDomains = DefaultMaxDomains
	}
	own := mc.isUnplaced()
	for i, n := range snap.nodes {
		held := false
		if n.Held() {
			n.EachHold(func(h *vgpu.Hold) { held = held || own(h.UID) })
		}
		if held {
			snap.nodes[i] = n.Without(func(h *vgpu.Hold, hold bool) bool { return hold && own(h.UID) })
		}
	}
	return snap
}

// withNodes returns the snapshot with other ledgers of the same nodes, and with statistics of its own.
func (snap *snapshot) withNodes(change func(i int, n *vgpu.Node) *vgpu.Node) *snapshot {
	other := *snap
	other.byNode, other.byIsland, other.stats = nil, nil, &Stats{}
	other.nodes = make([]*vgpu.Node, len(snap.nodes))
	for i, n := range snap.nodes {
		other.nodes[i] = change(i, n)
	}
	return &other
}

// topology returns the snapshot divided into cells: islands, or nodes.
func (snap *snapshot) topology(islands bool) *topology {
	at := &snap.byNode
	if islands {
		at = &snap.byIsland
	}
	if *at == nil {
		*at = newTopology(snap, islands)
	}
	return *at
}

// find returns the index of a node by name.
func (snap *snapshot) find(name string) (node int, there bool) {
	return slices.BinarySearchFunc(snap.nodes, name, func(n *vgpu.Node, name string) int { return strings.Compare(n.Name(), name) })
}
