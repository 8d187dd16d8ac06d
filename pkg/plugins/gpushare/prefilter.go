package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PreFilter parses the request once and brings the occupancy of all nodes up to date. It skips pods without vGPUs,
// unless scoresAll. PreFilter refuses a malformed request, one that is legal on no GPU of the cluster, and a rate or
// latency that no GPU of the cluster reaches. It also refuses a share that is smaller than the declared memory of the
// workload. The refusal names the field, its legal values and whether the user must replace the pod.
//
// In a cluster of more nodes than the shortlist has, PreFilter gives the framework the best ones only. The choice among
// them is the choice among all, since the plugin's scores are strict and outweigh the others.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.learn()
	if !kube.WantsVGPU(pod) {
		return p.rankHosts(ctx, cs, pod, nodes)
	}
	p.pending.begin(pod.UID)
	r, err := readRequest(pod)
	if err != nil {
		p.metrics.refused("Malformed")
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if why := p.unread(); why != "" {
		p.metrics.refused("Unread")
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, why)
	}
	if err := p.begin(ctx, pod, &r, nodes); err != nil {
		p.metrics.refused("Rate")
		cs.Write(illegalKey, illegal(err.Error()))
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if refusal := vgpu.LegalAnywhere(p.state.offered(), &r); refusal != nil {
		p.metrics.refused(string(refusal.Reason))
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, explainIllegal(pod, *refusal))
	}
	if err := tooLittle(pod, &r, p.state.ruling().know, p.state.offered()); err != nil {
		p.metrics.refused("Memory")
		cs.Write(illegalKey, illegal(err.Error()))
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	cs.Write(requestKey, &request{r})
	return &fwk.PreFilterResult{NodeNames: p.shortlist(cs, pod, &r, nodes)}, nil
}

// illegal is why no device can meet what a pod asks for beside slots and memory.
type illegal string

// Clone returns the text itself.
func (i illegal) Clone() fwk.StateData { return i }

// illegalOf returns why PreFilter found that no device can meet the request, "" where it did not.
func illegalOf(cs fwk.CycleState) string {
	data, err := cs.Read(illegalKey)
	if text, is := data.(illegal); err == nil && is {
		return string(text)
	}
	return ""
}

// rankHosts is PreFilter for a pod without vGPUs: it skips the pod unless scoresAll, and refuses none.
func (p *Plugin) rankHosts(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.scoresAll || p.unread() != "" {
		return nil, verdict.New(fwk.Skip)
	}
	r, err := readRequest(pod)
	if err != nil {
		return nil, verdict.New(fwk.Skip)
	}
	if err := p.begin(ctx, pod, &r, nodes); err != nil {
		return nil, verdict.New(fwk.Skip)
	}
	cs.Write(hostKey, &request{r})
	return &fwk.PreFilterResult{NodeNames: p.shortlist(cs, pod, &r, nodes)}, nil
}

// unread says what of the cluster the plugin has not read yet, "" for nothing.
func (p *Plugin) unread() string {
	if why := p.state.unread(); why != "" || p.profiled.Load() {
		return why
	}
	return "the WorkloadProfiles are not read yet"
}

// begin sets the basis of a pod's cycle: the occupancy of all nodes, the request with its workload, and the rule. The
// error is a *kube.FieldError.
func (p *Plugin) begin(ctx context.Context, pod *v1.Pod, r *vgpu.Request, nodes []fwk.NodeInfo) error {
	logger := klog.FromContext(ctx)
	l := p.state.refresh(logger, nodes)
	know := p.current(pod)
	r.Steps = p.Steps(pod, r)
	err := p.state.complete(pod, r, know, p.state.offered())
	p.adopt(logger, know, l, r)
	return err
}

// PreFilterExtensions returns nil: Filter counts the pods of its NodeInfo.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func explainIllegal(pod *v1.Pod, r vgpu.Refusal) string {
	if field, ok := kube.FieldOf(pod, r); ok {
		return field.Error()
	}
	return r.String()
}
