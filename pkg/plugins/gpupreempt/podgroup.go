package gpupreempt

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PodGroupPostFilter makes room for a refused PodGroup of Kubernetes, as PostFilter does for other gangs. The
// scheduler's own algorithm for groups says whether its members fit once the victims are gone.
func (p *Plugin) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, info fwk.PodGroupInfo, schedule fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	if p.args.Mode == config.PreemptionDisabled || p.machine.Gangs() == nil || info.GetCompositePodGroup() != nil {
		return nil, verdict.New(fwk.Unschedulable)
	}
	ref := podgroup.Ref{Source: podgroup.Native, Namespace: info.GetNamespace(), Name: info.GetName()}
	w, why := p.requested(state, ref)
	if w == nil && why == "" {
		return nil, verdict.New(fwk.Unschedulable)
	}
	if w == nil {
		return nil, verdict.New(fwk.Unschedulable, shorten("preemption: "+why))
	}
	a := p.makeRoom(ctx, w, func(ctx context.Context, a *gangAttempt) (int, string) { return p.tryPodGroup(ctx, a, schedule) })
	p.groupEvent(w, &a.outcome)
	if a.code() != fwk.Success {
		return nil, verdict.New(fwk.Unschedulable, shorten("preemption: "+a.text))
	}
	return nominations(w, a.places), verdict.New(fwk.Success, shorten("preemption: "+a.text))
}

// nominations has the framework note the nodes that members wait for.
func nominations(w *podgroup.RoomRequest, places map[vgpu.UID]string) *fwk.PodGroupPostFilterResult {
	infos := map[types.NamespacedName]*fwk.NominatingInfo{}
	for _, pod := range w.Pods {
		infos[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = nominate(places[kube.UIDOf(pod)]).NominatingInfo
	}
	return &fwk.PodGroupPostFilterResult{NominatingInfos: infos}
}

// tryPodGroup has the scheduler try the members of a PodGroup on a copy of the snapshot without the pods that leave.
func (p *Plugin) tryPodGroup(ctx context.Context, a *gangAttempt, schedule fwk.PodGroupSchedulingFunc) (refusedAt int, why string) {
	refusedAt = -1
	err := p.withSnapshotCopy(ctx, a.leavingPods(), func(fwk.MutableSnapshotSharedLister) error {
		tried, status := schedule(ctx)
		if status.IsSuccess() {
			return nil
		}
		why = "the members do not fit together: " + verdict.Text(status)
		through := map[vgpu.UID]bool{}
		if tried != nil {
			for _, at := range tried.ProposedAssignments {
				through[kube.UIDOf(at.GetPod())] = at.GetNodeName() != ""
			}
		}
		for i := range a.plan.Places {
			if a.plan.Places[i].Node != "" && !through[kube.UIDOf(a.Pods[i])] {
				refusedAt = i
				break
			}
		}
		return nil
	})
	if err != nil {
		return -1, err.Error()
	}
	return refusedAt, why
}
