package gpupreempt

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// candidates returns the pods of the nodes as possible victims of a preemptor with a priority, and the pods in the same
// order. The ledgers give the shares. The list leaves out pods that stay anyway. These are pods of the priority or a
// higher one and pods of nodes that are out of the question, unless they are members of gangs. It also leaves out pods
// that are overdue to leave. The gangs of yield give way to the preemptor, although their priority is not lower.
//
// A node is out of the question that has no ledger, or whose ledger is not open; a nil open is one for which all are.
func (p *Plugin) candidates(nodes []fwk.NodeInfo, ledgers []*vgpu.Node, open []bool, priority int32, yield ...podgroup.Ref) (*preemption.Candidates, []*v1.Pod, error) {
	budgets, err := p.budgets.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	c := p.collect(nodes, priority)
	c.yield = yield
	at := make(map[string]int, len(ledgers))
	for i, n := range ledgers {
		if n != nil {
			at[n.Name()] = i
		}
	}
	p.notes.mu.Lock()
	defer p.notes.mu.Unlock()
	for _, info := range nodes {
		i, known := at[info.Node().Name]
		var ledger *vgpu.Node
		if known {
			ledger = ledgers[i]
		}
		c.shares.Read(ledger)
		c.near = known && (open == nil || open[i])
		for k, list := 0, p.notes.on(p, info); k < len(list); k++ {
			c.add(&list[k])
		}
	}
	p.notes.keep(nodes, c.now)
	from, pods := c.finish(budgets)
	p.charge(from.Budgets, budgets)
	return from, pods, nil
}

// collection lists candidates.
type collection struct {
	priority int32
	now      time.Time
	// victims are the chosen victims that are not overdue. The value says whether the preemptor waits for the room of
	// the pod.
	victims map[vgpu.UID]bool
	gangs   gangNumbers
	// yield are the gangs that give way to the preemptor.
	yield []podgroup.Ref
	// shares are those of the node at hand, near whether its pods may make room.
	shares victims.Shares
	near   bool
	placed []victims.Placed
	pods   []*v1.Pod
}

// collect begins a collection from some nodes.
func (p *Plugin) collect(nodes []fwk.NodeInfo, priority int32) *collection {
	count := 0
	for _, info := range nodes {
		count += len(info.GetPods())
	}
	now := p.now()
	return &collection{
		priority: priority, now: now, victims: p.victimsAt(now), gangs: gangNumbers{least: p.least, number: map[podgroup.Ref]int{}},
		placed: make([]victims.Placed, 0, count), pods: make([]*v1.Pod, 0, count),
	}
}

// add lists a pod unless it stays anyway.
func (c *collection) add(n *note) {
	if !n.Placed() || !c.near && n.gang == nil {
		return
	}
	isAwaited, isVictim := false, false
	if len(c.victims) > 0 {
		isAwaited, isVictim = c.victims[n.UID()]
	}
	switch {
	case n.Leaving() && victims.Lingers(n.Pod, c.now), isVictim && !isAwaited:
		return
	case !n.Leaving() && !isAwaited && n.gang == nil && n.Priority() >= c.priority:
		return
	}
	c.placed = append(c.placed, victims.Placed{Traits: &n.Traits, Share: c.shares.Of(n.UID()), Gang: c.gangs.of(n.gang), Goes: isAwaited || c.endsSoon(n),
		Yields: n.gang != nil && slices.Contains(c.yield, *n.gang)})
	c.pods = append(c.pods, n.Pod)
}

// endsSoon reports whether a possible victim ends by itself as soon as an eviction would end it. The room of a pod of
// the same or a higher priority goes to whoever is first when it ends.
func (c *collection) endsSoon(n *note) bool { return n.Priority() < c.priority && n.EndsSoon(c.now) }

// finish returns the candidates.
func (c *collection) finish(budgets []*policyv1.PodDisruptionBudget) (*preemption.Candidates, []*v1.Pod) {
	from := victims.Candidates(c.placed, budgets, c.now)
	from.Gangs = c.gangs.list
	return from, c.pods
}

// victimsAt returns the chosen victims that are not overdue. The value says whether the preemptor waits for the room of
// the pod.
func (p *Plugin) victimsAt(now time.Time) map[vgpu.UID]bool {
	var chosen map[vgpu.UID]time.Time
	p.machine.Lock(func(l machine.Locked) { chosen = l.State.Victims(now) })
	all := make(map[vgpu.UID]bool, len(chosen))
	for uid, by := range chosen {
		all[uid] = by.Sub(now) <= kube.LeavingWithin+slack
	}
	return all
}

// gangNumbers numbers the gangs of pods.
type gangNumbers struct {
	least  func(podgroup.Ref) int
	number map[podgroup.Ref]int
	list   []preemption.Gang
}

// of returns the number of a gang, −1 for none.
func (r *gangNumbers) of(ref *podgroup.Ref) int {
	if ref == nil {
		return -1
	}
	number, known := r.number[*ref]
	if !known {
		number = len(r.list)
		r.number[*ref] = number
		r.list = append(r.list, preemption.Gang{Name: ref.String(), MinCount: r.least(*ref)})
	}
	return number
}

// seen returns a pod as the informer has it, nil where it has none of that UID.
func (p *Plugin) seen(pod *v1.Pod) *v1.Pod {
	now, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID {
		return nil
	}
	return now
}
