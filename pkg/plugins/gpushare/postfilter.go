package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PostFilter makes no room. It adds the nearest miss to the pod's event, with node and device, once per attempt and
// only where this plugin refused the node.
func (p *Plugin) PostFilter(_ context.Context, cs fwk.CycleState, _ *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	nothing := fwk.NewStatus(fwk.Unschedulable)
	r := requestOf(cs)
	if r == nil {
		return nil, nothing
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, nothing
	}
	var refusals []vgpu.Refusal
	for _, node := range nodes {
		if statuses.Get(node.Node().Name).Plugin() != Name {
			continue
		}
		if o := p.state.occupancyOf(node); o.problem == "" {
			if refusal := placement.Fit(o.ledger, r); refusal != nil {
				refusals = append(refusals, *refusal)
			}
		}
	}
	nearest, ok := placement.Nearest(refusals)
	if !ok {
		return nil, nothing
	}
	p.metrics.refused(string(nearest.Reason))
	return nil, fwk.NewStatus(fwk.Unschedulable, "nearest GPU: "+nearest.String())
}
