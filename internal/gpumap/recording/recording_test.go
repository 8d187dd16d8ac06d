package recording

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// add keeps a snapshot of a time after noon, in which a node has a name.
func add(t *testing.T, r *Recording, after time.Duration, node string) {
	t.Helper()
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: noon.Add(after), Nodes: []snapshot.Node{{Name: node, Devices: []snapshot.Device{}}}}
	raw, err := snapshotjson.Write(s)
	if err == nil {
		err = r.Add(s.At, raw)
	}
	must.OK(t, err)
}

// names returns the names of the nodes at all moments.
func names(t *testing.T, r *Recording) (all []string) {
	t.Helper()
	m, err := r.Moments(t.Context())
	must.OK(t, err)
	for _, second := range m.Seconds {
		s, err := r.At(t.Context(), second)
		must.OK(t, err)
		all = append(all, s.Nodes[0].Name)
	}
	return all
}

// Each snapshot can be seen until an hour after it was followed by the next one; the last one always. A state without changes for hours is one
// moment.
func TestKeepsAnHour(t *testing.T) {
	r := New("a cluster", true, 1<<30)
	if got := names(t, r); len(got) != 0 {
		t.Errorf("an empty recording has %v", got)
	}
	for _, x := range []struct {
		after time.Duration
		node  string
		want  []string
	}{
		{0, "a", []string{"a"}},
		{5 * time.Minute, "b", []string{"a", "b"}},
		{30 * time.Minute, "c", []string{"a", "b", "c"}},
		{64 * time.Minute, "d", []string{"a", "b", "c", "d"}}, // a was the state until 59 minutes ago
		{65 * time.Minute, "e", []string{"b", "c", "d", "e"}},
		{10 * time.Hour, "f", []string{"e", "f"}}, // e was the state until now
	} {
		add(t, r, x.after, x.node)
		if got := names(t, r); !slices.Equal(got, x.want) {
			t.Errorf("after %v the recording has %v, want %v", x.after, got, x.want)
		}
	}
	if _, err := r.At(t.Context(), noon.Unix()); !errors.Is(err, gpumap.ErrNoMoment) {
		t.Errorf("a moment that is forgotten: %v", err)
	}
	if m, _ := r.Moments(t.Context()); m.Title != "a cluster" || !m.Live {
		t.Errorf("%+v", m)
	}
}

// A snapshot of the same second, or of a scheduler whose clock is behind, takes the place of the last one.
func TestTimesAscend(t *testing.T) {
	r := New("", true, 1<<30)
	add(t, r, 0, "a")
	add(t, r, time.Minute, "b")
	add(t, r, time.Minute, "c")
	add(t, r, 30*time.Second, "d")
	add(t, r, 2*time.Minute, "e")
	if got := names(t, r); !slices.Equal(got, []string{"a", "d", "e"}) {
		t.Errorf("the recording has %v", got)
	}
}

// Snapshots take no more memory than is allowed, and the last one stays.
func TestBoundsItsMemory(t *testing.T) {
	one := New("", true, 1<<30)
	add(t, one, 0, "n0")
	r := New("", true, 3*one.bytes+one.bytes/2)
	add(t, r, 0, "n0")
	for i := 1; i < 20; i++ {
		add(t, r, time.Duration(i)*time.Second, fmt.Sprint("n", i%10))
		sum := 0
		for _, m := range r.kept {
			sum += len(m.zipped)
		}
		if sum != r.bytes || sum > r.most || len(r.kept) != min(i+1, 3) {
			t.Fatalf("%d snapshots take %d bytes, counted are %d", len(r.kept), sum, r.bytes)
		}
	}
	r.most = 1
	add(t, r, time.Minute, "last")
	if got := names(t, r); !slices.Equal(got, []string{"last"}) {
		t.Errorf("the recording has %v", got)
	}
}
