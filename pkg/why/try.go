package why

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// try returns places for pods on nodes, nil where too few have one. A pod without a place has the node "".
func (q *question) try(nodes []*vgpu.Node, requests []vgpu.Request) ([]vgpu.Assignment, error) {
	if q.gang == nil {
		at := slices.IndexFunc(nodes, func(n *vgpu.Node) bool { return q.fits(n, &requests[0]) })
		if at < 0 {
			return nil, nil
		}
		a, refusal := placement.Assign(nodes[at], &requests[0], q.policy)
		if refusal != nil {
			return nil, fmt.Errorf("explain: node %s takes the pod and has no devices for it: %v", nodes[at].Name(), refusal)
		}
		return []vgpu.Assignment{a}, nil
	}
	kinds := unlike(requests)
	return q.place(slices.DeleteFunc(slices.Clone(nodes), func(n *vgpu.Node) bool { return !q.mayTake(n, kinds) }), requests)
}

// now tries the pods as they are, on the nodes as they are.
func (q *question) now() ([]vgpu.Assignment, error) {
	if q.gang == nil {
		return q.try(q.nodes, q.requests)
	}
	return q.tryWith(func(_ int, n *vgpu.Node) *vgpu.Node { return n })
}

// tryWith tries the pods where some nodes are otherwise: change returns another node for them, of q.nodes[i]. The pods do not fit as it is, so that a
// single pod needs one of the other nodes.
func (q *question) tryWith(change func(i int, n *vgpu.Node) *vgpu.Node) ([]vgpu.Assignment, error) {
	var nodes []*vgpu.Node
	kinds := unlike(q.requests)
	for i, n := range q.nodes {
		other := change(i, n)
		if q.gang == nil && other != n || q.gang != nil && q.remembered(other, kinds) {
			nodes = append(nodes, other)
		}
	}
	if q.gang == nil {
		return q.try(nodes, q.requests)
	}
	return q.place(nodes, q.requests)
}

// remembered is mayTake for the requests as they are, asked once for each node.
func (q *question) remembered(n *vgpu.Node, kinds []*vgpu.Request) bool {
	may, known := q.may[n]
	if !known {
		may = q.mayTake(n, kinds)
		q.may[n] = may
	}
	return may
}

// place places a gang on nodes. Package gang knows no stray slots, so nodes with some are left out.
func (q *question) place(nodes []*vgpu.Node, requests []vgpu.Request) ([]vgpu.Assignment, error) {
	plan, err := gang.Place(&gang.Cluster{Nodes: nodes}, q.group(requests), gang.Config{SkipExplanation: true})
	if err != nil {
		return nil, fmt.Errorf("explain gang: %w", err)
	}
	return plan.Places, nil
}

// mayTake reports whether a node may get a member of the gang: it takes one, or keeps room for somebody, who may be one.
func (q *question) mayTake(n *vgpu.Node, kinds []*vgpu.Request) bool {
	if _, stray := q.stray[n.Name()]; stray {
		return false
	}
	return n.Held() || slices.ContainsFunc(kinds, func(r *vgpu.Request) bool { return q.policy.Fits(n, r) })
}

// unlike returns the requests without those that are like the one before.
func unlike(requests []vgpu.Request) []*vgpu.Request {
	var kinds []*vgpu.Request
	for i := range requests {
		if i == 0 || !alike(&requests[i], &requests[i-1]) {
			kinds = append(kinds, &requests[i])
		}
	}
	return kinds
}

// alike reports whether the same devices take two pods.
func alike(a, b *vgpu.Request) bool {
	return slices.Equal(a.Containers, b.Containers) && slices.Equal(a.Variants, b.Variants) && a.Tenancy == b.Tenancy &&
		a.Priority == b.Priority && a.Ends == b.Ends && a.ComputeLimit == b.ComputeLimit && a.MemoryLimit == b.MemoryLimit
}
