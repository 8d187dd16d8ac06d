package gang

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// topology is a snapshot divided into cells, with the capacity of each.
type topology struct {
	snapshot *snapshot
	// cells by node. The first `whole` cells cover the nodes; the further ones are parts of them.
	cells []cell
	whole int
	// caps is the most members by class and cell. slots is the free slots by cell, where there are several classes.
	caps  [][]int32
	slots []int64
	// hosts is the most members that the host of each node takes, for islands of one node to share. The field is nil
	// where no host takes fewer members than its islands together, and where there are several classes.
	hosts []int32
	// left is what takesTogether has not counted yet of hosts.
	left []int32
	// cost, where it is not nil, orders domains that are otherwise equal: the least cost first. The cost replaces
	// tightness.
	cost func(cells []int32, l *load) int64
	// scores are the policy's scores of the first member, by cell. score fills them on demand.
	scores map[int32]int64
	// byKey caches the divisions by level.
	byKey map[string]*division
}

func newTopology(snap *snapshot, islands bool) *topology {
	cells := cellsOf(snap.nodes, islands)
	return topologyOf(snap, cells, len(cells))
}

// topologyOf computes the capacity of each cell.
func topologyOf(snap *snapshot, cells []cell, whole int) *topology {
	t := &topology{snapshot: snap, cells: cells, whole: whole, byKey: map[string]*division{}, scores: map[int32]int64{}}
	for k := range snap.members.classes {
		t.caps = append(t.caps, t.capacities(&snap.members.classes[k]))
	}
	if len(snap.members.classes) > 1 {
		t.slots = t.freeSlots()
	} else {
		t.noteSharedHosts()
	}
	return t
}

// division assigns each cell to a domain of one level. Domains have numbers in the order of their names. A cell on a
// node without the label is a domain of its own, with the number `named` or more.
type division struct {
	key   string
	of    []int32
	named int32
	name  func(domain int32) string
	// inUse are the domains of the members that have a place.
	inUse []int32
}

// nodes is the key of the division of cells by node.
const nodes = ""

// division returns the cells by level.
func (t *topology) division(key string) *division {
	if v := t.byKey[key]; v != nil {
		return v
	}
	var v *division
	switch key {
	case nodes:
		v = t.divide(func(i int) int32 { return t.cells[i].node })
		v.named = int32(len(t.snapshot.nodes))
		v.name = func(d int32) string { return t.snapshot.nodes[d].Name() }
	case NVLink:
		v = t.divide(func(i int) int32 { return t.cells[i].whole })
		v.named = int32(t.whole)
		v.name = t.island
	default:
		v = t.label(t.snapshot.c.level(key))
	}
	v.key = key
	v.noteInUse(t)
	t.byKey[key] = v
	return v
}

func (t *topology) divide(of func(cell int) int32) *division {
	v := &division{of: make([]int32, len(t.cells))}
	for i := range v.of {
		v.of[i] = of(i)
	}
	return v
}

// label divides the cells by a label of their nodes.
func (t *topology) label(l *Level) *division {
	order := make([]int32, len(l.Names))
	for i := range order {
		order[i] = int32(i)
	}
	byName := func(a, b int32) int { return cmp.Or(strings.Compare(l.Names[a], l.Names[b]), cmp.Compare(a, b)) }
	if !slices.IsSortedFunc(order, byName) {
		slices.SortFunc(order, byName)
	}
	rank := make([]int32, len(order))
	for at, d := range order {
		rank[d] = int32(at)
	}
	named := int32(len(order))
	v := t.divide(func(i int) int32 {
		node := t.cells[i].node
		if len(l.Domain) > 0 && l.Domain[node] >= 0 {
			return rank[l.Domain[node]]
		}
		return named + node
	})
	v.named = named
	v.name = func(d int32) string {
		if d < named {
			return l.Names[order[d]]
		}
		return t.snapshot.nodes[d-named].Name()
	}
	return v
}

// island names the devices of a cell for users: "n1/g0,g1".
func (t *topology) island(i int32) string {
	k := &t.cells[i]
	n := t.snapshot.nodes[k.node]
	var names []string
	for d := range n.Devices() {
		if k.has(d) {
			names = append(names, n.Devices()[d].Name())
		}
	}
	return n.Name() + "/" + strings.Join(names, ",")
}

// noteInUse records the domains of the members that have a place. A member on a node outside the snapshot has none.
func (v *division) noteInUse(t *topology) {
	for i := range t.snapshot.members.g.Placed {
		a := &t.snapshot.members.g.Placed[i]
		v.inUse = append(v.inUse, t.domainsOf(a, v)...)
	}
	slices.Sort(v.inUse)
	v.inUse = slices.Compact(v.inUse)
}

// domainsOf returns the domains of an assignment: for NVLink those of its devices, else those of its node.
func (t *topology) domainsOf(a *vgpu.Assignment, v *division) []int32 {
	node, there := t.snapshot.find(a.Node)
	if !there {
		return nil
	}
	at, _ := slices.BinarySearchFunc(t.cells[:t.whole], int32(node), func(k cell, node int32) int { return cmp.Compare(k.node, node) })
	if v.key != NVLink {
		return v.of[at : at+1]
	}
	var domains []int32
	for ; at < t.whole && t.cells[at].node == int32(node); at++ {
		for c := range a.Containers {
			for _, id := range a.Containers[c].Devices {
				if i := t.snapshot.nodes[node].Index(id); i >= 0 && t.cells[at].has(i) {
					domains = append(domains, v.of[at])
				}
			}
		}
	}
	return domains
}

// onlyDomain reports whether one named domain has all members that have a place, and which. The domain is −1, for any,
// where no member has a place.
func (v *division) onlyDomain() (domain int32, one bool) {
	switch {
	case len(v.inUse) == 0:
		return -1, true
	case len(v.inUse) > 1 || v.inUse[0] >= v.named:
		return -1, false
	}
	return v.inUse[0], true
}

// maxScores bounds the cells of a topology that the policy compares where all else is equal; further cells count as
// equal. A larger bound compares more cells, at some two microseconds each.
const maxScores = 256

// score returns the policy's score of a cell for the first member, 0 beyond maxScores.
func (t *topology) score(i int32) int64 {
	s, known := t.scores[i]
	if !known && len(t.scores) < maxScores {
		k := &t.cells[i]
		s = placement.Score(k.restrict(t.snapshot.nodes[k.node]), t.snapshot.members.classes[0].request, t.snapshot.policy)
		t.scores[i] = s
	}
	return s
}
