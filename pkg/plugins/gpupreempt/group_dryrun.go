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

// onStage tries the members of a gang one after the other, each at its place and beside those before it, as the scheduler does
// with the members of its own PodGroups: in a copy of the snapshot without those who leave.
func (p *Plugin) onStage(ctx context.Context, a *act) (stuck int, why string) {
	err := p.onCopy(ctx, a.gone(), func(snapshot fwk.MutableSnapshotSharedLister) error {
		s := stage{handle: p.handle, snapshot: snapshot, cycle: framework.NewCycleState()}
		defer s.clear(ctx)
		for i := range a.plan.Places {
			if a.plan.Places[i].Node == "" {
				continue
			}
			if status := s.enter(ctx, a.Pods[i], a.plan.Places[i].Node); !status.IsSuccess() {
				stuck, why = i, fmt.Sprintf("pod %s on node %s: %s", klog.KObj(a.Pods[i]), a.plan.Places[i].Node, verdict.Text(status))
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return -1, err.Error()
	}
	return stuck, why
}

// onCopy does something on a copy of the snapshot without some pods.
func (p *Plugin) onCopy(ctx context.Context, without []*v1.Pod, do func(fwk.MutableSnapshotSharedLister) error) (err error) {
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

// stage is a copy of the snapshot on which pods are tried. To the plugins it is the cycle of a group: what they reserve is not
// for good.
type stage struct {
	handle   fwk.Handle
	snapshot fwk.MutableSnapshotSharedLister
	cycle    *framework.CycleState
	undo     []func()
}

// enter tries a pod on a node, and lets it stay there.
func (s *stage) enter(ctx context.Context, pod *v1.Pod, node string) *fwk.Status {
	state := framework.NewCycleState()
	state.SetPodGroupSchedulingCycle(s.cycle)
	state.SetPlacementCycleState(s.cycle)
	runner, ok := s.handle.(prefilters)
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
	info, err := s.snapshot.NodeInfos().Get(node)
	if err != nil {
		return verdict.Failed(err)
	}
	if status := s.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, info); !status.IsSuccess() {
		return status
	}
	return s.stay(ctx, state, pod, node)
}

// stay puts a pod on a node, with what plugins reserve for it.
func (s *stage) stay(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	there := pod.DeepCopy()
	there.Spec.NodeName = node
	info, err := framework.NewPodInfo(there)
	if err == nil {
		err = s.snapshot.AddPod(info, node)
	}
	if err != nil {
		return verdict.Failed(err)
	}
	s.undo = append(s.undo, func() { s.handle.RunReservePluginsUnreserve(ctx, state, there, node) })
	return s.handle.RunReservePluginsReserve(ctx, state, there, node)
}

// clear takes back what plugins reserved.
func (s *stage) clear(context.Context) {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
}
