package gpushare

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/pkg/lifetime"
)

// hasEnded selects the pods that have ended. The scheduler's own informer leaves these out, and does not say how a pod ended.
var hasEnded = fmt.Sprintf("status.phase!=%s,status.phase!=%s,status.phase!=%s", v1.PodPending, v1.PodRunning, v1.PodUnknown)

// endedPod is what the informer keeps of a pod that ended: a few hundred bytes, of at most as many pods as the API server keeps.
type endedPod struct {
	metav1.ObjectMeta
	// counts says that seen and end are known.
	counts bool
	seen   lifetime.Observation
	end    time.Time
}

// condenseEnded turns a pod into the part that the informer keeps.
func (p *Plugin) condenseEnded(object any) (any, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	e := &endedPod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
	if e.seen, e.end, e.counts = observationOf(pod, p.modelOf(pod)); e.counts {
		e.seen.Projected = p.lifetimes.judged(pod.UID, e.seen.Length)
	}
	return e, nil
}

// watchEnded learns how long pods run from those that ended, until ctx ends: first from those that the API server still has, in the order of
// their ends. So a restart loses what rests on pods that are deleted by then. The function does not wait.
func (p *Plugin) watchEnded(ctx context.Context) error {
	if p.lifetimes == nil {
		return nil
	}
	informer := coreinformers.NewFilteredPodInformer(p.handle.ClientSet(), metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = hasEnded
	})
	if err := informer.SetTransform(p.condenseEnded); err != nil {
		return err
	}
	order := &byEnd{learn: func(e *endedPod) { p.learnEnd(klog.FromContext(ctx), e) }}
	registration, err := informer.AddEventHandlerWithOptions(order.events(), handlerOptions(ctx))
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	go func() {
		if awaitSynced(ctx, registration) {
			order.open()
		}
	}()
	return nil
}

// byEnd passes pods on that ended: until open, it keeps them, for a list has them in the order of their names.
type byEnd struct {
	learn func(*endedPod)

	mu     sync.Mutex
	opened bool
	first  []*endedPod
}

// events count each pod once, when it is first seen after its end.
func (b *byEnd) events() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if e, ok := object.(*endedPod); ok && e.counts {
				b.add(e)
			}
		},
		UpdateFunc: func(old, updated any) {
			before, okBefore := old.(*endedPod)
			e, ok := updated.(*endedPod)
			if okBefore && ok && e.counts && (!before.counts || before.UID != e.UID) {
				b.add(e)
			}
		},
	}
}

func (b *byEnd) add(e *endedPod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.opened {
		b.first = append(b.first, e)
		return
	}
	b.learn(e)
}

// open passes on what was kept, the first ends first, and from now on each pod at once.
func (b *byEnd) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortFunc(b.first, func(x, y *endedPod) int { return cmp.Or(x.end.Compare(y.end), cmp.Compare(x.UID, y.UID)) })
	for _, e := range b.first {
		b.learn(e)
	}
	b.first, b.opened = nil, true
}
