package gpupreempt

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// slack is how long a pod may exist beyond its grace period before the plugin takes it to stay. The kubelet sends
// SIGKILL then, takes the pod's devices back and reports that to the API server. Longer keeps room for a preemptor on a
// lost node, shorter gives up room that is about to be free.
const slack = 30 * time.Second

// isSlow reports whether a pod takes longer to end after an eviction than a preemptor waits.
func (p *Plugin) isSlow(pod *v1.Pod) bool {
	grace, _ := p.guards.GracePeriod(pod)
	return grace > kube.LeavingWithin
}

// endOf returns when a pod is gone at the latest after an eviction now.
func (p *Plugin) endOf(pod *v1.Pod) time.Time {
	grace, _ := p.guards.GracePeriod(pod)
	return p.now().Add(grace).Add(slack)
}

// awaitedUntil returns how long a preemptor waits for the room of a pod that leaves: until it is gone, but no longer
// than for any.
func (p *Plugin) awaitedUntil(pod *v1.Pod, now time.Time) time.Time {
	by, most := p.endOf(pod), now.Add(kube.LeavingWithin).Add(slack)
	if pod.DeletionTimestamp != nil {
		by = pod.DeletionTimestamp.Add(slack)
	} else if at, soon := p.guards.EndsSoon(pod, now); soon {
		by = at.Add(kube.GracePeriod(pod)).Add(slack) // the kubelet gives it its own grace period from then on
	}
	if by.After(most) {
		return most
	}
	return by
}
