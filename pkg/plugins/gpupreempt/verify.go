package gpupreempt

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// maxVerified bounds the nodes that are tried one after the other when other plugins refuse the pod on the node of a plan,
// although the room is made. More find a node where they do not, and take as many searches.
const maxVerified = 8

// solve returns the cheapest plan that the framework's filters agree with, or the refusal of the last search, with the nodes
// that were tried in vain and the last reason.
func (p *Plugin) solve(ctx context.Context, cs fwk.CycleState, q *question) (plan preemption.Plan, vain []int, why string, err error) {
	for len(vain) < maxVerified {
		if plan, err = p.core(q.cluster, q.group, q.from, q.config); err != nil || plan.Refused != nil {
			return plan, vain, why, err
		}
		at := q.find(plan.Places[0].Node)
		if q.crowded(p.handle, at, &plan) {
			continue
		}
		status := p.verify(ctx, cs, q, at, leaving(&plan))
		if status.IsSuccess() {
			return plan, vain, "", nil
		}
		why = verdict.Text(status)
		vain = append(vain, at)
		q.open[at] = false
	}
	return preemption.Plan{Refused: &preemption.Refusal{Reason: preemption.NeverHelps, Cut: true}}, vain, why, nil
}

// verify returns what the framework's filters say of the pod on a node once some candidates are gone.
func (p *Plugin) verify(ctx context.Context, cs fwk.CycleState, q *question, at int, gone []int) *fwk.Status {
	t := newTrial(p.handle, q, cs, at)
	for _, i := range gone {
		if err := t.remove(ctx, i); err != nil {
			return verdict.Failed(err)
		}
	}
	return t.fits(ctx)
}

// trial is one node as it were without some pods.
type trial struct {
	handle fwk.Handle
	q      *question
	state  fwk.CycleState
	node   fwk.NodeInfo
}

func newTrial(handle fwk.Handle, q *question, cs fwk.CycleState, at int) *trial {
	return &trial{handle: handle, q: q, state: cs.Clone(), node: q.infos[at].Snapshot()}
}

// remove takes a candidate away. What plugins know of other nodes is brought up to date; the nodes themselves are not changed,
// since filters run on this one only.
func (t *trial) remove(ctx context.Context, i int) error {
	info, on := t.podInfo(i)
	if info == nil {
		return nil // gone already
	}
	if on == t.node {
		if err := t.node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
			return fmt.Errorf("remove pod %s from node %s: %w", klog.KObj(info.GetPod()), t.node.Node().Name, err)
		}
	}
	return t.handle.RunPreFilterExtensionRemovePod(ctx, t.state, t.q.pod, info, on).AsError()
}

// add puts a candidate back that was taken away.
func (t *trial) add(ctx context.Context, info fwk.PodInfo, on fwk.NodeInfo) error {
	if on == t.node {
		t.node.AddPodInfo(info)
	}
	return t.handle.RunPreFilterExtensionAddPod(ctx, t.state, t.q.pod, info, on).AsError()
}

// podInfo returns a candidate as its node has it, and the node; nil where the node has it no more.
func (t *trial) podInfo(i int) (fwk.PodInfo, fwk.NodeInfo) {
	pod := t.q.pods[i]
	on := t.node
	if name := pod.Spec.NodeName; name != t.node.Node().Name {
		var err error
		if on, err = t.handle.SnapshotSharedLister().NodeInfos().Get(name); err != nil {
			return nil, nil
		}
	}
	return find(on, pod.UID), on
}

func find(node fwk.NodeInfo, uid types.UID) fwk.PodInfo {
	for _, info := range node.GetPods() {
		if info.GetPod().UID == uid {
			return info
		}
	}
	return nil
}

// fits returns what the framework's filters say of the preemptor.
func (t *trial) fits(ctx context.Context) *fwk.Status {
	return t.handle.RunFilterPluginsWithNominatedPods(ctx, t.state, t.q.pod, t.node)
}
