package snapshots

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

const (
	// shortestPause is the least time between two looks at the state, and longestPause the most. Shorter lets callers who poll cost
	// the scheduler more; longer shows them an older state.
	shortestPause = time.Second
	longestPause  = time.Minute
	// share is the part of one CPU that snapshots may take, one in so many: a snapshot that took 50 ms is shown for 5 s, so that
	// the scheduler loses no more than 1 % of its throughput, whatever the size of the cluster. Beyond longestPause it loses more.
	share = 100
	// mostViews bounds the views that are kept: of 5,000 nodes that are full of pods each takes 45 MB (BenchmarkSnapshot).
	mostViews = 4
)

// store keeps the last snapshot with its views. It makes one only when somebody asks.
type store struct {
	build   func() *snapshot.Snapshot
	now     func() time.Time
	metrics *metricSet

	mu     sync.Mutex
	writer snapshotjson.Writer
	last   *published
	// next is when the state may be looked at again.
	next time.Time
}

// published is one snapshot. Its fields do not change, but views, which store.mu guards.
type published struct {
	*snapshot.Snapshot
	namespaces []string
	version    string
	// raw is the JSON with all names.
	raw   []byte
	views []*view
	// looked is when the state was last as it is here.
	looked time.Time
}

// view is a snapshot as JSON, for callers who may see the same namespaces. A view is immutable.
type view struct {
	key  string
	etag string
	raw  []byte
	// zipped returns the same, compressed when somebody takes that for the first time.
	zipped func() []byte
}

// current returns the last snapshot, made anew where that is due. Callers wait for each other, so that many cost as one.
func (c *store) current() (*published, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.now()
	if c.last != nil && began.Before(c.next) {
		return c.last, nil
	}
	s := c.build()
	raw, err := c.writer.Write(s)
	if err != nil {
		return nil, err
	}
	if version := hashOf(raw); c.last == nil || c.last.version != version {
		s.At = began.UTC().Truncate(time.Second)
		c.last = &published{Snapshot: s, namespaces: s.Namespaces(), version: version, raw: stamped(raw, s.At)}
		c.metrics.size.Set(float64(len(raw)))
	}
	c.last.looked = began
	took := c.now().Sub(began)
	c.metrics.built(took)
	c.next = c.now().Add(max(shortestPause, min(share*took, longestPause)))
	return c.last, nil
}

// spend puts the next look off for the time that a view took.
func (c *store) spend(took time.Duration) {
	c.next = c.next.Add(share * took)
	if most := c.now().Add(longestPause); c.next.After(most) {
		c.next = most
	}
}

// of returns the view of a snapshot for callers who see some of its namespaces, in order, or all.
func (c *store) of(p *published, visible []string, all bool) (*view, error) {
	key := "*"
	if !all {
		key = strings.Join(visible, ",")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range p.views {
		if v.key == key {
			return v, nil
		}
	}
	began, raw := c.now(), p.raw
	if !all {
		var err error
		raw, err = snapshotjson.Write(p.Redact(func(namespace string) bool {
			_, sees := slices.BinarySearch(visible, namespace)
			return sees
		}))
		if err != nil {
			return nil, err
		}
	}
	etag := p.version
	if !all {
		etag = hashOf(raw)
	}
	v := &view{key: key, etag: etag, raw: raw, zipped: sync.OnceValue(func() []byte {
		began := c.now()
		zipped := compressed(raw)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.spend(c.now().Sub(began))
		return zipped
	})}
	p.views = append(p.views, v)
	if len(p.views) > mostViews {
		p.views = slices.Delete(p.views, 0, 1)
	}
	c.spend(c.now().Sub(began))
	return v, nil
}

// stamped returns the JSON of a snapshot without a time with one, so that it is not written twice. No value before that of at is
// of anything in the cluster.
func stamped(raw []byte, at time.Time) []byte {
	field := func(t time.Time) []byte { return []byte(`"at":"` + t.Format(time.RFC3339) + `"`) }
	return bytes.Replace(raw, field(time.Time{}), field(at), 1)
}

func hashOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// compressed returns a JSON by gzip.
func compressed(raw []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is legal, and the buffer takes all
	_, _ = w.Write(raw)
	_ = w.Close()
	return b.Bytes()
}

// age returns how long ago the state was looked at, and false where it never was.
func (c *store) age() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return 0, false
	}
	return c.now().Sub(c.last.looked), true
}
