package sim

import (
	"maps"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Hostname is the label that each node has, with its name: a level of one node each.
const Hostname = "kubernetes.io/hostname"

// levelsOf returns the levels that the labels make of the nodes, by key.
func levelsOf(nodes []*vgpu.Node, labels map[string]map[string]string) []gang.Level {
	values := map[string]map[string]bool{Hostname: {}}
	value := func(n *vgpu.Node, key string) (string, bool) {
		v, given := labels[n.Name()][key]
		if key == Hostname && !given {
			return n.Name(), true
		}
		return v, given
	}
	for _, n := range nodes {
		for key, v := range labels[n.Name()] {
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][v] = true
		}
		v, _ := value(n, Hostname)
		values[Hostname][v] = true
	}
	levels := make([]gang.Level, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		l := gang.Level{Key: key, Names: slices.Sorted(maps.Keys(values[key])), Domain: make([]int32, 0, len(nodes))}
		for _, n := range nodes {
			domain := int32(-1)
			if v, has := value(n, key); has {
				i, _ := slices.BinarySearch(l.Names, v)
				domain = int32(i)
			}
			l.Domain = append(l.Domain, domain)
		}
		levels = append(levels, l)
	}
	return levels
}

// levelOf returns the level with a key, one in which no node has a domain where there is none.
func levelOf(levels []gang.Level, key string, nodes int) gang.Level {
	if i := slices.IndexFunc(levels, func(l gang.Level) bool { return l.Key == key }); i >= 0 {
		return levels[i]
	}
	return gang.Level{Key: key, Domain: slices.Repeat([]int32{-1}, nodes)}
}

// spread counts the domains of each level on which some nodes are, given by their place in the cluster. A node without the
// label is a domain of its own.
func spread(levels []gang.Level, nodes []int) []gang.Spread {
	all := make([]gang.Spread, 0, len(levels))
	for i := range levels {
		domains := map[int32]bool{}
		for _, n := range nodes {
			domain := levels[i].Domain[n]
			if domain < 0 {
				domain = -1 - int32(n)
			}
			domains[domain] = true
		}
		all = append(all, gang.Spread{Key: levels[i].Key, Domains: len(domains)})
	}
	return all
}
