package gpugang

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// wakes are the members that are to be tried again. Activating them takes the lock of the scheduler's queue, under which
// PreEnqueue asks for that of the machine: so it waits until that is free.
type wakes struct {
	mu   sync.Mutex
	pods map[string]*v1.Pod
	// stale are nominations that may mean nothing any more, which takes the same lock to find out.
	stale []nomination
}

// add notes members to be tried again, at the next flush.
func (w *wakes) add(pods ...*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		if w.pods == nil {
			w.pods = map[string]*v1.Pod{}
		}
		w.pods[klog.KObj(pod).String()] = pod
	}
}

// addStale notes that a member may have lost its place, for the next flush.
func (w *wakes) addStale(n nomination) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = append(w.stale, n)
}

// flush has the members that were noted tried again. The caller does not hold the lock of the machine, and is not PreEnqueue.
func (p *Plugin) flush(ctx context.Context) {
	p.woken.mu.Lock()
	pods, stale := p.woken.pods, p.woken.stale
	p.woken.pods, p.woken.stale = nil, nil
	p.woken.mu.Unlock()
	for _, n := range stale {
		p.denominateMember(n)
	}
	if len(pods) > 0 {
		p.handle.Activate(klog.FromContext(ctx), pods)
	}
}
