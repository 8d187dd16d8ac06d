package victims

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// overdueAfter is how long a pod in deletion may outlive the end of its grace period. The kubelet sends SIGKILL at that
// end and then still unmounts volumes; a pod that is later has a kubelet that does not answer. Larger waits longer for
// room that does not come, smaller evicts more where a node is busy.
const overdueAfter = 30 * time.Second

// GracePeriod returns how long a pod may take to end after an eviction, and whether that is less than its own grace
// period.
func (g *Guards) GracePeriod(pod *v1.Pod) (grace time.Duration, cut bool) {
	if grace = kube.GracePeriod(pod); g.grace > 0 && grace > g.grace {
		return g.grace, true
	}
	return grace, false
}

// EndsSoon returns when a pod ends by itself, as its activeDeadlineSeconds say, and whether that is so soon that an
// eviction would bring its room about as late. That is within the grace period that an eviction now would give it. The
// kubelet gives it its own grace period from its end on, and both together must not exceed kube.LeavingWithin. A pod that
// outlived its end is no such pod.
func (g *Guards) EndsSoon(pod *v1.Pod, now time.Time) (time.Time, bool) {
	r := runOf(pod)
	return r.ends, r.endsWithin(g.soon(pod), now)
}

// soon returns how long before its end a pod ends soon, below 0 for never.
func (g *Guards) soon(pod *v1.Pod) time.Duration {
	grace, _ := g.GracePeriod(pod)
	return min(grace, kube.LeavingWithin-kube.GracePeriod(pod))
}

// Lingers reports whether the room of a pod in deletion is uncertain. Such a pod ends later than kube.LeavingWithin, or
// should have ended by now: its node does not answer or a finalizer keeps it.
func Lingers(pod *v1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	end := pod.DeletionTimestamp.Time
	return elapsed(end, now) > overdueAfter || elapsed(now, end) > kube.LeavingWithin
}
