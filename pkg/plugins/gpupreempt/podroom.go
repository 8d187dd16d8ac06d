package gpupreempt

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// makePodRoom keeps the room of a plan for the preemptor, and evicts the victims. The result is how long the preemptor
// has to wait for its turn, where the allowance is zero.
func (p *Plugin) makePodRoom(ctx context.Context, q *question, plan *preemption.Plan) (wait time.Duration, err error) {
	e := &eviction{preemptor: q.preemptor(), node: plan.Places[0].Node, plan: plan, from: q.from, pods: q.pods}
	room := reservation.PodRoom{Place: plan.Places[0], Host: q.group.Members[0].Request.Host, Priority: q.priority}
	made := reservation.PodRoomMade{PodRef: refOf(q.pod), Room: room, Evict: p.chosen(e)}
	made.Room.Victims, made.Until = p.victims(q, plan)
	var a machine.Answer
	p.machine.Lock(func(l machine.Locked) {
		all := func(*vgpu.Hold, bool) bool { return true }
		made.Passed = l.State.PassedOver(&plan.Places[0], q.priority, q.cluster.Nodes[q.find(e.node)].Without(all))
		a = l.Step(made)
		e.begin(ctx, l, a.Begin)
		if len(a.Unheld) > 0 {
			l.Step(reservation.PodHoldFailed{UID: kube.UIDOf(q.pod), Why: a.Unheld[0].Err.Error()})
		}
	})
	if pod := p.seen(q.pod); a.Defer == nil && (pod == nil || pod.DeletionTimestamp != nil) { // it may have gone before there was room for it
		p.ended(q.pod, true)
		err = fmt.Errorf("make room for pod %s: it is gone", kube.PathOf(q.pod))
	}
	p.machine.Flush(ctx)
	if a.Begin != nil {
		p.evict(e)
	}
	switch {
	case len(a.Unheld) > 0:
		return 0, a.Unheld[0].Err
	case a.Defer != nil:
		return a.Defer.Wait, nil
	}
	return 0, err
}

// victims returns the pods that leave the node of a plan, and when the last of them is gone at the latest. Members of gangs that leave
// other nodes make no difference.
func (p *Plugin) victims(q *question, plan *preemption.Plan) (list []reservation.PodRef, until time.Time) {
	now := p.now()
	until = now
	for _, i := range leavingCandidates(plan) {
		if pod := q.pods[i]; pod.Spec.NodeName == plan.Places[0].Node {
			list = append(list, refOf(pod))
			if by := p.awaitedUntil(pod, now); by.After(until) {
				until = by
			}
		}
	}
	return list, until
}

// stillWaits answers for a pod with a pending preemption, and reports whether there is one.
func (p *Plugin) stillWaits(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (outcome, bool) {
	var node fwk.NodeInfo
	a := p.machine.Step(func(l machine.Locked) reservation.Event {
		e := reservation.PodRefused{PodRef: refOf(pod)}
		_, room := l.State.PodRoom(kube.UIDOf(pod))
		if room == nil {
			return e
		}
		var err error
		if node, err = p.handle.SnapshotSharedLister().NodeInfos().Get(room.Place.Node); err != nil {
			return e
		}
		e.NodeKnown = true
		for _, v := range room.Victims {
			if find(node, types.UID(v.UID)) != nil {
				e.There = append(e.There, v.UID)
			}
		}
		return e
	})
	if a.Others != nil {
		e := p.othersOn(ctx, cs, pod, node)
		e.Why = verdict.Text(statuses.Get(a.Others.Node))
		a = p.machine.Step(func(machine.Locked) reservation.Event { return e })
	}
	switch {
	case a.Leaving != nil:
		// The scheduler may try the pod before its informer knows of the nomination. Without an answer the queue would forget it then,
		// and others would take the CPU and the memory that the pod needs beside its devices.
		return outcome{resultPending, a.Leaving.Why, nominate(a.Leaving.Node)}, true
	case a.Nothing != nil:
		return outcome{resultMissed, a.Nothing.Why, nominate("")}, true
	}
	return outcome{}, false
}

// othersOn returns the other pods that leave a node, or end soon by themselves, where the pod fits there once they are gone. Another
// preemptor may wait for one that ends soon, and its nomination takes CPU and memory from now on.
func (p *Plugin) othersOn(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) reservation.OthersSought {
	now, without, state := p.now(), node.Snapshot(), cs.Clone()
	none := reservation.OthersSought{UID: kube.UIDOf(pod)}
	found := none
	for _, info := range node.GetPods() {
		other := info.GetPod()
		if !p.isAwaited(pod, other, now) {
			continue
		}
		if without.RemovePod(klog.FromContext(ctx), other) != nil || !p.handle.RunPreFilterExtensionRemovePod(ctx, state, pod, info, without).IsSuccess() {
			return none
		}
		found.Others = append(found.Others, refOf(other))
		if by := p.awaitedUntil(other, now); by.After(found.Until) {
			found.Until = by
		}
	}
	if len(found.Others) == 0 || !p.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, without).IsSuccess() {
		return none
	}
	return found
}

// isAwaited reports whether a preemptor waits for another pod on its node: for one that leaves it, and for one of a lower priority
// that ends soon.
func (p *Plugin) isAwaited(pod, other *v1.Pod, now time.Time) bool {
	if other.DeletionTimestamp != nil {
		return !victims.Lingers(other, now)
	}
	if p.isChosen(kube.UIDOf(other)) {
		return !p.isSlow(other)
	}
	_, soon := p.guards.EndsSoon(other, now)
	return soon && corev1helpers.PodPriority(other) < corev1helpers.PodPriority(pod)
}

// isChosen reports whether a pod is a victim that is not overdue.
func (p *Plugin) isChosen(uid vgpu.UID) (is bool) {
	p.machine.Lock(func(l machine.Locked) { is = l.State.IsChosen(uid, p.now()) })
	return is
}

// tryAgain has a pod tried again without an event of the cluster: at a time that is not zero, or when a PodDisruptionBudget allows more.
func (p *Plugin) tryAgain(pod *v1.Pod, at time.Time, onBudgets bool) {
	p.machine.Step(func(machine.Locked) reservation.Event {
		return reservation.PodRetried{PodRef: refOf(pod), At: at, OnBudgets: onBudgets}
	})
}

// ended drops a preemptor that has its node or is gone. In the latter case the room ends too.
func (p *Plugin) ended(pod *v1.Pod, gone bool) {
	p.machine.Step(func(machine.Locked) reservation.Event { return reservation.PodEnded{UID: kube.UIDOf(pod), Gone: gone} })
}

func refOf(pod *v1.Pod) reservation.PodRef {
	return reservation.PodRef{UID: kube.UIDOf(pod), Pod: kube.PathOf(pod)}
}
