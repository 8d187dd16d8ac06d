package podsource

import "time"

// Reasons of pods that the kubelet ends by itself, without a deletion. Source: pkg/kubelet/eviction of Kubernetes 1.37,
// read, not measured.
const reasonEvicted = "Evicted"

// leave notes the time of the kubelet's SIGKILL. before is the last known state of the pod, nil for none; live says
// that the change came as an event.
//
// The kubelet counts the grace from the moment when it learns of the deletion, which is when it sends the event. The
// deletion timestamp is by the clock of the API server, so it counts only without an event. A clock that is ahead must
// not take the grace from a program that saves its work.
func (t *Tenant) leave(before *Tenant, live bool, now time.Time) {
	grace, leaves := t.grace()
	if !leaves {
		return
	}
	if before != nil && !before.Kill.IsZero() {
		t.Kill = before.Kill
		if had, _ := before.grace(); grace < had && now.Add(grace).Before(t.Kill) {
			t.Kill = now.Add(grace) // deleted once more, with less grace
		}
		return
	}
	if deleted := t.Pod.DeletionTimestamp; deleted != nil && !live {
		grace = min(grace, max(0, deleted.Sub(now)))
	}
	t.Kill = now.Add(grace)
}

// grace is how long the containers of a pod may still run, false for a pod that may go on. The timestamp of a deletion
// is in its grace already. A pod that the kubelet evicts has a second in most cases, which is no time to wait. Other
// pods that it ends by itself have the grace of their spec, or less where a node shuts down.
func (t *Tenant) grace() (time.Duration, bool) {
	const unit = time.Second
	p := t.Pod
	switch {
	case p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil:
		return time.Duration(*p.DeletionGracePeriodSeconds) * unit, true
	case p.DeletionTimestamp != nil:
		return 0, true
	case !Over(p) || !running(p):
		return 0, false
	case p.Status.Reason == reasonEvicted || p.Spec.TerminationGracePeriodSeconds == nil:
		return 0, true
	}
	return time.Duration(*p.Spec.TerminationGracePeriodSeconds) * unit, true
}
