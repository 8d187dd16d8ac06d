package gpupreempt

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// pending is a preemption for a single pod whose victims leave. The mutex of the state guards it.
type pending struct {
	pod *v1.Pod
	// place is what is held for the pod.
	place    vgpu.Assignment
	priority int32
	victims  []victim
	// deadline is when the last of the victims is gone at the latest.
	deadline time.Time
	// cleared is when all victims were seen to be gone, zero before that.
	cleared time.Time
}

// victim is a pod whose room a preemptor waits for.
type victim struct {
	uid  vgpu.UID
	name string // "namespace/name"
	// withdrawn is when it was taken back before it was bound, zero for one that is deleted: its pod exists on.
	withdrawn time.Time
}

// withdrew notes that a victim was taken back before it was bound.
func (x *pending) withdrew(uid vgpu.UID, now time.Time) {
	for i := range x.victims {
		if x.victims[i].uid == uid {
			x.victims[i].withdrawn = now
		}
	}
}

// forgetting is how long the scheduler may take to forget a pod that was taken back. Longer delays preemptors that find no room
// although nobody leaves any more, shorter has one give up room that is about to be free.
const forgetting = 5 * time.Second

// left counts the victims that are still there, as exists tells.
func (x *pending) left(exists func(v *victim) bool, now time.Time) int {
	count := 0
	for i := range x.victims {
		v := &x.victims[i]
		if !v.withdrawn.IsZero() && now.Sub(v.withdrawn) >= forgetting {
			continue
		}
		if exists(v) {
			count++
		}
	}
	return count
}

// nodeLost says that the preemption came to nothing for its node.
func (x *pending) nodeLost() string {
	return "node " + x.place.Node + " is gone or takes the pod no more"
}

// miss is how often in a row the preemptions for a pod came to nothing, why the last one did, and when the next may be tried.
type miss struct {
	times int
	why   string
	until time.Time
}

// Pauses after preemptions that came to nothing, from the first to the longest.
const (
	firstPause   = time.Second
	longestPause = 5 * time.Minute
)

// pauseAfter returns the pause after so many misses in a row: 1s, 2s, 4s, … at most 5 minutes.
func pauseAfter(times int) time.Duration {
	pause := firstPause
	for range times - 1 {
		if pause *= 2; pause >= longestPause {
			return longestPause
		}
	}
	return pause
}

// again is a pod that is tried again at a time, or when a PodDisruptionBudget changes.
type again struct {
	pod     *v1.Pod
	at      time.Time // zero for not by time
	budgets bool
}

// missed notes that a preemption came to nothing. The caller holds the mutex.
func (s *state) missed(pod *v1.Pod, now time.Time, why string) {
	m := s.misses[uidOf(pod)]
	m.times++
	m.why = why
	m.until = now.Add(pauseAfter(m.times))
	s.misses[uidOf(pod)] = m
	s.retries[uidOf(pod)] = again{pod: pod, at: m.until}
}

// forget drops what is known of a preemptor that is bound or gone, and stops its evictions.
func (s *state) forget(uid vgpu.UID) {
	if run := s.running[string(uid)]; run != nil {
		run.cancel()
	}
	delete(s.pendings, uid)
	delete(s.misses, uid)
	delete(s.retries, uid)
	s.allowance.forget(string(uid))
}
