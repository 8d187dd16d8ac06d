package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PreFilter parses the request once and brings the occupancy of all nodes up to date. It skips pods that ask for no
// vGPU, unless nodes are to be scored for them. A malformed request, one that is legal on no GPU of the cluster, and a
// rate that no GPU of the cluster reaches is refused with the field, its legal values and whether the pod must be
// replaced.
//
// In a cluster of more nodes than the shortlist has, the framework is given the best ones only: the choice among them is
// the choice among all, since the plugin's scores are strict and outweigh the others.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !kube.WantsVGPU(pod) {
		return p.rankHosts(ctx, cs, pod, nodes)
	}
	r, err := readRequest(pod)
	if err != nil {
		p.metrics.refused("Malformed")
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if why := p.state.unread(); why != "" {
		p.metrics.refused("Unread")
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	if err := resolve(p.state.rates, pod, &r, p.state.offered()); err != nil {
		p.metrics.refused("Rate")
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if refusal := vgpu.LegalAnywhere(p.state.offered(), &r); refusal != nil {
		p.metrics.refused(string(refusal.Reason))
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, explainIllegal(pod, *refusal))
	}
	p.begin(ctx, nodes)
	cs.Write(requestKey, &request{r})
	return &fwk.PreFilterResult{NodeNames: p.shortlist(cs, pod, &r, nodes)}, nil
}

// rankHosts is PreFilter for a pod that asks for no vGPU: it skips the pod unless nodes are to be scored for it, and
// refuses none.
func (p *Plugin) rankHosts(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.scoresAll || p.state.unread() != "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	r, err := readRequest(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.begin(ctx, nodes)
	cs.Write(hostKey, &request{r})
	return &fwk.PreFilterResult{NodeNames: p.shortlist(cs, pod, &r, nodes)}, nil
}

// begin settles what the cycle goes by: the rule, and the occupancy of all nodes.
func (p *Plugin) begin(ctx context.Context, nodes []fwk.NodeInfo) {
	logger := klog.FromContext(ctx)
	p.adopt(logger)
	p.state.refresh(logger, nodes)
}

// PreFilterExtensions returns nil: Filter counts the pods of the NodeInfo that it is given.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func explainIllegal(pod *v1.Pod, r vgpu.Refusal) string {
	if field, ok := kube.FieldOf(pod, r); ok {
		return field.Error()
	}
	return r.String()
}
