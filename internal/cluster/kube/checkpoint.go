package kube

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const legalCheckpoint = "it must be a time with date and zone as in RFC 3339, for example 2026-01-31T12:00:00Z: when the work was last saved"

// maxCheckpoint bounds the length of a checkpoint's time: nine decimals of a second and a zone. The admission policy of deploy/
// has the same form.
const maxCheckpoint = len("2026-01-31T12:00:00.123456789+01:00")

// maxRun bounds the time of which a pod's work can be lost. It keeps the product with a share within 64 bits.
const maxRun = 10 * 365 * 24 * time.Hour

// CheckpointTime returns when the work of a pod was last saved, and false where the pod does not say. The error is a
// *FieldError.
func CheckpointTime(pod *v1.Pod) (time.Time, bool, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationCheckpointTime]
	if !ok {
		return time.Time{}, false, nil
	}
	at, err := time.Parse(time.RFC3339, raw)
	if err != nil || !isStrict(raw) {
		return time.Time{}, true, malformed(v1alpha1.AnnotationCheckpointTime, raw, legalCheckpoint)
	}
	return at, true, nil
}

// isStrict reports whether a time that time.Parse reads as RFC 3339 is just that: it also takes hours of one digit, commas, and
// zones of 24 hours or 60 minutes.
func isStrict(raw string) bool {
	if len(raw) > maxCheckpoint || raw[len("2026-01-31T12")] != ':' || strings.Contains(raw, ",") {
		return false
	}
	zone := raw[len(raw)-len("01:00"):]
	return raw[len(raw)-1] == 'Z' || zone[:2] < "24" && zone[3:] < "60"
}

// run is the time that a pod works.
type run struct {
	// start is when it started, where started says that somebody saw it; saved is when its work was last saved, zero for never.
	start, saved time.Time
	started      bool
}

func runOf(pod *v1.Pod) run {
	r := run{}
	r.start, r.started = startOf(pod)
	if at, ok, err := CheckpointTime(pod); ok && err == nil {
		r.saved = at
	}
	return r
}

// LostWork returns the work that is lost if a pod with a share of GPUs ends now: the share times the whole seconds since the
// pod started, or since its last checkpoint. A checkpoint that is malformed, before the start or in the future is none. A pod
// that nobody saw start has lost nothing.
//
// Example: 1500 thousandths of a GPU, saved 10 minutes ago, are 900,000.
func LostWork(pod *v1.Pod, share vgpu.MilliGPU, now time.Time) int64 {
	r := runOf(pod)
	return r.lost(share, now)
}

// lost is LostWork of the pod.
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

// shorter reports whether the pod has run for less than a time. One that nobody saw start has not run.
func (r *run) shorter(least time.Duration, now time.Time) bool {
	return least > 0 && (!r.started || elapsed(r.start, now) < least)
}

// startOf returns when a pod started: as its node says, else when it got the node. False where nobody says.
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
