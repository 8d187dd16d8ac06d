package gpupreempt

import (
	"cmp"
	"context"
	"slices"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxReprieved bounds the nodes that the plugin looks at in full where room alone does not suffice. More find cheaper
// victims, and take as many runs of the filters as there are pods on them.
const maxReprieved = 8

// reprieve returns the cheapest plan for one of the nodes that lack something else than room for the pod, nil where
// there is none. The obstacle may be a host port or an anti-affinity of a pod of a lower priority. All evictable units
// leave the copy of the node. Then reprieve spares as many as the framework's filters allow, the most expensive first.
//
// Greedy: none of the units could stay, but fewer or cheaper ones may do.
func (p *Plugin) reprieve(ctx context.Context, cs fwk.CycleState, q *question, nodes []int) *preemption.Plan {
	if len(nodes) == 0 {
		return nil
	}
	costOf, err := preemption.Costs(q.cluster, q.group, q.from, q.config)
	if err != nil {
		return nil // core has found no fault in the same input before
	}
	q.costOf = costOf
	var best *preemption.Plan
	for _, at := range nodes[:min(maxReprieved, len(nodes))] {
		plan := p.reprieveOn(ctx, cs, q, at)
		if plan != nil && (best == nil || plan.Cost.Compare(best.Cost) < 0) {
			best = plan
		}
	}
	return best
}

// nodesToReprieve returns the nodes to look at in full: those where a plan was in vain, then those that something else than GPUs and
// room of the host refused.
func (q *question) nodesToReprieve(failed []int, statuses fwk.NodeToStatusReader) []int {
	nodes := slices.Clone(failed)
	for i := range q.open {
		by := statuses.Get(q.infos[i].Node().Name).Plugin()
		if q.open[i] && by != shareName && by != fitName {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// Plugins that refuse because room is lacking.
const (
	shareName = "GPUShare"
	fitName   = "NodeResourcesFit"
)

func (p *Plugin) reprieveOn(ctx context.Context, cs fwk.CycleState, q *question, at int) *preemption.Plan {
	c := newNodeCopy(p.handle, q, cs, at)
	units, waits := q.unitsOn(q.infos[at].Node().Name)
	removed := slices.Clone(waits)
	for _, u := range units {
		removed = append(removed, u.Pods...)
	}
	for _, i := range removed {
		if c.remove(ctx, i) != nil {
			return nil
		}
	}
	if len(removed) == 0 || !c.fits(ctx).IsSuccess() {
		return nil
	}
	slices.SortFunc(units, func(a, b preemption.Unit) int {
		return cmp.Or(q.costOf([]preemption.Unit{b}).Compare(q.costOf([]preemption.Unit{a})), strings.Compare(a.Name, b.Name))
	})
	var evict []preemption.Unit
	for _, u := range units {
		spared, err := c.spare(ctx, u)
		if err != nil {
			return nil
		}
		if !spared {
			evict = append(evict, u)
		}
	}
	slices.SortFunc(evict, func(a, b preemption.Unit) int { return strings.Compare(a.Name, b.Name) })
	return q.planFor(at, evict, waits)
}

// spare puts a unit back and reports whether the preemptor fits all the same; else the unit is gone again.
func (c *nodeCopy) spare(ctx context.Context, u preemption.Unit) (bool, error) {
	for _, i := range u.Pods {
		if err := c.restore(ctx, i); err != nil {
			return false, err
		}
	}
	if c.fits(ctx).IsSuccess() {
		return true, nil
	}
	for _, i := range u.Pods {
		if err := c.remove(ctx, i); err != nil {
			return false, err
		}
	}
	return false, nil
}

// restore puts a removed candidate back.
func (c *nodeCopy) restore(ctx context.Context, i int) error {
	pod := c.q.pods[i]
	on, err := c.handle.SnapshotSharedLister().NodeInfos().Get(pod.Spec.NodeName)
	if err != nil {
		return nil //nolint:nilerr // that plugin had removed nothing
	}
	info := find(on, pod.UID)
	if info == nil {
		return nil
	}
	if pod.Spec.NodeName == c.node.Node().Name {
		on = c.node
	}
	return c.add(ctx, info, on)
}

// planFor returns the plan that evicts units for the preemptor on a node, nil where it has no devices there or budgets forbid it.
func (q *question) planFor(at int, evict []preemption.Unit, waits []int) *preemption.Plan {
	plan := &preemption.Plan{Evict: evict, Waits: waits, Cost: q.costOf(evict)}
	if q.config.KeepBudgets && plan.Cost.Violations > 0 {
		return nil
	}
	removed := map[vgpu.UID]bool{}
	for _, i := range leavingCandidates(plan) {
		removed[q.from.Pods[i].UID] = true
	}
	ledger := q.cluster.Nodes[at].Without(func(h *vgpu.Hold, held bool) bool { return !held && removed[h.UID] })
	place, refusal := placement.Assign(ledger, &q.group.Members[0].Request, q.config.Policy)
	if refusal != nil {
		return nil
	}
	plan.Places = []vgpu.Assignment{place}
	return plan
}

// unitsOn returns the evictable units of a node, and the pods that leave it already.
func (q *question) unitsOn(node string) (units []preemption.Unit, waits []int) {
	members := map[int][]int{} // by gang
	for i := range q.from.Pods {
		c := &q.from.Pods[i]
		switch {
		case c.Node != node:
		case c.Leaving:
			waits = append(waits, i)
		case !q.isEvictable(c):
		case c.Gang < 0:
			units = append(units, preemption.Unit{Kind: preemption.Single, Name: c.Name, Pods: []int{i}})
		default:
			members[c.Gang] = append(members[c.Gang], i)
		}
	}
	for number := range q.from.Gangs {
		if list := members[number]; len(list) > 0 {
			units = append(units, q.unitsOf(number, list)...)
		}
	}
	return units, waits
}

// isEvictable reports whether the plugin may evict a pod.
func (q *question) isEvictable(c *preemption.Pod) bool {
	return !c.Leaving && c.Guard == "" && c.Priority < q.priority
}

// unitsOf returns the units of a gang of which some evictable members are on a node. The units are single members as
// long as enough run on, else the whole gang, else as many members as it can do without.
func (q *question) unitsOf(number int, list []int) []preemption.Unit {
	var all []int
	whole := true
	for i := range q.from.Pods {
		if c := &q.from.Pods[i]; c.Gang == number && !c.Leaving {
			all = append(all, i)
			whole = whole && q.isEvictable(c)
		}
	}
	surplus := max(0, len(all)-q.from.Gangs[number].MinCount)
	if len(list) > surplus && whole {
		return []preemption.Unit{{Kind: preemption.Whole, Name: q.from.Gangs[number].Name, Pods: all}}
	}
	slices.SortFunc(list, func(a, b int) int {
		x, y := &q.from.Pods[a], &q.from.Pods[b]
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(x.Lost, y.Lost), strings.Compare(x.Name, y.Name))
	})
	list = list[:min(surplus, len(list))]
	units := make([]preemption.Unit, 0, len(list))
	for _, i := range list {
		units = append(units, preemption.Unit{Kind: preemption.Surplus, Name: q.from.Pods[i].Name, Pods: []int{i}})
	}
	return units
}
