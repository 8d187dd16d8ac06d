package gpugang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The framework nominates a member for its node while it waits in Permit, by a request of its own. The answer to that may come
// after the plan is cancelled, and the framework would count the member on a node where it has no place any more: the CPU that
// its siblings or other pods were to have there would look taken. A nomination of a member means nothing without its place.

// denominate ends the nominations for a node of members that have no place there. The caller holds no lock: the queue's is
// taken, under which PreEnqueue takes that of the state.
func (p *Plugin) denominate(node string) {
	for _, info := range p.handle.NominatedPodsForNode(node) {
		pod := p.seen(uidOf(info.GetPod()), pathOf(info.GetPod())) // the queue may know no more than its name
		if pod == nil {
			continue
		}
		if ref, member := p.gangs.Of(pod); member && !p.hasPlace(ref, pod, node) {
			p.handle.DeleteNominatedPodIfExists(pod)
		}
	}
}

// hasPlace reports whether a member has a place on a node, or room is made for it there. The caller does not hold the mutex.
func (p *Plugin) hasPlace(ref podgroup.Ref, pod *v1.Pod, node string) (has bool) {
	p.read(func(s *reservation.State) { has = s.Expected(ref, uidOf(pod), node) })
	return has
}

// denominateMembers ends what is left of earlier plans of a gang, for the pods that belong to none. The caller holds no lock.
func (p *Plugin) denominateMembers(pg *podgroup.Gang) {
	for _, m := range pg.Members {
		if node := m.Status.NominatedNodeName; node != "" && m.Spec.NodeName == "" && !p.hasPlace(pg.Ref, m, node) {
			p.handle.DeleteNominatedPodIfExists(m)
		}
	}
}

// nomination is a node that a member may be nominated for.
type nomination struct {
	uid       vgpu.UID
	pod, node string
}

// denominateMember ends the nomination of a member for a node where it has no place. The caller holds no lock.
func (p *Plugin) denominateMember(n nomination) {
	pod := p.seen(n.uid, n.pod)
	if pod == nil {
		return
	}
	if ref, member := p.gangs.Of(pod); member && !p.hasPlace(ref, pod, n.node) {
		p.handle.DeleteNominatedPodIfExists(pod)
	}
}

// expected is the result of PostFilter for a member without a place: the node where room is made for it, or nowhere.
func (p *Plugin) expected(ref podgroup.Ref, pod *v1.Pod) *fwk.PostFilterResult {
	result := nowhere()
	p.read(func(s *reservation.State) {
		if made := s.MadeRoom(ref); made != nil {
			result.NominatingInfo = nominates(made, pod)
		}
	})
	return result
}

// nominates says where room is made for a pod.
func nominates(made *reservation.Made, pod *v1.Pod) *fwk.NominatingInfo {
	return &fwk.NominatingInfo{NominatedNodeName: made.Places[uidOf(pod)].Node, NominatingMode: fwk.ModeOverride}
}

// expectations is the result of PodGroupPostFilter for a gang that room is made for.
func expectations(made *reservation.Made, info fwk.PodGroupInfo) *fwk.PodGroupPostFilterResult {
	infos := map[types.NamespacedName]*fwk.NominatingInfo{}
	for _, pod := range info.GetUnscheduledPods() {
		infos[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = nominates(made, pod)
	}
	return &fwk.PodGroupPostFilterResult{NominatingInfos: infos}
}

// nowhere is the result of PostFilter for a member without a place: what the API says of its node ends too.
func nowhere() *fwk.PostFilterResult {
	return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}}
}
