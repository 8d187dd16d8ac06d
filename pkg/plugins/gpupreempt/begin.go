package gpupreempt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// begin keeps the room of a plan for the preemptor, and has the victims evicted.
func (p *Plugin) begin(ctx context.Context, q *question, plan *preemption.Plan, who preemptor) error {
	x := &pending{pod: q.pod, place: plan.Places[0], priority: q.priority}
	x.victims, x.deadline = p.victims(q, plan)
	if err := p.sharesOrNil().Hold(vgpu.Hold{Assignment: x.place, Priority: q.priority}); err != nil {
		return err
	}
	p.state.mu.Lock()
	p.state.pendings[uidOf(q.pod)] = x
	passed := p.state.passedOver(q, plan)
	p.state.mu.Unlock()
	if pod := p.seen(q.pod); pod == nil || pod.DeletionTimestamp != nil { // podGone may have come before there was a preemption
		p.over(q.pod, true)
		return fmt.Errorf("make room for pod %s: it is gone", pathOf(q.pod))
	}
	for _, other := range passed {
		p.end(ctx, other, "")
	}
	if len(plan.Evict) == 0 {
		return nil
	}
	p.evict(ctx, &eviction{
		preemptor: who, node: x.place.Node, plan: plan, from: q.from, pods: q.pods,
		failed: func(err error) { p.end(ctx, x, err.Error()) },
		done:   func() { p.activate(ctx, q.pod) }, // PreEnqueue may have kept it out
	})
	return nil
}

// victims returns who leaves the node of a plan, and when the last of them is gone at the latest. Members of gangs that leave
// other nodes matter to nobody.
func (p *Plugin) victims(q *question, plan *preemption.Plan) ([]victim, time.Time) {
	var list []victim
	now := p.now()
	deadline := now
	for _, i := range leaving(plan) {
		if pod := q.pods[i]; pod.Spec.NodeName == plan.Places[0].Node {
			list = append(list, victim{uid: uidOf(pod), name: pathOf(pod)})
			if by := p.goneBy(pod, now); by.After(deadline) {
				deadline = by
			}
		}
	}
	return list, deadline
}

// passedOver returns the preemptions for pods of a lower priority whose room a plan takes. The caller holds the mutex.
func (s *state) passedOver(q *question, plan *preemption.Plan) []*pending {
	place := plan.Places[0]
	ledger := q.cluster.Nodes[q.find(place.Node)].Without(func(*vgpu.Hold, bool) bool { return true })
	if ledger.Add(place) != nil {
		return nil
	}
	var all []*pending
	for _, x := range s.pendings {
		if x.place.Node == place.Node && x.priority < q.priority && ledger.Clone().Add(x.place) != nil {
			all = append(all, x)
		}
	}
	return all
}

// stillPending answers for a pod with a preemption, and reports whether it has one: it waits for its victims, or for others that
// leave the node and took its room before, or the preemption came to nothing.
func (p *Plugin) stillPending(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (attempt, bool) {
	p.state.mu.Lock()
	uid, now := uidOf(pod), p.now()
	x, running := p.state.pendings[uid], p.state.running[string(uid)] != nil
	if x == nil {
		p.state.mu.Unlock()
		return attempt{}, false
	}
	node, err := p.handle.SnapshotSharedLister().NodeInfos().Get(x.place.Node)
	left := x.left(func(v *victim) bool { return err == nil && find(node, uidForFramework(v.uid)) != nil }, now)
	p.state.mu.Unlock()
	if left == 0 && !running && err == nil {
		left = p.waitForOthers(ctx, cs, x, node)
	}
	text := fmt.Sprintf("all victims have left node %s, and the pod does not fit there: %s", x.place.Node, verdict.Text(statuses.Get(x.place.Node)))
	if err != nil {
		text = x.nodeLost()
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if left > 0 || running {
		return attempt{result: resultPending, text: x.waiting(left, now)}, true
	}
	if p.state.pendings[uid] == x {
		delete(p.state.pendings, uid)
		p.sharesOrNil().Release(uid)
		p.state.missed(pod, now, text)
	}
	return attempt{resultMissed, text, nominate("")}, true
}

// waitForOthers has a preemption wait for the other pods that leave its node, where the pod fits once they are gone, and returns
// how many they are: another preemptor may have come first to the room, while its own victims leave.
func (p *Plugin) waitForOthers(ctx context.Context, cs fwk.CycleState, x *pending, node fwk.NodeInfo) int {
	now, without, state := p.now(), node.Snapshot(), cs.Clone()
	others := make([]victim, 0, len(node.GetPods()))
	var deadline time.Time
	for _, info := range node.GetPods() {
		other := info.GetPod()
		chosen := p.state.leaves(uidOf(other), now) && !p.isSlow(other)
		if !chosen && (other.DeletionTimestamp == nil || kube.Lingers(other, now)) {
			continue
		}
		if without.RemovePod(klog.FromContext(ctx), other) != nil || !p.handle.RunPreFilterExtensionRemovePod(ctx, state, x.pod, info, without).IsSuccess() {
			return 0
		}
		others = append(others, victim{uid: uidOf(other), name: pathOf(other)})
		if by := p.goneBy(other, now); by.After(deadline) {
			deadline = by
		}
	}
	if len(others) == 0 || !p.handle.RunFilterPluginsWithNominatedPods(ctx, state, x.pod, without).IsSuccess() {
		return 0
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	x.victims, x.deadline, x.cleared = others, deadline, time.Time{}
	return len(others)
}

// waiting says what a preemptor waits for.
func (x *pending) waiting(left int, now time.Time) string {
	names := make([]string, 0, len(x.victims))
	for i := range x.victims {
		names = append(names, x.victims[i].name)
	}
	text := fmt.Sprintf("%d of %s (%s) yet to leave node %s", left, plural(len(x.victims), "pod"), few(names), x.place.Node)
	if until := x.deadline.Sub(now); until > 0 {
		text += fmt.Sprintf(", within %v", until.Round(time.Second))
	}
	return text
}

// endHopeless ends the preemptions that wait for one of some pods which were to be evicted, for another preemptor, and stay.
func (p *Plugin) endHopeless(ctx context.Context, spared []vgpu.UID) {
	p.state.mu.Lock()
	var hopeless []*pending
	for _, x := range p.state.pendings {
		if slices.ContainsFunc(x.victims, func(v victim) bool { return slices.Contains(spared, v.uid) && p.stays(&v) }) {
			hopeless = append(hopeless, x)
		}
	}
	p.state.mu.Unlock()
	for _, x := range hopeless {
		p.end(ctx, x, "")
	}
}

// stays reports whether a victim is there, and nobody has it leave. The caller holds the mutex.
func (p *Plugin) stays(v *victim) bool {
	namespace, name, _ := strings.Cut(v.name, "/")
	pod, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(namespace).Get(name)
	_, chosen := p.state.leaving[v.uid]
	return err == nil && uidOf(pod) == v.uid && pod.DeletionTimestamp == nil && !chosen
}

// end gives up the room of a preemption that came to nothing and has the pod tried again, at once, for the room that there is;
// and where it missed, as why says if not "", for another preemption after a pause. The try ends what the pod is nominated for.
func (p *Plugin) end(ctx context.Context, x *pending, why string) {
	uid := uidOf(x.pod)
	p.state.mu.Lock()
	if p.state.pendings[uid] != x {
		p.state.mu.Unlock()
		return
	}
	delete(p.state.pendings, uid)
	if run := p.state.running[string(uid)]; run != nil {
		run.cancel()
	}
	if why != "" {
		p.state.missed(x.pod, p.now(), why)
	}
	p.state.mu.Unlock()
	p.sharesOrNil().Release(uid)
	p.activate(ctx, x.pod)
}

// activate has pods tried again. The caller holds no mutex of the plugin: the queue's comes first.
func (p *Plugin) activate(ctx context.Context, pods ...*v1.Pod) {
	all := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		all[pathOf(pod)] = pod
	}
	if len(all) > 0 {
		p.handle.Activate(klog.FromContext(ctx), all)
	}
}
