package gpugang

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// topologyCache keeps the order of the nodes and the domain of each between plans. Nodes change all the time and their
// labels hardly ever: without it, sorting 5,000 nodes and looking up their labels takes longer than a plan for a small
// gang.
type topologyCache struct {
	// nodes as the snapshot lists them, and their places in it by name.
	nodes []*v1.Node
	order []int
	// levels by key, the nodes in the order.
	levels map[string]*gang.Level
}

// refresh takes over the nodes of a cycle.
func (t *topologyCache) refresh(infos []fwk.NodeInfo) {
	if len(t.nodes) != len(infos) {
		t.rebuild(infos)
		return
	}
	for i, info := range infos {
		now, before := info.Node(), t.nodes[i]
		if now == before {
			continue
		}
		if now.Name != before.Name {
			t.rebuild(infos)
			return
		}
		for key := range t.levels {
			value, labelled := now.Labels[key]
			if old, labelledBefore := before.Labels[key]; value != old || labelled != labelledBefore {
				delete(t.levels, key)
			}
		}
		t.nodes[i] = now
	}
}

// rebuild starts anew from the nodes of a cycle.
func (t *topologyCache) rebuild(infos []fwk.NodeInfo) {
	t.nodes, t.order, t.levels = make([]*v1.Node, len(infos)), make([]int, len(infos)), map[string]*gang.Level{}
	for i, info := range infos {
		t.nodes[i], t.order[i] = info.Node(), i
	}
	slices.SortFunc(t.order, func(x, y int) int { return strings.Compare(t.nodes[x].Name, t.nodes[y].Name) })
}

// maxKept bounds the levels in the cache: tenants may name any key.
const maxKept = 32

// level divides the nodes, by name, by a label.
func (t *topologyCache) level(key string) *gang.Level {
	if l := t.levels[key]; l != nil {
		return l
	}
	l := &gang.Level{Key: key, Domain: make([]int32, len(t.order))}
	numbers := map[string]int32{}
	for at, i := range t.order {
		value, labelled := t.nodes[i].Labels[key]
		if !labelled {
			l.Domain[at] = -1
			continue
		}
		number, known := numbers[value]
		if !known {
			number = int32(len(l.Names))
			numbers[value] = number
			l.Names = append(l.Names, value)
		}
		l.Domain[at] = number
	}
	if len(t.levels) >= maxKept {
		clear(t.levels)
	}
	t.levels[key] = l
	return l
}

// cluster returns the nodes that have a ledger, by name, with the levels of the wishes, and their NodeInfos.
func (t *topologyCache) cluster(infos []fwk.NodeInfo, ledgers []*vgpu.Node, w gang.Wishes) (*gang.Cluster, []fwk.NodeInfo) {
	c := &gang.Cluster{Nodes: make([]*vgpu.Node, 0, len(infos))}
	known := make([]fwk.NodeInfo, 0, len(infos))
	for _, i := range t.order {
		if ledgers[i] != nil {
			c.Nodes = append(c.Nodes, ledgers[i])
			known = append(known, infos[i])
		}
	}
	for _, key := range slices.Concat(w.Required, w.Preferred) {
		if key == gang.NVLink || slices.ContainsFunc(c.Levels, func(l gang.Level) bool { return l.Key == key }) {
			continue
		}
		l := *t.level(key)
		if len(known) < len(infos) {
			l.Domain = t.without(l.Domain, ledgers, len(known))
		}
		c.Levels = append(c.Levels, l)
	}
	return c, known
}

// without returns the domains of the nodes that have a ledger.
func (t *topologyCache) without(domains []int32, ledgers []*vgpu.Node, count int) []int32 {
	out := make([]int32, 0, count)
	for at, i := range t.order {
		if ledgers[i] != nil {
			out = append(out, domains[at])
		}
	}
	return out
}
