package snapshot_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

var begin = time.Unix(1e6, 0)

func drawEnds(t *rapid.T) *snapshot.Ends {
	e := &snapshot.Ends{At: begin, Known: rapid.IntRange(0, 9).Draw(t, "known")}
	for range snapshot.EndParts() {
		e.AfterSeconds = append(e.AfterSeconds, rapid.Int64Range(0, 1e6).Draw(t, "seconds"))
	}
	slices.Sort(e.AfterSeconds)
	return e
}

// The numbers of the comment: 10 % within 100 s and 25 % within 400 s make 15 % within 200 s. Beyond the last number, half of the rest takes
// twice as long.
func TestEndsWithin(t *testing.T) {
	e := &snapshot.Ends{At: begin, AfterSeconds: []int64{10, 100, 400, 500, 600, 700, 1000}}
	for seconds, want := range map[int]float64{-5: 0, 0: 0, 5: .005, 10: .01, 100: .1, 200: .15, 400: .25, 500: .5, 1000: .99, 2000: .995, 4000: .9975} {
		if got := e.Within(time.Duration(seconds) * time.Second); math.Abs(got-want) > 1e-12 {
			t.Errorf("within %d s it is %v, want %v", seconds, got, want)
		}
	}
	// When 100 pods have run for 400 s, 25 have ended: half of the others end within 66.7 % of the time from 50 to 75 %.
	if got := e.Left(.5, begin.Add(400*time.Second)); got != 150*time.Second {
		t.Errorf("half of the rest is left for %v, want 2m30s", got)
	}
}

// Left returns the time at which a probability is reached, given that the pod runs, and it grows with the probability. No time is below
// zero.
func TestEndsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, age := drawEnds(t), time.Duration(rapid.Int64Range(0, 2e6).Draw(t, "age"))*time.Second
		p := rapid.Float64Range(0, .9999).Draw(t, "p")
		left := e.Left(p, begin.Add(age))
		if left < 0 || left > e.Left(p+.00005, begin.Add(age)) {
			t.Fatalf("left are %v at %v, and %v a bit above it", left, p, e.Left(p+.00005, begin.Add(age)))
		}
		if left > 80_000*time.Hour { // what is left is bounded
			return
		}
		passed := e.Within(age)
		before, after := e.Within(age+left-time.Millisecond), e.Within(age+left+time.Millisecond)
		if want := passed + (1-passed)*p; before > want+1e-9 || after < want-1e-9 {
			t.Fatalf("at %v left it is %v to %v, want %v", left, before, after, want)
		}
	})
}

func TestEndsAreChecked(t *testing.T) {
	of := func(change func(e *snapshot.Ends)) error {
		e := &snapshot.Ends{At: begin, AfterSeconds: []int64{0, 0, 1, 2, 3, 4, 5}}
		change(e)
		n := snapshot.Node{Name: "n", Devices: []snapshot.Device{{ID: "g", Model: "T4", Slots: 10, MemoryBytes: 10, Healthy: true}}}
		share := snapshot.Container{Name: "c", Kind: "app", Devices: []vgpu.DeviceID{"g"}, Slots: 1, MemoryBytes: 1, ComputeLimit: 100, MemoryLimitBytes: 1}
		n.Pods = []snapshot.Pod{{Name: snapshot.Name{Name: "p", UID: "u"}, Ends: e, Containers: []snapshot.Container{share}}}
		s := &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: []snapshot.Node{n}}
		return s.Check()
	}
	if err := of(func(*snapshot.Ends) {}); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(e *snapshot.Ends){
		"nodes[0].pods[0].ends.afterSeconds: 6 numbers, legal are 7":      func(e *snapshot.Ends) { e.AfterSeconds = e.AfterSeconds[1:] },
		"nodes[0].pods[0].ends.afterSeconds: [-1 0 1 2 3 4 5], legal are": func(e *snapshot.Ends) { e.AfterSeconds[0] = -1 },
		"nodes[0].pods[0].ends.afterSeconds: [0 0 1 2 3 4 3], legal are":  func(e *snapshot.Ends) { e.AfterSeconds[6] = 3 },
		"nodes[0].pods[0].ends.known: -1, legal is 0 or more":             func(e *snapshot.Ends) { e.Known = -1 },
	} {
		if err := of(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
