package gang

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// Drain returns the places that the members wait for: as Place, on ledgers without the pods of others.
func Drain(c *Cluster, g *Group, cfg Config) (Plan, error) {
	empty := *c
	empty.Nodes = make([]*vgpu.Node, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		n = n.Clone()
		for _, a := range n.Assignments() {
			n.Remove(a.UID)
		}
		empty.Nodes = append(empty.Nodes, n)
	}
	return Place(&empty, g, cfg)
}
