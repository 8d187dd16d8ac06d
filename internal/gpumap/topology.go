package gpumap

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// levelsOf returns the keys of the labels that say where nodes are, the widest level first: the one with the fewest values. A label that is
// different on each of the nodes that have it names the node itself, and is no level.
func levelsOf(nodes []snapshot.Node) []string {
	values, have := map[string]map[string]bool{}, map[string]int{}
	for i := range nodes {
		for key, value := range nodes[i].Topology {
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
			have[key]++
		}
	}
	keys := make([]string, 0, len(values))
	for key, seen := range values {
		if len(seen) < have[key] || have[key] == 1 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(values[a]), len(values[b])), cmp.Compare(a, b))
	})
	return keys
}

// placeOf returns where a node is by the levels: "eu-1 / rack-7", "" where no label says it.
func placeOf(n *snapshot.Node, levels []string) string {
	parts := make([]string, 0, len(levels))
	for _, key := range levels {
		if value := n.Topology[key]; value != "" {
			parts = append(parts, value)
		}
	}
	return strings.Join(parts, " / ")
}

// byPlace sorts the rows: those of one place together, nodes without a place last. Within a place the order stays.
func byPlace(nodes []Node) {
	slices.SortStableFunc(nodes, func(a, b Node) int {
		switch {
		case a.Place == b.Place:
			return 0
		case a.Place == "":
			return 1
		case b.Place == "":
			return -1
		}
		return cmp.Compare(a.Place, b.Place)
	})
}
