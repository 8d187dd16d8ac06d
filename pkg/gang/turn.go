package gang

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Never is the end, as Cluster.Ends tells it, of a pod that does not end by itself.
const Never int64 = math.MaxInt64

// PassedOver reports whether the room that a gang waits for has changed hands since it began to wait: none of the pods in its
// way was there then. That is the moment to keep room for it (see Drain): it has been passed over once, and ordinary turnover
// did not make the room. Where pods run for at most L, a gang so waits at most L for the drain to begin and at most L for it
// to end, whatever L is; where jobs run for hours, devices do not lie idle for hours because one gang waits for a minute.
//
// Since is when the gang began to wait, and started tells when a pod got its place, both in Unix seconds: a pod of the same second
// was there. 0 is taken for now.
// A gang that nobody is in the way of is not passed over.
func (r *Refusal) PassedOver(since int64, started func(uid vgpu.UID, pod string) int64) bool {
	for _, l := range r.Leavers {
		if at := started(l.UID, l.Pod); at != 0 && at <= since {
			return false
		}
	}
	return len(r.Leavers) > 0
}
