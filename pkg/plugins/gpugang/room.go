package gpugang

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Keep has room kept for a gang for which others are evicted: the places of its members, in the order of Group.Members, "" for
// none. Reservation.RoomMade says how long. Ended is called when it ends, with the lock of the machine held. The error says why
// nothing is kept; it is podgroup.ErrChanged where members ended or were bound since the cycle looked at them.
//
// It is called by the scheduling cycle that refused the gang.
func (p *Plugin) Keep(w *podgroup.Want, places []vgpu.Assignment, victims []*v1.Pod, ended func()) error {
	made := reservation.Made{
		Places: map[vgpu.UID]reservation.Place{}, Victims: map[vgpu.UID]reservation.Victim{},
		Lacking: lackingOf(w.Group), Unbound: w.Unbound,
	}
	for i, a := range places {
		if a.Node != "" {
			made.Places[a.UID] = reservation.Place{Assignment: a, Host: w.Group.Members[i].Request.Host, Pinned: true}
		}
	}
	longest := time.Duration(0)
	for _, pod := range victims {
		made.Victims[uidOf(pod)] = reservation.Victim{Pod: pathOf(pod), Node: pod.Spec.NodeName}
		longest = max(longest, graceOf(pod))
	}
	made.Until = p.now().Add(longest).Add(p.args.PlacementDeadline.Duration)
	return p.keep(w, made, ended)
}

func (p *Plugin) keep(w *podgroup.Want, made reservation.Made, ended func()) error {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	pg, err := p.gangs.Gang(w.Ref)
	if pg == nil {
		return fmt.Errorf("keep room for gang %s: it is gone", w.Ref)
	}
	before := p.machine.ended[w.Ref]
	p.machine.ended[w.Ref] = ended
	a := p.settled(w.Ref, "", reservation.RoomMade{Gang: p.fresh(w.Ref, pg, err), Room: made})
	switch {
	case a.refuse != nil && before != nil:
		p.machine.ended[w.Ref] = before
	case a.refuse != nil:
		delete(p.machine.ended, w.Ref)
	}
	switch {
	case len(a.unheld) > 0:
		return fmt.Errorf("keep room for gang %s: %w", w.Ref, a.unheld[0].err)
	case a.refuse != nil && a.refuse.Why == reservation.MembersChanged:
		return fmt.Errorf("keep room for gang %s: %w", w.Ref, podgroup.ErrChanged)
	case a.refuse != nil:
		return fmt.Errorf("keep room for gang %s: %w", w.Ref, errors.New(a.refuse.Why))
	}
	return nil
}

// graceOf returns how long a pod may take to end.
func graceOf(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

// Try has the members given the places that are kept for them while fits runs, whatever else is known of the gang: fits lets the
// scheduler's plugins look at them, without the victims. Nothing is planned. It reports what fits does.
//
// It is called by the scheduling cycle that refused the gang.
func (p *Plugin) Try(ref podgroup.Ref, fits func() bool) bool {
	kept := false
	try := func(on bool) {
		p.with(func(s *reservation.State) reservation.Event {
			kept = s.MadeRoom(ref) != nil
			return reservation.RoomTried{Ref: ref, On: on}
		})
	}
	try(true)
	if !kept {
		return false
	}
	defer try(false)
	return fits()
}

// Nominate tells the framework where the members will be for which room is kept, so that no pod of a lower priority takes the CPU and
// memory that the victims leave there.
//
// It is called by the scheduling cycle that refused the gang.
func (p *Plugin) Nominate(ctx context.Context, w *podgroup.Want) {
	nodes := map[vgpu.UID]string{}
	p.read(func(s *reservation.State) {
		if made := s.MadeRoom(w.Ref); made != nil {
			for uid, at := range made.Places {
				nodes[uid] = at.Node
			}
		}
	})
	for _, pod := range w.Pods {
		info, err := framework.NewPodInfo(pod)
		if node := nodes[uidOf(pod)]; node != "" && err == nil {
			p.handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride})
		}
	}
}

// GiveUp ends the room that is kept for a gang, if any: no pod is evicted for it now. Room is sought again after a pause, when the
// gang is tried; with a pause of 0 after 5 seconds, doubled each time until the gang gets a plan, up to 80, and only where something
// changed.
func (p *Plugin) GiveUp(ref podgroup.Ref, why string, pause time.Duration) {
	p.with(func(*reservation.State) reservation.Event {
		return reservation.RoomGivenUp{Ref: ref, Why: why, Pause: pause}
	})
	p.flush(context.Background())
}

// Drains reports whether room is kept for a gang while its present owners end.
func (p *Plugin) Drains(ref podgroup.Ref) (drains bool) {
	p.read(func(s *reservation.State) {
		_, need := s.Phase(ref)
		drains = need == reservation.Reserving
	})
	return drains
}

// leaving returns the pods that are about to leave the nodes of a room: the victims, and all that are being deleted. The caller is
// a scheduling cycle.
func (p *Plugin) leaving(made *reservation.Made) map[vgpu.UID]bool {
	all := map[vgpu.UID]bool{}
	nodes, seen := p.handle.SnapshotSharedLister().NodeInfos(), map[string]bool{}
	for _, at := range made.Places {
		info, err := nodes.Get(at.Node)
		if err != nil || seen[at.Node] {
			continue
		}
		seen[at.Node] = true
		for _, there := range info.GetPods() {
			pod := there.GetPod()
			if _, victim := made.Victims[uidOf(pod)]; victim || pod.DeletionTimestamp != nil && !kube.Lingers(pod, p.now()) {
				all[uidOf(pod)] = true
			}
		}
	}
	return all
}

// standing says how the room that is made for a gang stands, and how the room that is kept for it while pods end does.
func (p *Plugin) standing(s *reservation.State, t *task, ref podgroup.Ref) (ready bool, void string, kept reservation.KeptRoom) {
	wanted := map[vgpu.UID]bool{}
	for i := range t.group.Members {
		wanted[t.group.Members[i].Request.UID] = true
	}
	if made := s.MadeRoom(ref); made != nil {
		ready, void = made.Stand(t.lacking(), wanted, s.Priority(ref), p.leaving(made), t.ledger)
	}
	room, holds := s.Reservation(ref)
	if room == nil {
		return ready, void, kept
	}
	kept.Stands = len(holds) > 0
	for i := range holds {
		h := &holds[i] // GPUShare drops the hold of a pod that is gone when it hears of it, which may be later
		_, held := p.shares().Held(h.UID)
		kept.Stands = kept.Stands && held && wanted[h.UID] && reservation.Healthy(t.ledger(h.Node), &h.Assignment)
	}
	kept.Taken, kept.Short = room.Stand(t.cluster, t.group.Members)
	return ready, void, kept
}
