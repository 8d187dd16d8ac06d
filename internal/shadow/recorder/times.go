package recorder

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// boundAt returns when a pod got its node, by its condition; without one, now. The API server's times are whole seconds.
func boundAt(pod *v1.Pod, now time.Time) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return now.Truncate(time.Second)
}

// ended reports whether the containers of a pod have ended for good.
func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// endedAt returns when the last container of a pod ended, by its status; without one, now.
func endedAt(pod *v1.Pod, now time.Time) time.Time {
	var last time.Time
	for i := range pod.Status.ContainerStatuses {
		t := pod.Status.ContainerStatuses[i].State.Terminated
		if t == nil {
			return now.Truncate(time.Second)
		}
		if t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	if last.IsZero() {
		return now.Truncate(time.Second)
	}
	return last
}
