package gang

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// cell is the smallest set of devices for members: a node, or one of its islands, or a part of either.
type cell struct {
	node int32
	// whole is the number of the cell of which this one is a part; most cells are their own.
	whole int32
	// devices of the island by index, nil for the whole node.
	devices []int
}

// islandsOf returns the sets of devices that NVLink joins, directly or through each other, by their first device. A
// device without NVLink is an island of its own. A node without devices has one empty island.
func islandsOf(n *vgpu.Node) [][]int {
	m := len(n.Devices())
	if m == 0 {
		return [][]int{{}}
	}
	islands := make([][]int, 0, 1)
	seen := make([]bool, m)
	for first := range m {
		if seen[first] {
			continue
		}
		seen[first] = true
		island := []int{first}
		for at := 0; at < len(island); at++ {
			for j := first + 1; j < m; j++ {
				if !seen[j] && n.Link(island[at], j).Class == vgpu.LinkNVLink {
					seen[j] = true
					island = append(island, j)
				}
			}
		}
		slices.Sort(island)
		islands = append(islands, island)
	}
	return islands
}

// hasNVLink reports whether NVLink joins any two devices of the node.
func hasNVLink(n *vgpu.Node) bool { return len(islandsOf(n)) < len(n.Devices()) }

// cellsOf divides the nodes into cells.
func cellsOf(nodes []*vgpu.Node, islands bool) []cell {
	cells := make([]cell, 0, len(nodes))
	for i, n := range nodes {
		if !islands {
			cells = append(cells, cell{node: int32(i), whole: int32(len(cells))})
			continue
		}
		for _, devices := range islandsOf(n) {
			cells = append(cells, cell{int32(i), int32(len(cells)), devices})
		}
	}
	return cells
}

// restrict returns the node with the devices of the cell only.
func (k *cell) restrict(n *vgpu.Node) *vgpu.Node {
	if k.devices == nil || len(k.devices) == len(n.Devices()) {
		return n
	}
	return n.Only(func(i int) bool { return slices.Contains(k.devices, i) })
}

// has reports whether the cell has a device.
func (k *cell) has(i int) bool { return k.devices == nil || slices.Contains(k.devices, i) }
