package reservation

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Preemptor names a preemptor: a single pod by its UID, or a gang.
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

// PodPhase describes the room that State keeps for a single pod while its victims leave.
type PodPhase uint8

// The phases of a single pod that is a preemptor.
const (
	// Roomless: State keeps no room for the pod. If its last preemption came to nothing, the pod pauses.
	Roomless PodPhase = iota
	// Leaving: State keeps room for the pod, and victims are still there.
	Leaving
	// Cleared: State keeps room for the pod, and all victims have left. The scheduler has a minute to place the pod.
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
	// clearedRoom knows since when all victims are gone.
	clearedRoom struct {
		PodRoom
		since time.Time
	}
)

func (*leavingRoom) phase() PodPhase { return Leaving }
func (*clearedRoom) phase() PodPhase { return Cleared }

// PodRoom is the room that evictions make for a single pod.
type PodRoom struct {
	Place vgpu.Assignment
	// Host is what the pod takes of the node's host.
	Host     vgpu.Room
	Priority int32
	// Victims are the pods whose room the pod waits for.
	Victims []PodRef
	// withdrawn are the victims that lost their place before their binds, with the time of that: such a pod exists on.
	withdrawn map[vgpu.UID]time.Time
	// evictions made the room, 0 for none.
	evictions Evictions
}

// preemptor is what State remembers of a single pod for which the scheduler evicts pods, or wanted to.
type preemptor struct {
	PodRef
	phase podPhase
	PodPauses
}

// PodPauses are when the scheduler tries a pod again, and what failed before.
type PodPauses struct {
	// Failures counts the preemptions in a row that came to nothing, Why is the reason of the last one, and Until is when the
	// next one may begin.
	Failures int
	Why      string
	Until    time.Time
	// Retry is when the scheduler tries the pod again without an event of the cluster, zero for never. OnBudgets says that it
	// tries the pod when a PodDisruptionBudget allows more.
	Retry     time.Time
	OnBudgets bool
}

// room returns the room that State keeps for the pod, nil for none.
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

// stillThere counts the victims that are still on the node. A victim that lost its place before its bind counts for a moment,
// until the scheduler's cache has dropped it.
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
	// forgetting is how long the scheduler's cache may keep a pod that lost its place before its bind. Longer delays preemptors
	// that find no room although all victims have left, shorter gives up room that is about to be free.
	forgetting = 5 * time.Second
	// settling is how long a pod may stay unplaced once its victims are gone. Longer keeps room for a pod that something else
	// keeps out of the queue, shorter gives up room that a busy scheduler has not come to use.
	settling = time.Minute
	// longestPodPause bounds the pause after preemptions for a pod that came to nothing. The first pause is firstPause, and
	// each failure doubles it.
	longestPodPause = 5 * time.Minute
	// evictionsFailedPause is the pause of a gang after an eviction failed.
	evictionsFailedPause = 15 * time.Second
)

// podPause returns the pause after so many preemptions in a row that came to nothing: 1s, 2s, 4s, … at most 5 minutes.
func podPause(failures int) time.Duration { return doubled(firstPause, longestPodPause, failures) }
