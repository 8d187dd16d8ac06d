package why

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// Alike reports whether two single pods that wait have the same answer: they ask for the same, the last attempts refused them alike,
// and the scheduler keeps room for neither.
func Alike(s *snapshot.Snapshot, a, b *snapshot.Pending) bool {
	return a.Gang == nil && b.Gang == nil && a.Workload == b.Workload && a.Namespace == b.Namespace && len(a.Gates)+len(b.Gates) == 0 &&
		sameRequest(a.Request, b.Request) && sameRefusal(a.Refused, b.Refused) && !hasRoom(s, a) && !hasRoom(s, b)
}

func sameRequest(a, b *snapshot.Request) bool {
	if a == nil || b == nil {
		return false
	}
	return slices.Equal(a.Containers, b.Containers) && slices.Equal(a.Models, b.Models) && a.Priority == b.Priority &&
		a.EndsAfterSeconds == b.EndsAfterSeconds && a.ComputeLimit == b.ComputeLimit && a.MemoryLimitBytes == b.MemoryLimitBytes &&
		a.MaxSlowdownMilli == b.MaxSlowdownMilli && a.MilliCPU == b.MilliCPU && a.MemoryBytes == b.MemoryBytes
}

// sameRefusal compares what an answer uses of the last attempts.
func sameRefusal(a, b *snapshot.Refused) bool {
	if a == nil || b == nil {
		return a == b
	}
	broken := func(r *snapshot.Refused) string {
		if p := brokenPromise(&snapshot.Pending{Refused: r}); p != nil {
			return p.String()
		}
		return ""
	}
	return slices.Equal(a.Nodes, b.Nodes) && broken(a) == broken(b)
}

// hasRoom reports whether the scheduler binds a pod now, keeps room for it, or evicts others for it.
func hasRoom(s *snapshot.Snapshot, p *snapshot.Pending) bool {
	return slices.ContainsFunc(s.Preemptions, func(o snapshot.Preemption) bool { return o.Pod != nil && o.Pod.UID == p.UID }) ||
		slices.ContainsFunc(s.Nodes, func(n snapshot.Node) bool {
			return slices.ContainsFunc(n.Holds, func(h snapshot.Hold) bool { return h.UID == p.UID }) ||
				slices.ContainsFunc(n.Pods, func(o snapshot.Pod) bool { return o.UID == p.UID })
		})
}
