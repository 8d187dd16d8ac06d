package reservation

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Preemptor names the pod or gang that pods are evicted for: a single pod by its UID, or a gang.
type Preemptor struct {
	Pod  vgpu.UID
	Gang Ref
}

// Compare orders preemptors: the gangs first.
func (p Preemptor) Compare(o Preemptor) int {
	return cmp.Or(cmp.Compare(p.Pod, o.Pod), p.Gang.Compare(o.Gang))
}

// PodRef names a pod. Pod is "namespace/name".
type PodRef struct {
	UID vgpu.UID
	Pod string
}

// PodPhase tells of the room that is kept for a single pod while its victims leave.
type PodPhase uint8

// The phases of a single pod for which pods are evicted.
const (
	// Roomless: no room is kept for the pod. Where its last preemption came to nothing, the pod pauses.
	Roomless PodPhase = iota
	// Leaving: room is kept for the pod, and victims are still there.
	Leaving
	// Cleared: room is kept for the pod, and all victims have left. The scheduler has a minute to place the pod.
	Cleared
)

// String returns the name of the phase.
func (p PodPhase) String() string { return [...]string{"Roomless", "Leaving", "Cleared"}[p] }

// podPhase holds what exists in a phase of a pod; nil is Roomless.
type podPhase interface{ phase() PodPhase }

type (
	// leavingRoom ends at a time: the last of the victims is gone then at the latest.
	leavingRoom struct {
		PodRoom
		until time.Time
	}
	// clearedRoom knows since when all victims were seen to be gone.
	clearedRoom struct {
		PodRoom
		since time.Time
	}
)

func (*leavingRoom) phase() PodPhase { return Leaving }
func (*clearedRoom) phase() PodPhase { return Cleared }

// PodRoom is the room that evictions make for a single pod.
type PodRoom struct {
	Place    vgpu.Assignment
	Priority int32
	// Victims are the pods whose room the pod waits for.
	Victims []PodRef
	// withdrawn are the victims that lost their place before they were bound, with the time of that: such a pod exists on.
	withdrawn map[vgpu.UID]time.Time
	// evictions made the room, 0 for none.
	evictions Evictions
}

// preemptor is what is remembered of a single pod for which pods are evicted, or were to be.
type preemptor struct {
	PodRef
	phase podPhase
	PodPauses
}

// PodPauses are when a pod is tried again, and what failed before.
type PodPauses struct {
	// Failures counts the preemptions in a row that came to nothing, Why says it of the last one, and Until is when the next one may
	// be tried.
	Failures int
	Why      string
	Until    time.Time
	// Retry is when the pod is tried again without an event of the cluster, zero for never. OnBudgets says that the pod is tried
	// when a PodDisruptionBudget allows more.
	Retry     time.Time
	OnBudgets bool
}

// room returns the room that is kept for the pod, nil for none.
func (p *preemptor) room() *PodRoom {
	if p == nil {
		return nil
	}
	switch r := p.phase.(type) {
	case *leavingRoom:
		return &r.PodRoom
	case *clearedRoom:
		return &r.PodRoom
	}
	return nil
}

// stillThere counts the victims that are still on the node. A victim that lost its place before it was bound counts for a moment, until
// the scheduler has forgotten it.
func (r *PodRoom) stillThere(there []vgpu.UID, now time.Time) int {
	count := 0
	for _, v := range r.Victims {
		if at, ok := r.withdrawn[v.UID]; ok && now.Sub(at) >= forgetting {
			continue
		}
		if slices.Contains(there, v.UID) {
			count++
		}
	}
	return count
}

const (
	// forgetting is how long the scheduler may take to forget a pod that lost its place before it was bound. Longer delays
	// preemptors that find no room although all victims have left, shorter gives up room that is about to be free.
	forgetting = 5 * time.Second
	// settling is how long a pod may stay unplaced once its victims are gone. Longer keeps room for a pod that something else
	// keeps out of the queue, shorter gives up room that a busy scheduler has not come to use.
	settling = time.Minute
	// longestPodPause bounds the pause after preemptions for a pod that came to nothing. It begins with firstPause and doubles.
	longestPodPause = 5 * time.Minute
	// evictionsFailedPause is the pause of a gang after an eviction failed.
	evictionsFailedPause = 15 * time.Second
)

// podPause returns the pause after so many preemptions in a row that came to nothing: 1s, 2s, 4s, … at most 5 minutes.
func podPause(failures int) time.Duration { return doubled(firstPause, longestPodPause, failures) }
