package gpugang

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// release ends a gang that stayed half-bound: its bound members are evicted and its plan is given up, so that it starts whole
// or not at all. An eviction that the API refuses, for a PodDisruptionBudget say, is tried again at the next step.
func (p *Plugin) release(ctx context.Context, pg *podgroup.Gang) {
	logger := klog.FromContext(ctx)
	left := 0
	for _, m := range pg.Members {
		if !p.isBound(pg.Ref, m) {
			continue
		}
		if m.DeletionTimestamp == nil {
			p.event(m, v1.EventTypeWarning, "GangReleased", fmt.Sprintf(
				"gang %s had fewer than %d of its members bound after %v: its bound members are evicted", pg.Ref, pg.MinCount, p.args.PlacementDeadline.Duration))
			err := p.evict(ctx, m)
			if err != nil && !apierrors.IsNotFound(err) {
				logger.Error(err, "Evicting a member of a half-bound gang failed", "pod", klog.KObj(m), "gang", pg.String())
				left++
			}
		}
	}
	if left > 0 {
		return
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.group(pg.Ref)
	for uid := range g.places {
		p.drop(g, uid)
	}
	g.forget()
	g.bound, g.started = map[vgpu.UID]bool{}, false
	g.failures++
	g.retry = p.now().Add(backoff(g.failures))
	p.metrics.released.Inc()
}

func (p *Plugin) isBound(ref podgroup.Ref, pod *v1.Pod) bool {
	if pod.Spec.NodeName != "" {
		return true
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	return g != nil && g.bound[uidOf(pod)]
}

// evict evicts a member as far as its budgets allow. The API server asks them first, and takes the eviction off what they allow; then
// it marks the pod and deletes it. Where the mark is refused, since the pod's annotations are too long for any update, what is left
// is to delete the pod.
func (p *Plugin) evict(ctx context.Context, pod *v1.Pod) error {
	uid := pod.UID
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	err := p.handle.ClientSet().PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options,
	})
	if kube.IsTooLong(err) { // the budgets agreed, and the pod can never be marked
		return p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	}
	return err
}

// adoptHalf takes over a gang that is half-bound by another scheduler's doing: this one was restarted in between. A member
// that waits and was made before the first of its siblings was bound has never had a place; one that was made later is in
// place of one that ran. Where the deadline had passed before this scheduler started, the gang is taken to have run: members
// may have ended since, and nothing is evicted that may be at work. The caller holds the mutex.
func (p *Plugin) adoptHalf(pg *podgroup.Gang, g *group) {
	bound, reserved := p.boundOf(g, pg), len(g.reserved)
	if bound == 0 {
		if reserved == 0 && !g.planned() {
			g.letGo, g.started, g.gate = zero, false, make(chan struct{}) // all that ran are gone: the gang starts anew
		}
		return
	}
	if !g.letGo.IsZero() || bound >= pg.MinCount {
		return
	}
	since := firstBound(pg)
	g.letGo = since
	g.open()
	g.started = !waitedBefore(pg, since) || since.Add(p.args.PlacementDeadline.Duration).Before(p.state.since)
}

// firstBound returns when the first of the bound members was scheduled.
func firstBound(pg *podgroup.Gang) time.Time {
	var first time.Time
	for _, m := range pg.Members {
		if at := scheduledAt(m); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// scheduledAt returns when a pod got its node, zero where it has none.
func scheduledAt(pod *v1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return zero
}

// waitedBefore reports whether a member waits that was made before a time. Both are in whole seconds.
func waitedBefore(pg *podgroup.Gang, at time.Time) bool {
	for _, m := range pg.Members {
		if m.Spec.NodeName == "" && m.DeletionTimestamp == nil && !m.CreationTimestamp.After(at) {
			return true
		}
	}
	return false
}

// event tells the people who look at an object.
func (p *Plugin) event(about runtime.Object, kind, reason, message string) {
	if recorder := p.handle.EventRecorder(); recorder != nil {
		recorder.Eventf(about, nil, kind, reason, "Scheduling", "%s", message)
	}
}
