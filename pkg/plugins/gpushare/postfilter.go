package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/verdict"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PostFilter makes no room. After a shortlist that others refused it ends the chain of PostFilter plugins and has the pod
// tried again with all nodes; so the profile lists it before DefaultPreemption. Else it adds the nearest miss to the
// pod's event, with node and device, once per attempt and only where this plugin refused the node.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if p.missed(cs, pod) {
		p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{klog.KObj(pod).String(): pod})
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, "the best nodes by GPU are refused for other reasons; all nodes are tried next")
	}
	nothing := verdict.New(fwk.Unschedulable)
	r := requestOf(cs)
	if r == nil {
		p.pending.note(pod, nil)
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
			if refusal := p.state.ruling().Fit(o.ledger, r); refusal != nil {
				refusals = append(refusals, *refusal)
			}
		}
	}
	p.pending.note(pod, refusals)
	if p.news.any() {
		p.pending.activateFor(profilePath(pod)) // the attempt went by a rule that is out of date
	}
	nearest, ok := placement.Nearest(refusals)
	if !ok {
		return nil, nothing
	}
	p.metrics.refused(string(nearest.Reason))
	return nil, verdict.New(fwk.Unschedulable, "nearest GPU: "+nearest.String())
}
