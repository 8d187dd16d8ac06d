// Package recording keeps the snapshots of the last hour that a scheduler gave, for the time slider of the GPU map.
//
// It asks nobody for snapshots, and shows nothing: kubectl tandem ui and the scheduler add them, and package gpumap serves the page.
package recording

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// Keep is how long a snapshot is kept after it was followed by another one.
const Keep = time.Hour

// Recording is a source of the GPU map. Several goroutines may use it.
type Recording struct {
	title string
	live  bool
	most  int

	mu    sync.Mutex
	kept  []moment
	bytes int
}

// moment is a snapshot as compressed JSON.
type moment struct {
	second int64
	zipped []byte
}

// New returns an empty recording with a title for the page. Live says that snapshots will be added until the end. All snapshots together,
// compressed, take at most so many bytes, and the last one what it needs. One of 5,000 full nodes takes some 2.3 MB: with a small bound,
// the slider of a large cluster goes back less than an hour.
func New(title string, live bool, mostBytes int) *Recording {
	return &Recording{title: title, live: live, most: mostBytes}
}

// Add keeps the JSON of a snapshot that shows the state since a time.
func (r *Recording) Add(at time.Time, raw []byte) error {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(raw)
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("keep snapshot: %w", err)
	}
	r.AddCompressed(at, b.Bytes())
	return nil
}

// AddCompressed keeps the JSON of a snapshot, compressed by gzip, that shows the state since a time. One that is not later than the last
// takes its place: the scheduler has changed its state within the second, or another scheduler leads, whose clock is behind.
func (r *Recording) AddCompressed(at time.Time, zipped []byte) {
	added := moment{at.Unix(), zipped}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.kept); n > 0 && added.second <= r.kept[n-1].second {
		added.second = r.kept[n-1].second
		r.bytes -= len(r.kept[n-1].zipped)
		r.kept = r.kept[:n-1]
	}
	r.kept = append(r.kept, added)
	r.bytes += len(added.zipped)
	r.forget()
}

// forget removes what is too old or too much. The last snapshot stays.
func (r *Recording) forget() {
	n, oldest := 0, r.kept[len(r.kept)-1].second-int64(Keep/time.Second)
	for ; n < len(r.kept)-1 && (r.kept[n+1].second <= oldest || r.bytes > r.most); n++ {
		r.bytes -= len(r.kept[n].zipped)
	}
	r.kept = slices.Delete(r.kept, 0, n)
}

// Moments returns the times of the snapshots.
func (r *Recording) Moments(context.Context) (gpumap.Moments, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := gpumap.Moments{Title: r.title, Live: r.live, Seconds: make([]int64, 0, len(r.kept))}
	for i := range r.kept {
		m.Seconds = append(m.Seconds, r.kept[i].second)
	}
	return m, nil
}

// At returns the snapshot of one of the moments, gpumap.ErrNoMoment for others.
func (r *Recording) At(_ context.Context, second int64) (*snapshot.Snapshot, error) {
	zipped, ok := r.find(second)
	if !ok {
		return nil, gpumap.ErrNoMoment
	}
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, fmt.Errorf("read kept snapshot: %w", err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("read kept snapshot: %w", err)
	}
	return snapshotjson.Read(raw)
}

func (r *Recording) find(second int64) (zipped []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := slices.BinarySearchFunc(r.kept, second, func(m moment, second int64) int { return int(m.second - second) })
	if !ok {
		return nil, false
	}
	return r.kept[at].zipped, true
}
