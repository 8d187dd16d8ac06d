package elastic

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Reserved is capacity that others need from a time on. Jobs shrink for it in time (Config.GiveBack). Until then it is lent, where the policy
// weighs what a change costs: a running job grows into it if that repays before the others need it. No job starts in it.
type Reserved struct {
	// Model of the devices, "" for any.
	Model string
	// Amount of devices.
	Amount vgpu.MilliGPU
	// From is the Unix time in seconds from which the others need it. 0 stands for the present.
	From int64
	// Idle takes capacity that is free, and none that a job has: jobs do not grow into it, and none shrinks for it.
	Idle bool
}

// Need is how many replicas others need from a time on, in Unix seconds.
type Need struct {
	Replicas int
	From     int64
}

// ReservedFor returns what needs reserve beyond the replicas that there should be now: what each one adds to those before it, in the order of
// time. The needs may be in any order. One replica takes so much of a device.
//
// Example: 2 replicas now, 4 from 12:10 on and 5 from 13:00 on, half a device each: one device from 12:10 on and half a device from 13:00 on.
func ReservedFor(model string, one vgpu.MilliGPU, now int, needs []Need) (all []Reserved) {
	most := now
	for _, n := range slices.SortedFunc(slices.Values(needs), func(a, b Need) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Replicas, b.Replicas)) }) {
		if more := n.Replicas - most; more > 0 {
			most = n.Replicas
			all = append(all, Reserved{Model: model, Amount: vgpu.MilliGPU(more) * one, From: n.From})
		}
	}
	return all
}
