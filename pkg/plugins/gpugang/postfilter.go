package gpugang

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/internal/verdict"
)

// capFor is how long a gang has no more members on a node than were accepted when another plugin refused one more, from when it
// may be planned again. Longer keeps it from a node that has room again, shorter has the same plan refused again and again.
const capFor = 30 * time.Second

// cap has the gang put so many members on a node at most, for a while. The caller holds the mutex, and has the gang pause.
func (g *group) cap(node string, most int, now time.Time) {
	g.capped[node] = limit{most: most, until: now.Add(backoff(g.failures + 1)).Add(capFor)}
}

// shareName is the plugin that the plans are made by.
const shareName = "GPUShare"

// PostFilter ends the plan when another plugin refuses the planned node, and has the gang planned again without that node.
// It ends the chain of PostFilter plugins for every member of a gang: evictions for one member would be in vain.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil, verdict.New(fwk.Unschedulable)
	}
	defer p.flush(ctx)
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	at, g := placeOf(cs), p.state.group(ref)
	if at == nil {
		return g.expected(pod), verdict.New(fwk.UnschedulableAndUnresolvable)
	}
	why := "no node that the gang may use takes the pod"
	if status := statuses.Get(at.Node); at.pinned {
		why = "the plan of the gang has node " + at.Node + " for the pod, which refuses it: " + verdict.Text(status)
		if status.Plugin() != shareName { // what GPUShare refuses, the next plan knows
			g.cap(at.Node, g.reservedOn(at.Node), p.now())
		}
	}
	if g.letGo.IsZero() {
		p.cancel(g, why)
	} else {
		p.drop(g, uidOf(pod))
		g.failures++
		g.retry = p.now().Add(backoff(g.failures))
	}
	return nowhere(), verdict.New(fwk.UnschedulableAndUnresolvable, why)
}

// PodGroupPostFilter says why a gang has no plan, for the condition of its PodGroup, and ends a plan that other plugins
// refused. It makes no room, and succeeds where that is being made.
func (p *Plugin) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, info fwk.PodGroupInfo, _ fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	defer p.flush(ctx)
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	ref := podgroup.Ref{Source: podgroup.Native, Namespace: info.GetNamespace(), Name: info.GetName()}
	g := p.state.gangs[ref]
	switch {
	case g == nil:
		return nil, verdict.New(fwk.Unschedulable)
	case g.planned() && g.letGo.IsZero():
		for node, most := range trialOf(state).refused() {
			g.cap(node, most, p.now())
		}
		p.cancel(g, "other plugins refuse the planned nodes")
	case g.room != nil && g.refusal != nil:
		return g.expectations(info), verdict.New(fwk.Success, g.refusal.words())
	case g.refusal != nil:
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, g.refusal.words())
	}
	return nil, verdict.New(fwk.UnschedulableAndUnresolvable)
}

// reservedOn counts the members that are reserved on a node. The caller holds the mutex.
func (g *group) reservedOn(node string) int {
	count := 0
	for uid := range g.reserved {
		if g.places[uid].Node == node {
			count++
		}
	}
	return count
}
