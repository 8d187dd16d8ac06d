package gpugang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// shareName is the plugin that the plans are made by.
const shareName = "GPUShare"

// PostFilter ends the plan when another plugin refuses the planned node, and makes the plugin plan the gang again
// without that node. It ends the chain of PostFilter plugins for every member of a gang: evictions for one member would
// be in vain.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil, verdict.New(fwk.Unschedulable)
	}
	defer p.machine.Flush(ctx)
	at := placeOf(cs)
	if at == nil {
		p.refusedBefore(ref, pod, statuses)
		return p.expected(ref, pod), verdict.New(fwk.UnschedulableAndUnresolvable)
	}
	e := reservation.NodeRefused{UID: kube.UIDOf(pod), Node: at.Node, Why: "no node that the gang may use takes the pod"}
	if at.Pinned {
		status := statuses.Get(at.Node)
		e.Why = "the gang's plan places this pod on node " + at.Node + ", which refuses it: " + verdict.Text(status)
		e.Limited = status.Plugin() != shareName // what GPUShare refuses, the next plan knows
	}
	p.machine.Step(func(l machine.Locked) reservation.Event {
		e.Gang = l.Facts(ref)
		return e
	})
	return noNomination(), verdict.New(fwk.UnschedulableAndUnresolvable, e.Why)
}

// refusedBefore ends the plan where a member that has a place was refused before it got to it, such as by a plugin's PreFilter for a
// claim that is missing. Its siblings would wait for it until the deadline, at places that nobody else gets; in a gang that runs it
// loses its own place alone.
func (p *Plugin) refusedBefore(ref podgroup.Ref, pod *v1.Pod, statuses fwk.NodeToStatusReader) {
	status := statuses.Get("")
	if status.Plugin() == Name {
		return
	}
	p.machine.Lock(func(l machine.Locked) {
		if _, has := l.State.Place(ref, kube.UIDOf(pod)); has {
			why := "member " + pod.Name + " cannot be scheduled: " + verdict.Text(status)
			l.Step(reservation.NodeRefused{Gang: l.Facts(ref), UID: kube.UIDOf(pod), Why: why})
		}
	})
}

// PodGroupPostFilter says why a gang has no plan, for the condition of its PodGroup, and ends a plan that other plugins
// refused. It makes no room, and succeeds where preemption is making it.
func (p *Plugin) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, info fwk.PodGroupInfo, _ fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	defer p.machine.Flush(ctx)
	ref := podgroup.Ref{Source: podgroup.Native, Namespace: info.GetNamespace(), Name: info.GetName()}
	var result *fwk.PodGroupPostFilterResult
	status := verdict.New(fwk.UnschedulableAndUnresolvable)
	p.machine.Lock(func(l machine.Locked) {
		refusal, refused := l.State.Refusal(ref)
		switch phase, need := l.State.Phase(ref); {
		case phase == reservation.Planned:
			l.Step(reservation.GroupRefused{Gang: l.Facts(ref), Nodes: groupCycleOf(state).refused()})
		case need == reservation.Preempting:
			result, status = expectations(l.State.MadeRoom(ref), info), verdict.New(fwk.Success, words(&refusal))
		case refused:
			status = verdict.New(fwk.UnschedulableAndUnresolvable, words(&refusal))
		}
	})
	return result, status
}
