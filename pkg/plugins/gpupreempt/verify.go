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

// maxVerified bounds the nodes that the plugin tries one after the other when other plugins refuse the pod on the node
// of a plan, although the room is there. More find a node where they do not, and take as many searches.
const maxVerified = 8

// solve returns the cheapest plan that passes the framework's filters, or the refusal of the last search, with the
// tried nodes and the last reason.
func (p *Plugin) solve(ctx context.Context, cs fwk.CycleState, q *question) (plan preemption.Plan, failed []int, why string, err error) {
	for len(failed) < maxVerified {
		if plan, err = p.core(q.cluster, q.group, q.from, q.config); err != nil || plan.Refused != nil {
			return plan, failed, why, err
		}
		at := q.find(plan.Places[0].Node)
		if q.setAsideIfTaken(p.handle, at, &plan) {
			continue
		}
		status := p.verify(ctx, cs, q, at, leavingCandidates(&plan))
		if status.IsSuccess() {
			return plan, failed, "", nil
		}
		why = verdict.Text(status)
		failed = append(failed, at)
		q.open[at] = false
	}
	return preemption.Plan{Refused: &preemption.Refusal{Reason: preemption.NeverHelps, Cut: true}}, failed, why, nil
}

// verify returns what the framework's filters say of the pod on a node once some candidates are gone.
func (p *Plugin) verify(ctx context.Context, cs fwk.CycleState, q *question, at int, removed []int) *fwk.Status {
	c := newNodeCopy(p.handle, q, cs, at)
	for _, i := range removed {
		if err := c.remove(ctx, i); err != nil {
			return verdict.Failed(err)
		}
	}
	return c.fits(ctx)
}

// nodeCopy is a copy of one node, without some of its pods.
type nodeCopy struct {
	handle fwk.Handle
	q      *question
	state  fwk.CycleState
	node   fwk.NodeInfo
}

func newNodeCopy(handle fwk.Handle, q *question, cs fwk.CycleState, at int) *nodeCopy {
	return &nodeCopy{handle: handle, q: q, state: cs.Clone(), node: q.infos[at].Snapshot()}
}

// remove takes a candidate away. It updates the plugins' state on other nodes; the nodes themselves stay as they are,
// since filters run on this one only.
func (c *nodeCopy) remove(ctx context.Context, i int) error {
	info, on := c.podInfo(i)
	if info == nil {
		return nil // gone already
	}
	if on == c.node {
		if err := c.node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
			return fmt.Errorf("remove pod %s from node %s: %w", klog.KObj(info.GetPod()), c.node.Node().Name, err)
		}
	}
	return c.handle.RunPreFilterExtensionRemovePod(ctx, c.state, c.q.pod, info, on).AsError()
}

// add puts a removed candidate back.
func (c *nodeCopy) add(ctx context.Context, info fwk.PodInfo, on fwk.NodeInfo) error {
	if on == c.node {
		c.node.AddPodInfo(info)
	}
	return c.handle.RunPreFilterExtensionAddPod(ctx, c.state, c.q.pod, info, on).AsError()
}

// podInfo returns a candidate as its node has it, and the node; nil where the node has it no more.
func (c *nodeCopy) podInfo(i int) (fwk.PodInfo, fwk.NodeInfo) {
	pod := c.q.pods[i]
	on := c.node
	if name := pod.Spec.NodeName; name != c.node.Node().Name {
		var err error
		if on, err = c.handle.SnapshotSharedLister().NodeInfos().Get(name); err != nil {
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
func (c *nodeCopy) fits(ctx context.Context) *fwk.Status {
	return c.handle.RunFilterPluginsWithNominatedPods(ctx, c.state, c.q.pod, c.node)
}
