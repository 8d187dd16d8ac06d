package gpushare

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
)

// keepsWords is for how long the plugin remembers what a pod has said that has left the scheduler's informer. The end of the pod comes by
// another informer, which may be behind. A longer time takes more memory; after a shorter one the words of some pods count for nothing.
const keepsWords = 10 * time.Minute

// toldPod is what a pod has said of its progress while this plugin ran. left is when the pod left, zero before.
type toldPod struct {
	lifetime.Progress
	left time.Time
}

// hear notes what a running pod says of its progress. Pods that have said nothing take no memory.
func (l *lifetimes) hear(pod *v1.Pod, now time.Time) {
	done, _, err := kube.Progress(pod)
	if err != nil { // the API server refuses what cannot be read
		done = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.told[pod.UID]
	if pod.Status.StartTime == nil || said == nil && done == 0 {
		return
	}
	if said == nil {
		said = &toldPod{}
		l.told[pod.UID] = said
	}
	said.left = time.Time{}
	said.Say(max(0, now.Sub(pod.Status.StartTime.Time).Seconds()), done)
}

// leave notes that a pod has left, and forgets those that left long ago.
func (l *lifetimes) leave(pod *v1.Pod, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if said := l.told[pod.UID]; said != nil && said.left.IsZero() {
		said.left = now
		l.left = append(l.left, pod.UID)
	}
	for len(l.left) > 0 {
		said := l.told[l.left[0]]
		if said != nil && !said.left.IsZero() {
			if now.Sub(said.left) < keepsWords {
				return
			}
			delete(l.told, l.left[0])
		}
		l.left = l.left[1:]
	}
}

// projected returns the length in seconds to which the progress of a pod points, 0 where it tells none.
func (l *lifetimes) projected(uid types.UID) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if said := l.told[uid]; said != nil {
		return said.Projected()
	}
	return 0
}

// judged returns the length by which the words of a pod are judged that ended after so many seconds, 0 where it gave none by then.
func (l *lifetimes) judged(uid types.UID, length float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if said := l.told[uid]; said != nil {
		return said.Judged(length)
	}
	return 0
}
