package gpushare

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
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

// givenMix returns the mix that the arguments give.
func givenMix(requests []config.TypicalRequest) (*fragmentation.Mix, error) {
	kinds := make([]fragmentation.Kind, len(requests))
	for i := range requests {
		r := &requests[i]
		kinds[i] = fragmentation.Kind{
			MilliCPU: r.CPU.MilliValue(), Memory: vgpu.Bytes(r.Memory.Value()), Slots: vgpu.Slots(r.VGPU),
			Models: strings.Join(slices.Sorted(slices.Values(r.Models)), "|"), Weight: r.Weight,
		}
	}
	return fragmentation.NewMix(kinds)
}
