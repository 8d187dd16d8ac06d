package gang

import (
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ground is the nodes on which a crew is placed, in one state of their ledgers. The nodes are read, never written.
type ground struct {
	c      *Cluster
	crew   *crew
	nodes  []*vgpu.Node
	policy placement.Policy
	// most is the number of domains of one level that are tried.
	most    int
	hosting hosting
	stats   *Stats

	byNode, byIsland *chart
}

// hosting is what counts of hosts.
type hosting uint8

const (
	// asTheyAre: the room that hosts have, and Cluster.Admits.
	asTheyAre hosting = iota
	// ifEmpty: the room that hosts have in the ledgers, and Cluster.Bars, which does not change when pods end.
	ifEmpty
	// notAtAll: CPU, memory, Cluster.Admits and Cluster.Bars do not count.
	notAtAll
)

// newGround looks at the nodes as the members see them: their own holds are gone.
func newGround(c *Cluster, w *crew, cfg Config, stats *Stats) *ground {
	f := &ground{c: c, crew: w, nodes: slices.Clone(c.Nodes), policy: cfg.Policy.Remembering(), most: cfg.MaxDomains, stats: stats}
	if f.most == 0 {
		f.most = DefaultMaxDomains
	}
	own := w.wants()
	for i, n := range f.nodes {
		held := false
		if n.Held() {
			n.EachHold(func(h *vgpu.Hold) { held = held || own(h.UID) })
		}
		if held {
			f.nodes[i] = n.Without(func(h *vgpu.Hold, hold bool) bool { return hold && own(h.UID) })
		}
	}
	return f
}

// on returns the ground with other ledgers of the same nodes, and statistics of its own.
func (f *ground) on(change func(i int, n *vgpu.Node) *vgpu.Node) *ground {
	other := *f
	other.byNode, other.byIsland, other.stats = nil, nil, &Stats{}
	other.nodes = make([]*vgpu.Node, len(f.nodes))
	for i, n := range f.nodes {
		other.nodes[i] = change(i, n)
	}
	return &other
}

// chart returns the ground cut into cells: islands, or nodes.
func (f *ground) chart(islands bool) *chart {
	at := &f.byNode
	if islands {
		at = &f.byIsland
	}
	if *at == nil {
		*at = newChart(f, islands)
	}
	return *at
}

// find returns the index of a node by name.
func (f *ground) find(name string) (node int, there bool) {
	return slices.BinarySearchFunc(f.nodes, name, func(n *vgpu.Node, name string) int { return strings.Compare(n.Name(), name) })
}
