package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// question is what is asked of Victims, with the candidates by node and by gang.
type question struct {
	c     *gang.Cluster
	g     *gang.Group
	who   *Candidates
	cfg   Config
	terms terms
	stats *Stats

	// nodes are those of the cluster without the pods that leave, whose room is given back to their hosts. They are read,
	// never written.
	nodes []*vgpu.Node
	// nodeOf is the node of each candidate as an index of nodes, −1 for one that the cluster does not have.
	nodeOf []int32
	// may says of each candidate whether it can be a victim, by itself or with its gang. Those that leave already cannot.
	may   []bool
	gangs []party
	// placed lists the candidates node by node: those of node i are placed[from[i]:from[i+1]]. See on.
	placed, from []int32
	sorted       []bool
	// whole is the cost of evicting each gang and nobody else, as far as it is known: scratch adds it up.
	whole   []Cost
	scratch *choice
}

// terms say what keeps pods from being evicted beside their priority.
type terms struct{ guards, budgets bool }

// party is a gang as candidates see it.
type party struct {
	// running lists the members that do not leave, ascending.
	running []int32
	// surplus members may go one by one; all of them at once where whole says so.
	surplus int
	whole   bool
}

func newQuestion(c *gang.Cluster, g *gang.Group, who *Candidates, cfg Config) *question {
	q := &question{c: c, g: g, who: who, cfg: cfg, terms: terms{guards: true, budgets: cfg.KeepBudgets}, stats: &Stats{}}
	if q.cfg.MaxSteps == 0 {
		q.cfg.MaxSteps = DefaultMaxSteps
	}
	q.cfg.Policy = q.cfg.Policy.Remembering()
	q.locate()
	q.place()
	q.leave()
	q.muster()
	return q
}

// under returns the question under other terms, with statistics of its own.
func (q *question) under(t terms) *question {
	o := *q
	o.terms, o.stats, o.scratch = t, &Stats{}, nil
	o.muster()
	return &o
}

// locate finds the nodes of the candidates.
func (q *question) locate() {
	index := make(map[string]int32, len(q.c.Nodes))
	for i, n := range q.c.Nodes {
		index[n.Name()] = int32(i)
	}
	q.nodeOf = make([]int32, len(q.who.Pods))
	for p := range q.nodeOf {
		name := q.who.Pods[p].Node
		if p > 0 && q.who.Pods[p-1].Node == name {
			q.nodeOf[p] = q.nodeOf[p-1]
		} else if i, there := index[name]; there {
			q.nodeOf[p] = i
		} else {
			q.nodeOf[p] = -1
		}
	}
}

// place lists the candidates by node.
func (q *question) place() {
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

// on returns the candidates on a node by UID, those that leave and those that stay included.
func (q *question) on(node int) []int32 {
	list := q.placed[q.from[node]:q.from[node+1]]
	if !q.sorted[node] {
		q.sorted[node] = true
		slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(q.who.Pods[a].UID, q.who.Pods[b].UID) })
	}
	return list
}

// leave takes the pods that leave out of the ledgers.
func (q *question) leave() {
	q.nodes = slices.Clone(q.c.Nodes)
	for p, i := range q.nodeOf {
		if i < 0 || !q.who.Pods[p].Leaving || q.nodes[i] != q.c.Nodes[i] {
			continue
		}
		q.nodes[i] = q.without(q.c.Nodes[i], int(i), func(p int32) bool { return q.who.Pods[p].Leaving })
	}
}

// without returns a clone of node i without the candidates that go, whose room is given back to the host. Their holds go
// with them.
func (q *question) without(n *vgpu.Node, i int, goes func(p int32) bool) *vgpu.Node {
	list := q.on(i)
	room := n.Room()
	for _, p := range list {
		if goes(p) {
			room = room.Plus(q.who.Pods[p].Host)
		}
	}
	n = n.Without(func(h *vgpu.Hold, _ bool) bool {
		at, there := slices.BinarySearchFunc(list, h.UID, func(p int32, uid vgpu.UID) int { return cmp.Compare(q.who.Pods[p].UID, uid) })
		return there && goes(list[at])
	})
	n.SetRoom(room)
	return n
}

// muster finds out who can be a victim under the terms.
func (q *question) muster() {
	own := q.own()
	q.may = make([]bool, len(q.who.Pods))
	q.gangs, q.whole = make([]party, len(q.who.Gangs)), make([]Cost, len(q.who.Gangs))
	for g := range q.gangs {
		q.gangs[g].whole = true
	}
	priority := q.g.Members[0].Request.Priority
	for i := range q.who.Pods {
		p := &q.who.Pods[i]
		q.may[i] = p.Priority < priority && !p.Leaving && (p.Guard == "" || !q.terms.guards) && !own[p.UID]
		if p.Gang >= 0 && !p.Leaving {
			k := &q.gangs[p.Gang]
			k.running = append(k.running, int32(i))
			k.whole = k.whole && q.may[i]
		}
	}
	for g := range q.gangs {
		k := &q.gangs[g]
		if k.surplus = max(0, len(k.running)-q.who.Gangs[g].MinCount); k.surplus > 0 || k.whole {
			continue
		}
		for _, p := range k.running {
			q.may[p] = false
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

// leaving returns the pods that leave a node.
func (q *question) leaving(node int) (list []int32) {
	if q.nodes[node] == q.c.Nodes[node] {
		return nil
	}
	for _, p := range q.on(node) {
		if q.who.Pods[p].Leaving {
			list = append(list, p)
		}
	}
	return list
}
