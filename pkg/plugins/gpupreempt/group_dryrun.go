package gpupreempt

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
)

// prefilters runs the PreFilter plugins of a profile. The framework's handle does, and does not say so.
type prefilters interface {
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
}

// tryMembers tries the members of a gang one after the other, each at its place and beside those before it. The
// scheduler does the same with the members of its own PodGroups. tryMembers works on a copy of the snapshot without the
// pods that leave.
func (p *Plugin) tryMembers(ctx context.Context, a *gangAttempt) (refusedAt int, why string) {
	err := p.withSnapshotCopy(ctx, a.leavingPods(), func(snapshot fwk.MutableSnapshotSharedLister) error {
		c := snapshotCopy{handle: p.handle, snapshot: snapshot, cycle: framework.NewCycleState()}
		defer c.unreserveAll(ctx)
		for i := range a.plan.Places {
			if a.plan.Places[i].Node == "" {
				continue
			}
			if status := c.tryPod(ctx, a.Pods[i], a.plan.Places[i].Node); !status.IsSuccess() {
				refusedAt, why = i, fmt.Sprintf("pod %s on node %s: %s", klog.KObj(a.Pods[i]), a.plan.Places[i].Node, verdict.Text(status))
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return -1, err.Error()
	}
	return refusedAt, why
}

// withSnapshotCopy runs a function on a copy of the snapshot without some pods.
func (p *Plugin) withSnapshotCopy(ctx context.Context, without []*v1.Pod, do func(fwk.MutableSnapshotSharedLister) error) (err error) {
	snapshot := p.handle.MutableSnapshotSharedLister()
	if err := snapshot.StartMutations(); err != nil {
		return fmt.Errorf("copy the snapshot: %w", err)
	}
	defer func() {
		if end := snapshot.EndMutations(); end != nil && err == nil {
			err = fmt.Errorf("drop the copy of the snapshot: %w", end)
		}
	}()
	for _, pod := range without {
		if err := snapshot.RemovePod(klog.FromContext(ctx), pod, pod.Spec.NodeName); err != nil {
			return fmt.Errorf("remove pod %s from the copy of the snapshot: %w", klog.KObj(pod), err)
		}
	}
	return do(snapshot)
}

// snapshotCopy is a copy of the snapshot for trying pods. To the plugins it is the cycle of a group: they reserve for
// this cycle only.
type snapshotCopy struct {
	handle   fwk.Handle
	snapshot fwk.MutableSnapshotSharedLister
	cycle    *framework.CycleState
	undo     []func()
}

// tryPod tries a pod on a node, and places it there.
func (c *snapshotCopy) tryPod(ctx context.Context, pod *v1.Pod, node string) *fwk.Status {
	state := framework.NewCycleState()
	state.SetPodGroupSchedulingCycle(c.cycle)
	state.SetPlacementCycleState(c.cycle)
	runner, ok := c.handle.(prefilters)
	if !ok {
		return verdict.New(fwk.Error, "the framework's handle runs no PreFilter plugins")
	}
	result, status, _ := runner.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		return status
	}
	if !result.AllNodes() && !result.NodeNames.Has(node) {
		return verdict.New(fwk.Unschedulable, "PreFilter plugins leave it other nodes")
	}
	info, err := c.snapshot.NodeInfos().Get(node)
	if err != nil {
		return verdict.Failed(err)
	}
	if status := c.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, info); !status.IsSuccess() {
		return status
	}
	return c.placePod(ctx, state, pod, node)
}

// placePod puts a pod on a node, and has the plugins reserve for it.
func (c *snapshotCopy) placePod(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	placed := pod.DeepCopy()
	placed.Spec.NodeName = node
	info, err := framework.NewPodInfo(placed)
	if err == nil {
		err = c.snapshot.AddPod(info, node)
	}
	if err != nil {
		return verdict.Failed(err)
	}
	c.undo = append(c.undo, func() { c.handle.RunReservePluginsUnreserve(ctx, state, placed, node) })
	return c.handle.RunReservePluginsReserve(ctx, state, placed, node)
}

// unreserveAll has the plugins take back what they reserved.
func (c *snapshotCopy) unreserveAll(context.Context) {
	for i := len(c.undo) - 1; i >= 0; i-- {
		c.undo[i]()
	}
}
