package playback_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/internal/simulator/playback"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/must"
)

func play(t *testing.T, name string) *scenario.Run {
	t.Helper()
	s, err := scenario.Read(filepath.Join("..", "..", "..", "examples", name))
	must.OK(t, err)
	r, err := s.Play(nil)
	must.OK(t, err)
	return &r.Runs[0]
}

// TestRun: every moment has the picture of the run at that time, and the last one that of its end.
func TestRun(t *testing.T) {
	run := play(t, "mixed.yaml")
	source := playback.Of("mixed", run)
	moments, err := source.Moments(context.Background())
	if err != nil || moments.Title != "mixed, policy tandem, seed 1" || moments.Live {
		t.Fatalf("%+v, %v", moments, err)
	}
	for _, second := range moments.Seconds {
		got, err := source.At(context.Background(), second)
		must.OK(t, err)
		want, err := run.History.SnapshotAt(time.Duration(second) * time.Second)
		must.OK(t, err)
		if diff := cmp.Diff(want, got); diff != "" || got.At.Unix() != second {
			t.Fatalf("at %d, shown as %v (-want +got):\n%s", second, got.At, diff)
		}
		if _, err := gpumap.Of(got); err != nil {
			t.Fatal(err)
		}
	}
	if first, last := moments.Seconds[0], moments.Seconds[len(moments.Seconds)-1]; first != 0 || last != end(run.History.Samples) {
		t.Errorf("moments from %d to %d, the run ends at %d", first, last, end(run.History.Samples))
	}
	if _, err := source.At(context.Background(), 17); !errors.Is(err, gpumap.ErrNoMoment) {
		t.Errorf("a time that is no moment: %v", err)
	}
}

// end returns the last second in which something happens.
func end(samples []sim.Sample) int64 { return int64(samples[len(samples)-1].At / time.Second) }

// TestMoments: a run with few events has a moment for each, one with many has as many in equal distances as a slider shows.
func TestMoments(t *testing.T) {
	for _, tc := range []struct {
		events, most int
		every        time.Duration
	}{{0, 1, 0}, {3, 4, 1500 * time.Millisecond}, {5000, 240, 700 * time.Millisecond}, {100, 52, 500 * time.Millisecond}} {
		t.Run(fmt.Sprint(tc.events), func(t *testing.T) {
			run := &scenario.Run{History: &sim.History{}}
			for i := range tc.events {
				run.History.Samples = append(run.History.Samples, sim.Sample{At: time.Duration(i+1) * tc.every})
			}
			moments, err := playback.Of("x", run).Moments(context.Background())
			must.OK(t, err)
			got := moments.Seconds
			last := (time.Duration(tc.events)*tc.every + time.Second - 1) / time.Second
			if got[0] != 0 || got[len(got)-1] != int64(last) || !slices.IsSorted(got) || len(got) != len(slices.Compact(slices.Clone(got))) {
				t.Errorf("moments %v, want 0 to %d, each once", got, last)
			}
			if len(got) > tc.most || tc.events == 5000 && len(got) != tc.most {
				t.Errorf("%d moments, want at most %d", len(got), tc.most)
			}
		})
	}
}
