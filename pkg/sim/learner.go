package sim

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// halfLife is the time after which a pod that arrived counts half among the usual ones: the default of the scheduler.
	halfLife = 24 * time.Hour
	// pause is the longest time that an arrival stays out of the usual requests. A new mix has all nodes measured and scored
	// anew; the scheduler, which has time between two pods, waits a minute.
	pause = time.Hour
	// material has arrivals count at once when they are this part of the pods that were counted before, an eighth, as in
	// the scheduler: a cluster that starts to fill is followed closely.
	material = 8
)

// learner learns the usual requests from the pods that arrive, as the scheduler does.
type learner struct {
	counter     fragmentation.Counter
	made        time.Duration
	used, fresh int64
}

// observe counts a pod that arrives, and returns a new mix where it is time for one, else nil.
func (l *learner) observe(r *vgpu.Request, now time.Duration) (*fragmentation.Mix, error) {
	l.counter.Observe(fragmentation.KindOf(r), stepOf(now))
	if l.fresh++; l.fresh*material < l.used && now-l.made < pause {
		return nil, nil
	}
	l.made, l.used, l.fresh = now, l.used+l.fresh, 0
	return l.counter.Mix(stepOf(now))
}

func stepOf(at time.Duration) int64 { return int64(at / (halfLife / fragmentation.StepsPerHalfLife)) }
