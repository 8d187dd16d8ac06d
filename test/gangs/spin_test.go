package gangs

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// mostTries is how often the scheduler may try one pod or group at one instant: once for each of the others that end then, say.
// More than that has no end.
const mostTries = 200

// next is how a scheduler takes what to try next.
type next = func(klog.Logger) (framework.QueuedEntityInfo, error)

// watched counts what the scheduler tries without time passing. One that spins is noted, and slowed down, so that the clock
// goes on.
func (a *api) watched(ctx context.Context, take next) next {
	var at time.Time
	tries := map[string]int{}
	return func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		entity, err := take(logger)
		if entity == nil {
			return entity, err
		}
		if now := time.Now(); now != at {
			at = now
			clear(tries)
		}
		name := entity.GetNamespace() + "/" + entity.GetName()
		if tries[name]++; tries[name] > mostTries {
			a.mu.Lock()
			a.spins = name
			a.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		return entity, err
	}
}
