package gpushare

import (
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// arrivals are the usual requests as the plugin learns them from the pods that arrive: a Learner with a clock and a lock.
type arrivals struct {
	now func() time.Time

	mu      sync.Mutex
	learner *fragmentation.Learner
}

func newArrivals(halfLife time.Duration, now func() time.Time) *arrivals {
	return &arrivals{now: now, learner: fragmentation.NewLearner(int64(halfLife / time.Second))}
}

// observe counts a pod of a namespace. The caller does so once for each.
func (a *arrivals) observe(namespace string, k fragmentation.Kind, created time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.learner.Observe(namespace, k, created.Unix())
}

// usual returns the mix of the pods that arrived so far.
func (a *arrivals) usual() *fragmentation.Mix {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.learner.Usual(a.now().Unix())
}
