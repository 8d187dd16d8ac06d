package gpushare

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// activationPause is the least time between two activations. Shorter lets pending pods start sooner after a change and
// makes the scheduler try all of them for every GPUNode of a cluster that comes up; a second is not felt by anybody who
// waits for a GPU.
const activationPause = time.Second

// pending knows the vGPU pods that wait, and activates them after the inventory changed. The framework's own events
// cannot do it: they may outrun the plugin's reading of the GPUNode.
type pending struct {
	activator fwk.PodActivator
	changed   chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
}

func newPending(activator fwk.PodActivator) *pending {
	return &pending{activator: activator, changed: make(chan struct{}, 1), pods: map[types.UID]*v1.Pod{}}
}

func (w *pending) add(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[pod.UID] = pod
}

func (w *pending) remove(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, pod.UID)
}

// activate asks for an activation soon. It never blocks.
func (w *pending) activate() {
	select {
	case w.changed <- struct{}{}:
	default: // one is asked for already
	}
}

// run activates until ctx ends.
func (w *pending) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			w.activateAll(klog.FromContext(ctx))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(activationPause):
		}
	}
}

func (w *pending) activateAll(logger klog.Logger) {
	w.mu.Lock()
	pods := maps.Clone(w.pods)
	w.mu.Unlock()
	if len(pods) == 0 {
		return
	}
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	w.activator.Activate(logger, byName)
}
