package gpugang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
)

// Filter refuses all nodes but the one that the plan has for the member, for a member without vGPUs those outside of
// the required domains. PreFilter's list of nodes is no substitute: the framework tries a nominated node without it.
//
// A member without vGPUs may go elsewhere than its plan says, but not to the node of an earlier nomination: the framework
// takes that one before any other, and the plan may have given its CPU to siblings.
func (p *Plugin) Filter(_ context.Context, cs fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	at := placeOf(cs)
	if at == nil {
		return nil
	}
	if at.Pinned {
		if info.Node().Name != at.Node {
			return verdict.New(fwk.UnschedulableAndUnresolvable, "the plan of the gang has another node for the pod")
		}
		return nil
	}
	if name := info.Node().Name; name == pod.Status.NominatedNodeName && name != at.Node {
		return verdict.New(fwk.UnschedulableAndUnresolvable, "the gang has another plan since the pod was nominated for the node")
	}
	for key, value := range at.Within {
		if info.Node().Labels[key] != value {
			return verdict.New(fwk.UnschedulableAndUnresolvable, "the gang is in another "+key)
		}
	}
	return nil
}
