package gpugang

import (
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// leaving returns the pods that are about to leave the nodes of a room: the victims, and all pods in deletion. The
// caller is a scheduling cycle.
func (p *Plugin) leaving(made *reservation.Made) map[vgpu.UID]bool {
	all := map[vgpu.UID]bool{}
	nodes, seen := p.handle.SnapshotSharedLister().NodeInfos(), map[string]bool{}
	for _, at := range made.Places {
		info, err := nodes.Get(at.Node)
		if err != nil || seen[at.Node] {
			continue
		}
		seen[at.Node] = true
		for _, onNode := range info.GetPods() {
			pod := onNode.GetPod()
			if _, victim := made.Victims[kube.UIDOf(pod)]; victim || pod.DeletionTimestamp != nil && !victims.Lingers(pod, p.now()) {
				all[kube.UIDOf(pod)] = true
			}
		}
	}
	return all
}

// standing reports on the room that preemption makes for a gang, and on the room that the scheduler keeps for it while
// pods end.
func (p *Plugin) standing(s *reservation.State, in *planInput, ref podgroup.Ref) (ready bool, void string, kept reservation.KeptRoom) {
	wanted := map[vgpu.UID]bool{}
	for i := range in.group.Members {
		wanted[in.group.Members[i].Request.UID] = true
	}
	if made := s.MadeRoom(ref); made != nil {
		ready, void = made.Stand(in.lacking(), wanted, s.Priority(ref), p.leaving(made), in.ledger)
	}
	room, holds := s.Reservation(ref)
	if room == nil {
		return ready, void, kept
	}
	kept.Stands = len(holds) > 0
	for i := range holds {
		h := &holds[i] // GPUShare drops the hold of a pod that is gone after its own event, which may be later
		_, held := p.shares().Held(h.UID)
		kept.Stands = kept.Stands && held && wanted[h.UID] && reservation.Healthy(in.ledger(h.Node), &h.Assignment)
	}
	kept.Taken, kept.Short = room.Stand(in.cluster, in.group.Members)
	return ready, void, kept
}
