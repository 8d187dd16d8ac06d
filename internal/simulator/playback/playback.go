// Package playback gives the GPU map the moments of a simulated run. A moment is played from the run's log when somebody looks at
// it: the log is smaller than the snapshots.
package playback

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// mostMoments bounds the steps of the time slider. With more, neighbouring steps of a slider on a screen are less than three
// pixels apart.
const mostMoments = 240

// Run is a run as a source of the map.
type Run struct {
	moments gpumap.Moments

	mu      sync.Mutex // a history is played by one at a time
	history *sim.History
}

// Of returns the moments of a run of a scenario: all seconds in which something happens, or, where these are many, as many in
// equal distances.
func Of(name string, r *scenario.Run) *Run {
	return &Run{history: r.History, moments: gpumap.Moments{
		Title:   fmt.Sprintf("%s, policy %s, seed %d", name, r.Policy, r.Seed),
		Seconds: secondsOf(r.History.Samples),
	}}
}

// secondsOf returns the moments. A second shows what happened in the one before it.
func secondsOf(samples []sim.Sample) []int64 {
	all := []int64{0}
	for i := range samples {
		all = append(all, int64((samples[i].At+time.Second-1)/time.Second))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) <= mostMoments {
		return all
	}
	last, few := all[len(all)-1], make([]int64, 0, mostMoments)
	for i := range int64(mostMoments) {
		few = append(few, last*i/(mostMoments-1))
	}
	return slices.Compact(few)
}

// Moments returns the moments, from the start to the end of the run.
func (r *Run) Moments(context.Context) (gpumap.Moments, error) { return r.moments, nil }

// At plays the run up to one of the moments.
func (r *Run) At(_ context.Context, second int64) (*snapshot.Snapshot, error) {
	if _, known := slices.BinarySearch(r.moments.Seconds, second); !known {
		return nil, gpumap.ErrNoMoment
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.history.SnapshotAt(time.Duration(second) * time.Second)
}
