package why

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// podsLeave finds the pods that preemption would evict if it might evict all of them, whatever their priorities: the cheapest by
// its own order, none superfluous.
func (q *question) podsLeave() (*Change, error) {
	own := q.requests[0].Priority
	for i := range q.requests {
		own = min(own, q.requests[i].Priority)
	}
	candidates, pods := q.candidates()
	if !below(candidates.Pods, own) {
		return nil, nil
	}
	nodes := slices.DeleteFunc(slices.Clone(q.nodes), func(n *vgpu.Node) bool { return q.stray[n.Name()] > 0 })
	plan, err := preemption.Victims(&gang.Cluster{Nodes: nodes}, q.group(q.requests), candidates, preemption.Config{
		Config: gang.Config{SkipExplanation: true}, Prices: preemption.DefaultPrices(), SkipExplanation: true,
	})
	if err != nil {
		return nil, fmt.Errorf("explain which pods would have to leave: %w", err)
	}
	if plan.Places == nil {
		return nil, nil
	}
	c := &Change{Kind: PodsLeave, request: q.requests, assigns: plan.Places}
	gone := slices.Clone(plan.Waits)
	for i := range plan.Evict {
		gone = append(gone, plan.Evict[i].Pods...)
	}
	for _, i := range gone {
		p := pods[i]
		c.Leave = append(c.Leave, Leaving{Name: p.Name, Node: candidates.Pods[i].Node, Priority: p.Priority, Higher: p.Priority >= own, Equal: p.Priority == own, Already: candidates.Pods[i].Leaving})
	}
	slices.SortFunc(c.Leave, func(a, b Leaving) int { return cmp.Or(cmp.Compare(a.Path(), b.Path()), cmp.Compare(a.UID, b.UID)) })
	return c, nil
}

// candidates returns the pods on the nodes, except members of the gang, as preemption knows them; and as the snapshot does.
func (q *question) candidates() (*preemption.Candidates, []*snapshot.Pod) {
	leaving := map[vgpu.UID]bool{}
	for i := range q.s.Preemptions {
		for _, v := range q.s.Preemptions[i].Victims {
			leaving[v.UID] = true
		}
	}
	all := 0
	for i := range q.s.Nodes {
		all += len(q.s.Nodes[i].Pods)
	}
	c, pods, gangs := &preemption.Candidates{Pods: make([]preemption.Pod, 0, all)}, make([]*snapshot.Pod, 0, all), map[snapshot.GangName]int{}
	for i := range q.s.Nodes {
		n := &q.s.Nodes[i]
		for k := range n.Pods {
			p := &n.Pods[k]
			if n.Problem != "" || q.own(p) {
				continue
			}
			one := preemption.Pod{UID: p.UID, Name: p.Path(), Node: n.Name, Priority: p.Priority, Leaving: leaving[p.UID], Gang: -1}
			if p.Gang != nil {
				at, known := gangs[*p.Gang]
				if !known {
					at = len(c.Gangs)
					gangs[*p.Gang] = at
					c.Gangs = append(c.Gangs, preemption.Gang{Name: p.Gang.Namespace + "/" + p.Gang.Name, MinCount: q.minCount(*p.Gang)})
				}
				one.Gang = at
			}
			c.Pods, pods = append(c.Pods, one), append(pods, p)
		}
	}
	return c, pods
}

// own reports whether a pod is a member of the gang that waits.
func (q *question) own(p *snapshot.Pod) bool {
	return p.Gang != nil && q.gang != nil && *p.Gang == *q.gang
}

// minCount returns the least number of members of a gang, 1 where the snapshot does not say it.
func (q *question) minCount(name snapshot.GangName) int {
	for i := range q.s.Gangs {
		if q.s.Gangs[i].GangName == name {
			return max(1, q.s.Gangs[i].MinCount)
		}
	}
	return 1
}

// below gives all pods priorities below one, in the order of their own. It reports false where so many do not exist.
func below(pods []preemption.Pod, own int32) bool {
	all := make([]int32, 0, len(pods))
	for i := range pods {
		all = append(all, pods[i].Priority)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if int64(own)-int64(len(all)) < math.MinInt32 {
		return false
	}
	for i := range pods {
		at, _ := slices.BinarySearch(all, pods[i].Priority)
		pods[i].Priority = own - int32(len(all)-at)
	}
	return true
}

// holdsEnd finds room that the scheduler keeps for others and that would have to be free: no hold of it is superfluous.
func (q *question) holdsEnd() (*Change, error) {
	all := q.holds()
	places, err := q.without(leaversOf(true, all))
	if err != nil || places == nil {
		return nil, err
	}
	return q.spare(HoldsEnd, all, places)
}

// spare returns the change without the superfluous ones of the pods or holds, in their order. Only those on the nodes of the places
// matter, which are few.
func (q *question) spare(kind Kind, all []Leaving, places []vgpu.Assignment) (*Change, error) {
	c := &Change{Kind: kind, request: q.requests, assigns: places}
	near := slices.DeleteFunc(slices.Clone(all), func(l Leaving) bool {
		return !slices.ContainsFunc(places, func(a vgpu.Assignment) bool { return a.Node == l.Node })
	})
	fewer, err := q.without(leaversOf(kind == HoldsEnd, near))
	if err != nil {
		return nil, err
	}
	if fewer != nil {
		all, c.assigns = near, fewer
	}
	gone := leaversOf(kind == HoldsEnd, all)
	for _, l := range all {
		delete(gone.pods, l.UID)
		fewer, err := q.without(gone)
		if err != nil {
			return nil, err
		}
		if fewer != nil {
			c.assigns = fewer
			continue
		}
		gone.pods[l.UID] = true
		c.Leave = append(c.Leave, l)
	}
	return c, nil
}

// leavers are holds, or assignments, that go, and the nodes where they are.
type leavers struct {
	held  bool
	pods  map[vgpu.UID]bool
	nodes map[string]bool
}

func leaversOf(held bool, all []Leaving) leavers {
	l := leavers{held, make(map[vgpu.UID]bool, len(all)), map[string]bool{}}
	for i := range all {
		l.pods[all[i].UID], l.nodes[all[i].Node] = true, true
	}
	return l
}

// without tries the pods without some holds, or without some assignments.
func (q *question) without(gone leavers) ([]vgpu.Assignment, error) {
	return q.tryWith(func(_ int, n *vgpu.Node) *vgpu.Node {
		if !gone.nodes[n.Name()] {
			return n
		}
		return n.Without(func(h *vgpu.Hold, held bool) bool { return held == gone.held && gone.pods[h.UID] })
	})
}

// holds returns the holds of others on the nodes, those of the highest priority first.
func (q *question) holds() []Leaving {
	var all []Leaving
	for i := range q.s.Nodes {
		n := &q.s.Nodes[i]
		for k := range n.Holds {
			if n.Problem != "" || slices.ContainsFunc(q.requests, func(r vgpu.Request) bool { return r.UID == n.Holds[k].UID }) {
				continue
			}
			h := Leaving{Name: n.Holds[k].Name, Node: n.Name, Priority: n.Holds[k].Priority, Higher: n.Holds[k].Priority >= q.requests[0].Priority, Equal: n.Holds[k].Priority == q.requests[0].Priority}
			if until := n.Holds[k].Until; !until.IsZero() {
				h.Until = until.Unix()
			}
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b Leaving) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.UID, b.UID))
	})
	return all
}
