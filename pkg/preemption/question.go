package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// question is one call of Victims, with the candidates by node and by gang.
type question struct {
	c          *gang.Cluster
	g          *gang.Group
	candidates *Candidates
	cfg        Config
	terms      terms
	stats      *Stats

	// nodes are the nodes of the cluster without the leaving pods, whose CPU and memory their hosts have back. The
	// package reads them and never writes them.
	nodes []*vgpu.Node
	// nodeOf is the node of each candidate as an index of nodes, −1 where the cluster does not have the node.
	nodeOf []int32
	// evictable says of each candidate whether it can be a victim, by itself or with its gang. Leaving pods cannot.
	evictable []bool
	gangs     []gangState
	// prices are what each evictable candidate costs, without its budgets and its gang.
	prices []podPrice
	// placed lists the candidates node by node: those of node i are placed[from[i]:from[i+1]]. See podsOn.
	placed, from []int32
	sorted       []bool
	// whole caches the cost of evicting each gang and no other pod; scratch computes it.
	whole   []Cost
	scratch *victimSet
}

// terms say what protects pods beside their priority.
type terms struct{ guards, budgets bool }

// gangState is what the search knows of a gang.
type gangState struct {
	// running lists the members that are not leaving, ascending.
	running []int32
	// surplus is how many members may be evicted one by one. whole says whether all members may be evicted at once.
	surplus int
	whole   bool
}

func newQuestion(c *gang.Cluster, g *gang.Group, candidates *Candidates, cfg Config) *question {
	q := &question{c: c, g: g, candidates: candidates, cfg: cfg, terms: terms{guards: true, budgets: cfg.KeepBudgets}, stats: &Stats{}}
	if q.cfg.MaxSteps == 0 {
		q.cfg.MaxSteps = DefaultMaxSteps
	}
	q.cfg.Policy = q.cfg.Policy.Remembering()
	q.locate()
	q.groupByNode()
	q.removeLeaving()
	q.markEvictable()
	q.priceCandidates()
	return q
}

// withTerms returns the question under other terms, with statistics of its own.
func (q *question) withTerms(t terms) *question {
	o := *q
	o.terms, o.stats, o.scratch = t, &Stats{}, nil
	o.markEvictable()
	o.priceCandidates()
	return &o
}

// locate finds the nodes of the candidates.
func (q *question) locate() {
	index := make(map[string]int32, len(q.c.Nodes))
	for i, n := range q.c.Nodes {
		index[n.Name()] = int32(i)
	}
	q.nodeOf = make([]int32, len(q.candidates.Pods))
	for p := range q.nodeOf {
		name := q.candidates.Pods[p].Node
		if p > 0 && q.candidates.Pods[p-1].Node == name {
			q.nodeOf[p] = q.nodeOf[p-1]
		} else if i, there := index[name]; there {
			q.nodeOf[p] = i
		} else {
			q.nodeOf[p] = -1
		}
	}
}

// groupByNode lists the candidates by node.
func (q *question) groupByNode() {
	q.from = make([]int32, len(q.c.Nodes)+1)
	q.sorted = make([]bool, len(q.c.Nodes))
	for _, i := range q.nodeOf {
		if i >= 0 {
			q.from[i+1]++
		}
	}
	for i := range q.c.Nodes {
		q.from[i+1] += q.from[i]
	}
	next := slices.Clone(q.from)
	q.placed = make([]int32, q.from[len(q.c.Nodes)])
	for p, i := range q.nodeOf {
		if i >= 0 {
			q.placed[next[i]] = int32(p)
			next[i]++
		}
	}
}

// podsOn returns the candidates on a node by UID, those that leave and those that stay included.
func (q *question) podsOn(node int) []int32 {
	list := q.placed[q.from[node]:q.from[node+1]]
	if !q.sorted[node] {
		q.sorted[node] = true
		slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(q.candidates.Pods[a].UID, q.candidates.Pods[b].UID) })
	}
	return list
}

// removeLeaving removes the leaving pods from the ledgers.
func (q *question) removeLeaving() {
	q.nodes = slices.Clone(q.c.Nodes)
	for p, i := range q.nodeOf {
		if i < 0 || !q.candidates.Pods[p].Leaving || q.nodes[i] != q.c.Nodes[i] {
			continue
		}
		q.nodes[i] = q.without(q.c.Nodes[i], int(i), func(p int32) bool { return q.candidates.Pods[p].Leaving })
	}
}

// without returns a clone of node i without some candidates. Their CPU and memory go back to the host, and their holds
// end.
func (q *question) without(n *vgpu.Node, i int, goes func(p int32) bool) *vgpu.Node {
	list := q.podsOn(i)
	room := n.Room()
	for _, p := range list {
		if goes(p) {
			room = room.Plus(q.candidates.Pods[p].Host)
		}
	}
	n = n.Without(func(h *vgpu.Hold, _ bool) bool {
		at, there := slices.BinarySearchFunc(list, h.UID, func(p int32, uid vgpu.UID) int { return cmp.Compare(q.candidates.Pods[p].UID, uid) })
		return there && goes(list[at])
	})
	n.SetRoom(room)
	return n
}

// markEvictable finds the candidates that can be victims under the terms.
func (q *question) markEvictable() {
	own := q.own()
	q.evictable = make([]bool, len(q.candidates.Pods))
	q.gangs, q.whole = make([]gangState, len(q.candidates.Gangs)), make([]Cost, len(q.candidates.Gangs))
	for g := range q.gangs {
		q.gangs[g].whole = true
	}
	priority := q.g.Members[0].Request.Priority
	for i := range q.candidates.Pods {
		p := &q.candidates.Pods[i]
		q.evictable[i] = (p.Priority < priority || p.Yields) && !p.Leaving && (p.Guard == "" || !q.terms.guards) && !own[p.UID]
		if p.Gang >= 0 && !p.Leaving {
			k := &q.gangs[p.Gang]
			k.running = append(k.running, int32(i))
			k.whole = k.whole && q.evictable[i]
		}
	}
	for g := range q.gangs {
		k := &q.gangs[g]
		if k.surplus = max(0, len(k.running)-q.candidates.Gangs[g].MinCount); k.surplus > 0 || k.whole {
			continue
		}
		for _, p := range k.running {
			q.evictable[p] = false
		}
	}
}

// own returns the pods of the preemptor.
func (q *question) own() map[vgpu.UID]bool {
	own := make(map[vgpu.UID]bool, len(q.g.Members)+len(q.g.Placed))
	for i := range q.g.Members {
		own[q.g.Members[i].Request.UID] = true
	}
	for i := range q.g.Placed {
		own[q.g.Placed[i].UID] = true
	}
	return own
}

// leaving returns the leaving pods of a node.
func (q *question) leaving(node int) (list []int32) {
	if q.nodes[node] == q.c.Nodes[node] {
		return nil
	}
	for _, p := range q.podsOn(node) {
		if q.candidates.Pods[p].Leaving {
			list = append(list, p)
		}
	}
	return list
}
