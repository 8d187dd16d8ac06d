package gpugang

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// step is the time between two looks at deadlines, reservations and retries. Shorter is more exact and costs a walk over the gangs.
const step = time.Second

// Run looks at deadlines, reservations and retries until ctx ends.
func (p *Plugin) Run(ctx context.Context) {
	if p.targets != nil {
		go p.report(ctx, p.targets)
	}
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.Tick(ctx)
		}
	}
}

// Tick is one step of Run. It ends plans whose members did not come in time, evicts the members of gangs with too few
// bound members, and activates the gangs whose turn it is.
func (p *Plugin) Tick(ctx context.Context) {
	p.lookAtUnresolved()
	var refs []podgroup.Ref
	p.machine.Lock(func(l machine.Locked) { refs = l.State.Refs() })
	var evictions []reservation.Evict
	for _, ref := range refs {
		a := p.machine.Step(func(l machine.Locked) reservation.Event { return p.ticked(l, ref) })
		evictions = append(evictions, a.Evict...)
		if pg, _ := p.gangs.Gang(ref); pg != nil {
			p.denominateMembers(pg)
		}
	}
	p.machine.Flush(ctx)
	for i := range evictions {
		p.release(ctx, &evictions[i])
	}
}

// lookAtUnresolved has the gangs that wait for room tried again when room of unresolved binds has come free.
func (p *Plugin) lookAtUnresolved() {
	if p.shares == nil || p.shares() == nil {
		return // a profile without GPUShare
	}
	now := p.shares().UnresolvedBinds()
	if now < p.unresolved {
		p.machine.Step(func(machine.Locked) reservation.Event { return reservation.DoubtsEnded{} })
	}
	p.unresolved = now
}

// ticked says what a step of Run finds of a gang.
func (p *Plugin) ticked(l machine.Locked, ref podgroup.Ref) reservation.Event {
	e := reservation.Ticked{Gang: l.Facts(ref)}
	for i := range e.Gang.Members {
		if uid := e.Gang.Members[i].UID; e.Gang.Members[i].Node == "" && p.handle.GetWaitingPod(types.UID(uid)) != nil {
			e.InPermit = append(e.InPermit, uid)
		}
	}
	if made := l.State.MadeRoom(ref); made != nil {
		for uid, v := range made.Victims {
			e.VictimsLeft = e.VictimsLeft || p.machine.Seen(uid, v.Pod) != nil
		}
	}
	if kept, _ := l.State.Reservation(ref); kept != nil {
		for _, blocker := range kept.Blockers {
			if pod := p.machine.Seen(blocker.UID, blocker.Pod); pod != nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
				e.Blocked = append(e.Blocked, pod.Spec.NodeName)
			}
		}
	}
	return e
}

// release evicts the bound members of a gang that has too few of them in time, so that the gang starts whole or not at
// all. The next step repeats an eviction that the API refuses, for a PodDisruptionBudget say.
func (p *Plugin) release(ctx context.Context, e *reservation.Evict) {
	pg, _ := p.gangs.Gang(e.Ref)
	if pg == nil {
		return
	}
	failed := 0
	for _, m := range p.machine.Pods(e.Ref, e.UIDs) {
		if m.DeletionTimestamp != nil {
			continue
		}
		switch err := p.evict(ctx, m); {
		case err == nil:
			p.event(m, v1.EventTypeWarning, "GangReleased", fmt.Sprintf(
				"gang %s had fewer than %d of its members bound after %v: its bound members are evicted", e.Ref, pg.MinCount, p.args.PlacementDeadline.Duration))
		case !apierrors.IsNotFound(err):
			klog.FromContext(ctx).Error(err, "Evicting a member of a half-bound gang failed", "pod", klog.KObj(m), "gang", e.Ref.String())
			failed++
		}
	}
	p.machine.Step(func(l machine.Locked) reservation.Event {
		return reservation.Released{Gang: l.Facts(e.Ref), Left: failed}
	})
}

// evict evicts a member as far as its budgets allow. The API server checks them first, and takes the eviction off what
// they allow; then it marks the pod and deletes it. If the API server refuses the mark, since the pod's annotations are
// too long for any update, evict deletes the pod.
func (p *Plugin) evict(ctx context.Context, pod *v1.Pod) error {
	uid := pod.UID
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	err := p.handle.ClientSet().PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
	})
	if kube.IsTooLong(err) { // the budgets agreed, and the API server can never mark the pod
		return p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	}
	return err
}

// event writes an event about an object.
func (p *Plugin) event(about runtime.Object, kind, reason, message string) {
	if recorder := p.handle.EventRecorder(); recorder != nil {
		recorder.Eventf(about, nil, kind, reason, kube.EventAction(message), "%s", message)
	}
}

// gangEvent writes an event about a gang: on its PodGroup, else on its first member.
func (p *Plugin) gangEvent(pg *podgroup.Gang, reason, message string) {
	switch {
	case pg.Object != nil:
		p.event(pg.Object, v1.EventTypeNormal, reason, message)
	case len(pg.Members) > 0:
		p.event(pg.Members[0], v1.EventTypeNormal, reason, "gang "+pg.String()+": "+message)
	}
}

// started counts a gang whose required members all have a place.
func (p *Plugin) started(e *reservation.Start) {
	if e.Known {
		p.metrics.waited.Observe(e.Waited.Seconds())
	}
	pg, _ := p.gangs.Gang(e.Ref)
	if pg == nil || p.gangs.Queues(e.Ref.Source) {
		return // the condition of a PodGroup that the queue knows says it
	}
	nodes := map[string]bool{}
	for _, node := range e.Nodes {
		nodes[node] = true
	}
	names := slices.Sorted(maps.Keys(nodes))
	p.gangEvent(pg, "GangPlaced", "all that must run have a place: "+verdict.Plural(len(e.Nodes), "member")+" on "+verdict.Plural(len(names), "node")+": "+verdict.First(maxNamed, names))
}
