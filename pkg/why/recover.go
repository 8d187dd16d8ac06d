package why

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// nodesReturn finds nodes that take no pods and would have to: none of them is superfluous.
func (q *question) nodesReturn() (*Change, error) {
	open := func(without map[*vgpu.Node]bool) ([]vgpu.Assignment, error) {
		var nodes []*vgpu.Node
		if q.gang != nil { // a single pod fits on none of these
			nodes = append(nodes, q.nodes...)
		}
		for _, n := range q.closed {
			if !without[n] {
				nodes = append(nodes, n)
			}
		}
		slices.SortFunc(nodes, byName)
		return q.try(nodes, q.requests)
	}
	if len(q.closed) == 0 {
		return nil, nil
	}
	shut := map[*vgpu.Node]bool{}
	places, err := open(shut)
	if err != nil || places == nil {
		return nil, err
	}
	for _, n := range q.closed {
		shut[n] = !slices.ContainsFunc(places, func(a vgpu.Assignment) bool { return a.Node == n.Name() })
	}
	c := &Change{Kind: NodesReturn, request: q.requests, assigns: places}
	for _, n := range q.closed {
		if shut[n] {
			continue
		}
		shut[n] = true
		fewer, err := open(shut)
		if err != nil {
			return nil, err
		}
		if fewer != nil {
			c.assigns = fewer
			continue
		}
		shut[n] = false
		c.Nodes = append(c.Nodes, ClosedNode{n.Name(), q.problems[n.Name()]})
	}
	return c, nil
}

func byName(a, b *vgpu.Node) int { return cmp.Compare(a.Name(), b.Name()) }

// devicesRecover finds devices that are not healthy and would have to be: none of them is superfluous.
func (q *question) devicesRecover() (*Change, error) {
	healed := map[vgpu.DeviceID]bool{}
	for _, n := range q.nodes {
		for i := range n.Devices() {
			if d := &n.Devices()[i]; !d.Healthy {
				healed[d.ID] = true
			}
		}
	}
	if len(healed) == 0 {
		return nil, nil
	}
	places, err := q.healing(healed)
	if err != nil || places == nil {
		return nil, err
	}
	c := &Change{Kind: DevicesRecover, request: q.requests, assigns: places}
	for _, n := range q.nodes {
		for i := range n.Devices() {
			d := &n.Devices()[i]
			if !healed[d.ID] {
				continue
			}
			delete(healed, d.ID)
			fewer, err := q.healing(healed)
			if err != nil {
				return nil, err
			}
			if fewer != nil {
				c.assigns = fewer
				continue
			}
			healed[d.ID] = true
			c.Devices, c.Reasons = append(c.Devices, n.Name()+"/"+d.Name()), append(c.Reasons, q.ails(n.Name(), d.ID))
		}
	}
	return c, nil
}

// ails returns the words for why a device takes no work, "" where the snapshot has none.
func (q *question) ails(node string, id vgpu.DeviceID) string {
	at, _ := slices.BinarySearchFunc(q.s.Nodes, node, func(n snapshot.Node, name string) int { return cmp.Compare(n.Name, name) })
	n := &q.s.Nodes[at]
	return n.Ails(slices.IndexFunc(n.Devices, func(d snapshot.Device) bool { return d.ID == id }))
}

// healing tries the pods with some devices healthy.
func (q *question) healing(healed map[vgpu.DeviceID]bool) ([]vgpu.Assignment, error) {
	return q.tryWith(func(_ int, n *vgpu.Node) *vgpu.Node {
		if !slices.ContainsFunc(n.Devices(), func(d vgpu.Device) bool { return healed[d.ID] }) {
			return n
		}
		return n.Healed().Only(func(k int) bool { return n.Devices()[k].Healthy || healed[n.Devices()[k].ID] })
	})
}
