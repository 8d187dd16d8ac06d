package gpushare

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// mixPause is the longest time that an arrival stays out of the mix while pods are scheduled. Every new mix has all
	// nodes scored anew, some milliseconds at 5,000 nodes.
	mixPause = time.Minute
	// materialPart makes arrivals count at once when they are this part of the pods that were counted before. A larger
	// number follows a cluster that starts to fill more closely, for more scoring.
	materialPart = 8
)

// arrivals learns the usual requests from the pods that arrive. What a pod counts depends on when it was created, so that
// the pods that are there when the scheduler starts count as if it had seen them come; those that were gone by then count
// no more.
type arrivals struct {
	step time.Duration
	now  func() time.Time

	mu      sync.Mutex
	counter fragmentation.Counter
	// mix that was made last, when, and of how many pods; fresh is the number of those that came since.
	mix         *fragmentation.Mix
	made        time.Time
	used, fresh int64
}

func newArrivals(halfLife time.Duration, now func() time.Time) *arrivals {
	return &arrivals{step: halfLife / fragmentation.StepsPerHalfLife, now: now}
}

// observe counts a pod. The caller does so once for each.
func (a *arrivals) observe(k fragmentation.Kind, created time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counter.Observe(k, a.stepOf(created))
	a.fresh++
}

func (a *arrivals) stepOf(t time.Time) int64 { return t.Unix() / int64(a.step/time.Second) }

// usual returns the mix: a new one where arrivals changed it materially, or where there are some and the last was made
// mixPause ago.
func (a *arrivals) usual() *fragmentation.Mix {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.mix != nil && (a.fresh == 0 || a.fresh*materialPart < a.used && now.Sub(a.made) < mixPause) {
		return a.mix
	}
	all, err := a.counter.Mix(a.stepOf(now))
	if err != nil {
		panic(fmt.Sprintf("make the mix of countable requests: %v", err))
	}
	a.mix, a.made, a.used, a.fresh = balanced(all), now, a.used+a.fresh, 0
	return a.mix
}

// balanced returns the mix with the pods without vGPUs as one kind that weighs at most as much as all others: where nearly
// all pods need no GPU, nodes would hardly differ by the rest, and the typical ones would be those alone.
func balanced(all *fragmentation.Mix) *fragmentation.Mix {
	kinds, none := make([]fragmentation.Kind, 0, len(all.Kinds())), fragmentation.Kind{}
	for _, k := range all.Kinds() {
		if k.Slots == 0 {
			none.Weight += k.Weight
		} else {
			kinds = append(kinds, k)
		}
	}
	if none.Weight = min(none.Weight, all.Weight()-none.Weight); none.Weight > 0 {
		kinds = append(kinds, none)
	}
	return mixOf(kinds)
}

// mixOf returns the mix of kinds of another.
func mixOf(kinds []fragmentation.Kind) *fragmentation.Mix {
	m, err := fragmentation.NewMix(kinds)
	if err != nil {
		panic(fmt.Sprintf("make the mix of %d usual requests: %v", len(kinds), err))
	}
	return m
}

// countable reports whether a mix may have the kind.
func countable(k fragmentation.Kind) bool {
	k.Weight = 1
	_, err := fragmentation.NewMix([]fragmentation.Kind{k})
	return err == nil
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
