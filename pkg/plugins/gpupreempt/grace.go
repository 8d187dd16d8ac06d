package gpupreempt

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/victims"
)

// slack is how long a pod may exist beyond its grace period before the plugin takes it to stay. The kubelet kills the pod then,
// takes its devices back and reports that to the API server. Longer keeps room for a preemptor on a node that is lost, shorter
// gives up room that is about to be free.
const slack = 30 * time.Second

// isSlow reports whether a pod takes longer to end, when it is evicted, than its room is waited for.
func (p *Plugin) isSlow(pod *v1.Pod) bool {
	grace, _ := p.guards.GracePeriod(pod)
	return grace > victims.LeavingWithin
}

// endOf returns when a pod that is evicted now is gone at the latest.
func (p *Plugin) endOf(pod *v1.Pod) time.Time {
	grace, _ := p.guards.GracePeriod(pod)
	return p.now().Add(grace).Add(slack)
}

// awaitedUntil returns how long the room of a pod that leaves is waited for: until it is gone, but no longer than that of any.
func (p *Plugin) awaitedUntil(pod *v1.Pod, now time.Time) time.Time {
	by, most := p.endOf(pod), now.Add(victims.LeavingWithin).Add(slack)
	if pod.DeletionTimestamp != nil {
		by = pod.DeletionTimestamp.Add(slack)
	}
	if by.After(most) {
		return most
	}
	return by
}
