package gangs

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// mostTries is how often the scheduler may try pods at one instant. More than that has no end.
const mostTries = 500

// next is how a scheduler takes what to try next.
type next = func(klog.Logger) (framework.QueuedEntityInfo, error)

// watched counts what the scheduler tries without time passing. One that spins is noted, and slowed down, so that the clock
// goes on.
func (a *api) watched(ctx context.Context, take next) next {
	var at time.Time
	tries := 0
	return func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		entity, err := take(logger)
		if now := time.Now(); now != at {
			at, tries = now, 0
		}
		if tries++; tries > mostTries && entity != nil {
			a.mu.Lock()
			a.spins = entity.GetNamespace() + "/" + entity.GetName()
			a.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		return entity, err
	}
}
