package victims

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxRun bounds the time of lost work. The bound keeps the product with a share within 64 bits.
const maxRun = 10 * 365 * 24 * time.Hour

// run is the time that a pod works.
type run struct {
	// start is the start of the pod, where started says that it is known; saved is the time of the last checkpoint,
	// zero for none.
	start, saved time.Time
	started      bool
	// ends is when the kubelet ends the pod, zero for never.
	ends time.Time
}

func runOf(pod *v1.Pod) run {
	r := run{}
	r.start, r.started = startOf(pod)
	if at, ok, err := kube.CheckpointTime(pod); ok && err == nil {
		r.saved = at
	}
	if s := pod.Spec.ActiveDeadlineSeconds; s != nil && r.started && *s >= 0 && *s <= int64(maxRun/time.Second) {
		r.ends = r.start.Add(time.Duration(*s) * time.Second)
	}
	return r
}

// endsWithin reports whether the pod ends by itself within a time.
func (r *run) endsWithin(within time.Duration, now time.Time) bool {
	return !r.ends.IsZero() && !r.ends.Before(now) && r.ends.Sub(now) <= within
}

// lost returns the work that the pod loses if it ends now. It is the share of GPUs times the whole seconds since the
// pod started, or since its last checkpoint. A checkpoint that is malformed, before the start or in the future does not
// count. A pod with an unknown start has lost nothing.
//
// Example: 1500 thousandths of a GPU, saved 10 minutes ago, are 900,000.
func (r *run) lost(share vgpu.MilliGPU, now time.Time) int64 {
	if !r.started {
		return 0
	}
	since := r.start
	if r.saved.After(since) && !r.saved.After(now) {
		since = r.saved
	}
	return min(int64(share)*int64(min(elapsed(since, now), maxRun)/time.Second), preemption.MaxLost)
}

// shorter reports whether the pod has run for less than a time. A pod with an unknown start has not run.
func (r *run) shorter(least time.Duration, now time.Time) bool {
	return least > 0 && (!r.started || elapsed(r.start, now) < least)
}

// startOf returns when a pod started: as its node says, else when it got the node. The result is false for an unknown
// start.
func startOf(pod *v1.Pod) (time.Time, bool) {
	if t := pod.Status.StartTime; t != nil {
		return t.Time, true
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// elapsed returns the time from since to now, 0 where the clocks differ so that it would be negative.
func elapsed(since, now time.Time) time.Duration { return max(0, now.Sub(since)) }
