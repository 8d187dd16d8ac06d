package gpugang

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// room is what preemption makes for a gang. It is kept for the members while the victims leave, and the gang neither drains nor
// is preempted for again meanwhile.
type room struct {
	// places of the members.
	places map[vgpu.UID]place
	// victims are the pods that leave, with their nodes.
	victims map[vgpu.UID]victim
	// lacking are the members that had to find a place: those of the task, and those that were not bound, which may differ while
	// it is not known whether a bind happened.
	lacking, unbound int
	// until is when the victims must be gone.
	until time.Time
	// ended is called when the room ends.
	ended func()
	// trial: whoever asks for a place is given that of the room, to see whether it fits.
	trial bool
}

// victim is a pod that leaves for a gang.
type victim struct{ pod, node string }

// Keep has room kept for a gang for which others are evicted: the places of its members, in the order of Group.Members, "" for
// none. The room is kept until the gang has a plan, and ends before that when the gang is gone, cannot be placed or has other
// members, when a device or node of it is lost, when the room is not free although all victims are gone, and when the victims
// have had their grace period and the placement deadline has passed beside. Ended is called when it ends, with the plugin's
// lock held. The error says why nothing is kept; it is podgroup.ErrChanged where members ended or were bound since the cycle looked
// at them: the room would be for too few, or for too many.
//
// It is called by the scheduling cycle that refused the gang.
func (p *Plugin) Keep(w *podgroup.Want, places []vgpu.Assignment, victims []*v1.Pod, ended func()) error {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[w.Ref]
	if g == nil || g.planned() || g.room != nil {
		return fmt.Errorf("keep room for gang %s: it changed meanwhile", w.Ref)
	}
	p.endDrain(g)
	pg, _ := p.gangs.Gang(w.Ref)
	if pg == nil {
		return fmt.Errorf("keep room for gang %s: it is gone", w.Ref)
	}
	if p.lacking(g, pg) != w.Unbound {
		return fmt.Errorf("keep room for gang %s: %w", w.Ref, podgroup.ErrChanged)
	}
	r := &room{places: map[vgpu.UID]place{}, victims: map[vgpu.UID]victim{}, lacking: lackingOf(w.Group), unbound: w.Unbound, ended: ended}
	g.room = r
	for i, a := range places {
		if a.Node == "" {
			continue
		}
		at := place{Assignment: a, host: w.Group.Members[i].Request.Host, pinned: true}
		r.places[at.UID] = at
		if !at.held() {
			continue
		}
		if err := p.shares().Hold(vgpu.Hold{Assignment: a, Priority: g.priority}); err != nil {
			p.endRoom(g)
			return fmt.Errorf("keep room for gang %s: %w", w.Ref, err)
		}
	}
	longest := time.Duration(0)
	for _, pod := range victims {
		r.victims[uidOf(pod)] = victim{pathOf(pod), pod.Spec.NodeName}
		longest = max(longest, graceOf(pod))
	}
	r.until = p.now().Add(longest).Add(p.args.PlacementDeadline.Duration)
	return nil
}

// roomMade says that room is made for a gang, "" where it is not. The caller holds the mutex.
func (g *group) roomMade() string {
	if g.room == nil {
		return ""
	}
	return "; room is made for it: " + plural(len(g.room.victims), "pod") + " of a lower priority leave"
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
	if !p.setTrial(ref, true) {
		return false
	}
	defer p.setTrial(ref, false)
	return fits()
}

func (p *Plugin) setTrial(ref podgroup.Ref, on bool) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	if g == nil || g.room == nil {
		return false
	}
	g.room.trial = on
	return true
}

// onTrial returns the place of a pod in a room that is being tried, or why it has none, and whether there is such a room. The
// caller holds the mutex.
func (g *group) onTrial(pod *v1.Pod) (at *place, why string, trial bool) {
	if g.room == nil || !g.room.trial {
		return nil, "", false
	}
	kept, ok := g.room.places[uidOf(pod)]
	if !ok {
		return nil, "no room is made for the pod: its gang may run without it", true
	}
	return &kept, "", true
}

// Nominate tells the framework where the members will be for which room is kept, so that nobody of a lower priority takes the
// CPU and memory that the victims leave there.
//
// It is called by the scheduling cycle that refused the gang.
func (p *Plugin) Nominate(ctx context.Context, w *podgroup.Want) {
	p.state.mu.Lock()
	nodes := map[vgpu.UID]string{}
	if g := p.state.gangs[w.Ref]; g != nil && g.room != nil {
		for uid, at := range g.room.places {
			nodes[uid] = at.Node
		}
	}
	p.state.mu.Unlock()
	for _, pod := range w.Pods {
		info, err := framework.NewPodInfo(pod)
		if node := nodes[uidOf(pod)]; node != "" && err == nil {
			p.handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride})
		}
	}
}

// moment is the least pause between two preemptions that are sought for a gang in vain, doubled up to mostMoments times. Longer
// makes room later where a change lets it be made, shorter takes the time of the scheduler for gangs that nobody can make room
// for: a hundred may wait.
const (
	moment      = 5 * time.Second
	mostMoments = 4
)

// GiveUp ends the room that is kept for a gang, if any: nobody is evicted for it now. Room is sought again after a pause, when
// the gang is tried; with a pause of 0 a moment later at the earliest, and only where something changed. A moment is 5 seconds,
// and twice as long each time until the gang gets a plan, up to 80.
func (p *Plugin) GiveUp(ref podgroup.Ref, why string, pause time.Duration) {
	defer p.flush(context.Background())
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	if g == nil {
		return
	}
	p.endRoom(g)
	g.unhelped = why
	g.askAgain = pause > 0
	if !g.askAgain {
		pause = moment << min(g.asked, mostMoments)
		g.asked++
	}
	g.ask = p.now().Add(pause)
}

// endRoom gives up the room that preemption makes for a gang. The caller holds the mutex.
func (p *Plugin) endRoom(g *group) {
	if g == nil || g.room == nil {
		return
	}
	r := g.room
	g.room = nil
	r.ended()
	released := false
	for uid, at := range r.places {
		if _, planned := g.places[uid]; !planned && at.held() {
			released = p.shares().Release(uid) || released
		}
		p.stale(uid, at)
	}
	if released {
		p.stirAll()
	}
}

// voidRoom gives up the room of a gang that came to nothing. The next preemption waits, each time twice as long. The caller
// holds the mutex.
func (p *Plugin) voidRoom(g *group, why string) {
	p.endRoom(g)
	g.unhelped = "the room that was made for it came to nothing: " + why
	g.ask, g.askAgain = p.now().Add(p.again(g.voids)), true
	g.voids++
}

// roomState says what is to be done with the room of a gang: it is free and the members may have it, or it is void for a reason,
// or else it is still waited for. The caller holds the mutex.
func (p *Plugin) roomState(g *group, t *task) (ready bool, void string) {
	r := g.room
	if r.lacking != t.lacking() {
		return false, "its members changed"
	}
	wanted := map[vgpu.UID]bool{}
	for i := range t.group.Members {
		wanted[t.group.Members[i].Request.UID] = true
	}
	for uid, at := range r.places {
		switch n := t.ledger(at.Node); {
		case !wanted[uid]:
			return false, "its members changed"
		case n == nil:
			return false, "node " + at.Node + " is gone"
		case !healthy(n, &at.Assignment):
			return false, "a device on node " + at.Node + " is gone or sick"
		}
	}
	leaving := p.leaving(r)
	switch {
	case r.free(t, g.priority, nil):
		return true, ""
	case len(leaving) > 0 && r.free(t, g.priority, leaving):
		return false, ""
	}
	return false, "others have the room"
}

// leaving returns the pods that are about to leave the nodes of a room: the victims, and all that are being deleted. The caller is
// a scheduling cycle.
func (p *Plugin) leaving(r *room) map[vgpu.UID]bool {
	all := map[vgpu.UID]bool{}
	nodes, seen := p.handle.SnapshotSharedLister().NodeInfos(), map[string]bool{}
	for _, at := range r.places {
		info, err := nodes.Get(at.Node)
		if err != nil || seen[at.Node] {
			continue
		}
		seen[at.Node] = true
		for _, there := range info.GetPods() {
			pod := there.GetPod()
			if _, victim := r.victims[uidOf(pod)]; victim || pod.DeletionTimestamp != nil && !kube.Lingers(pod, p.now()) {
				all[uidOf(pod)] = true
			}
		}
	}
	return all
}

// free reports whether all members could have their places, beside what is kept for others of a higher priority: now, or once some
// pods are gone, whose hosts have room enough then. What is kept for others of their own priority is no obstacle: it does not need
// this room, although those who leave it may still be where the members go.
func (r *room) free(t *task, priority int32, gone map[vgpu.UID]bool) bool {
	nodes := map[string]*vgpu.Node{}
	for _, uid := range slices.Sorted(maps.Keys(r.places)) {
		at := r.places[uid]
		n := nodes[at.Node]
		if n == nil {
			if n = r.ground(t.ledger(at.Node), priority, gone); n == nil {
				return false
			}
			nodes[at.Node] = n
		}
		if gone == nil && !at.host.Within(n.Room()) || at.held() && n.Add(at.Assignment) != nil {
			return false
		}
		n.SetRoom(n.Room().Minus(at.host))
	}
	return true
}

// ground returns a node without some pods, on which others of a higher priority have what is held for them; nil where that does
// not add up.
func (r *room) ground(n *vgpu.Node, priority int32, gone map[vgpu.UID]bool) *vgpu.Node {
	holds := n.Holds()
	n = n.Without(func(h *vgpu.Hold, held bool) bool { return held || gone[h.UID] })
	for i := range holds {
		if h := &holds[i]; h.Priority > priority && n.Add(h.Assignment) != nil {
			return nil
		}
	}
	return n
}

// lookAtRoom is a step of Run for the room of a gang: it is given up when its time is over or its gang changed, and the leader
// is tried once all victims are gone. The caller holds the mutex.
func (p *Plugin) lookAtRoom(g *group, pg *podgroup.Gang, now time.Time) {
	r := g.room
	if r == nil {
		return
	}
	if now.After(r.until) {
		p.voidRoom(g, "pods that were evicted for it have not ended in time")
		return
	}
	if p.changedUnder(g, pg) {
		p.endRoom(g)
		p.wakeWaiting(pg, g)
		return
	}
	for uid, v := range r.victims {
		if p.seen(uid, v.pod) != nil {
			return
		}
	}
	// Again at each step: the scheduler may still have had victims in its snapshot when it tried the gang, and others that leave
	// the room. Its own pause between two tries of a group grows with the root of its size, to minutes.
	p.wakeWaiting(pg, g)
}

// changedUnder reports whether a gang has other members than those that room is kept for. The caller holds the mutex.
func (p *Plugin) changedUnder(g *group, pg *podgroup.Gang) bool {
	if g.room == nil {
		return false
	}
	waiting := map[vgpu.UID]bool{}
	for _, m := range pg.Members {
		if waits(m) {
			waiting[uidOf(m)] = true
		}
	}
	for uid := range g.room.places {
		if !waiting[uid] {
			return true
		}
	}
	return p.lacking(g, pg) != g.room.unbound
}

// placesOf returns the places of the members of a group, "" for those that have none.
func (r *room) placesOf(group *gang.Group) []vgpu.Assignment {
	places := make([]vgpu.Assignment, len(group.Members))
	for i := range group.Members {
		places[i] = r.places[group.Members[i].Request.UID].Assignment
	}
	return places
}
