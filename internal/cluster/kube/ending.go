package kube

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// LeavingWithin bounds the wait for the room of a pod that ends. Longer lets one pod with a grace period of hours keep others from room that they
// could have at once. Shorter evicts others while a pod that saves its work is about to end.
const LeavingWithin = 10 * time.Minute

// GracePeriod returns how long a pod may take to end: its own grace period, up to the longest duration that there is. The API server takes any number
// of seconds, also more than fit into a duration.
func GracePeriod(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = max(0, *s)
	}
	if seconds > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(seconds) * time.Second
}

// LongestRun returns for how many seconds a pod has its room at the longest, from its start on: until its deadline, and for the grace period that the
// kubelet gives it then. It reports false where that says nothing: without a deadline, or where the pod may take longer than LeavingWithin to end.
func LongestRun(pod *v1.Pod) (seconds int64, is bool) {
	grace := GracePeriod(pod)
	if pod.Spec.ActiveDeadlineSeconds == nil || grace > LeavingWithin {
		return 0, false
	}
	return vgpu.Sum(*pod.Spec.ActiveDeadlineSeconds, int64(grace/time.Second)), true
}
