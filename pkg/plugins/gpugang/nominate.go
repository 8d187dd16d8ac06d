package gpugang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// denominate ends the nominations for a node of members that have no place there. The caller holds no lock: denominate
// takes the queue's, under which PreEnqueue takes that of the machine.
func (p *Plugin) denominate(node string) {
	for _, info := range p.handle.NominatedPodsForNode(node) {
		// The queue may know no more of the pod than its name.
		if pod := p.machine.Seen(kube.UIDOf(info.GetPod()), kube.PathOf(info.GetPod())); pod != nil {
			p.machine.Denominate(pod, node)
		}
	}
}

// denominateMembers ends the nominations that earlier plans of a gang left to members without a place. The caller holds no lock.
func (p *Plugin) denominateMembers(pg *podgroup.Gang) {
	for _, m := range pg.Members {
		if node := m.Status.NominatedNodeName; node != "" && m.Spec.NodeName == "" {
			p.machine.Denominate(m, node)
		}
	}
}

// expected is the result of PostFilter for a member without a place: the node with room for it, or none.
func (p *Plugin) expected(ref podgroup.Ref, pod *v1.Pod) *fwk.PostFilterResult {
	result := noNomination()
	p.machine.Lock(func(l machine.Locked) {
		if made := l.State.MadeRoom(ref); made != nil {
			result.NominatingInfo = nominates(made, pod)
		}
	})
	return result
}

// nominates names the node with room for a pod.
func nominates(made *reservation.Made, pod *v1.Pod) *fwk.NominatingInfo {
	return &fwk.NominatingInfo{NominatedNodeName: made.Places[kube.UIDOf(pod)].Node, NominatingMode: fwk.ModeOverride}
}

// expectations is the result of PodGroupPostFilter for a gang with room.
func expectations(made *reservation.Made, info fwk.PodGroupInfo) *fwk.PodGroupPostFilterResult {
	infos := map[types.NamespacedName]*fwk.NominatingInfo{}
	for _, pod := range info.GetUnscheduledPods() {
		infos[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = nominates(made, pod)
	}
	return &fwk.PodGroupPostFilterResult{NominatingInfos: infos}
}

// noNomination is the result of PostFilter for a member without a place: the nomination in the API ends too.
func noNomination() *fwk.PostFilterResult {
	return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}}
}
