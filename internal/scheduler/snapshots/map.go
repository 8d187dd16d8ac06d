package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/guarded"
	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/internal/gpumap/recording"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// MapPath is where the GPU map is served.
const MapPath = "/map/"

const (
	// mapPause is the time from one look for the slider to the next. Shorter shows more steps, and fills mapBytes sooner.
	mapPause = 10 * time.Second
	// mapBytes bounds the memory of the slider's snapshots, compressed: an hour of some 300 full nodes that change at each look. For
	// 5,000 it is about half an hour, since these are looked at once a minute.
	mapBytes = 64 << 20
)

// gpuMap serves the GPU map to those who may get the snapshot. As a source of the page it has the snapshots of the last hour, each
// as the caller may see it by the present rights.
type gpuMap struct {
	*handler
	page http.Handler
	kept *recording.Recording
	// turn lets one answer be made at a time: readers of the map take at most one CPU from the scheduling.
	turn chan struct{}

	// mu has the states kept in the order in which they were.
	mu sync.Mutex
}

func newMap(h *handler) *gpuMap {
	m := &gpuMap{handler: h, kept: recording.New("scheduler", true, mapBytes), turn: make(chan struct{}, 1)}
	m.page = http.StripPrefix(strings.TrimSuffix(MapPath, "/"), gpumap.Handler(m))
	return m
}

// follow keeps a snapshot each mapPause until the context ends, while this scheduler schedules.
func (m *gpuMap) follow(ctx context.Context) {
	ticker := time.NewTicker(mapPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		leads, _, err := m.leads(ctx)
		if leads {
			err = m.record()
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Keeping a snapshot for the GPU map failed")
		}
	}
}

// record keeps the present snapshot. One that is kept already has the same time, and takes its own place.
func (m *gpuMap) record() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.store.current()
	if err != nil {
		return err
	}
	v, err := m.store.of(p, nil, true)
	if err != nil {
		return err
	}
	m.kept.AddCompressed(p.At, v.zipped())
	return nil
}

// ServeHTTP serves the page and its data to callers who may get the snapshot.
func (m *gpuMap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := request.UserFrom(r.Context())
	if !ok {
		m.fail(w, r, errors.New("serve map: the request has no user"))
		return
	}
	may, err := mayGet(r.Context(), who, m.asks)
	switch {
	case err != nil:
		m.fail(w, r, err)
		return
	case !may:
		http.Error(w, fmt.Sprintf("the map shows the snapshot: it wants the right to get %s", Path), http.StatusForbidden)
		return
	}
	if !m.answers(w, r) {
		return
	}
	select {
	case m.turn <- struct{}{}:
		answer := m.made(r)
		answer.send(w) // a slow reader keeps nobody waiting
	case <-r.Context().Done():
	}
}

// made makes an answer, and ends the turn.
func (m *gpuMap) made(r *http.Request) *answer {
	defer func() { <-m.turn }()
	a := &answer{header: http.Header{}, code: http.StatusOK}
	m.page.ServeHTTP(a, r)
	return a
}

// answer is one that is complete before it is sent.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // the reader has gone
}

// mayGet reports whether a caller may get the snapshot.
func mayGet(ctx context.Context, who user.Info, asks guarded.Authorizer) (bool, error) {
	decision, _, err := asks.Authorize(ctx, authorizer.AttributesRecord{User: who, Verb: "get", Path: Path})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the caller may get %s: %w", Path, err)
	}
	return false, nil
}

// errNoMap is what a reader of the page is told of a failure. The log has the reason.
var errNoMap = errors.New("the scheduler cannot serve the map now; its log says why")

// Moments returns the times of the last hour, and the present.
func (m *gpuMap) Moments(ctx context.Context) (gpumap.Moments, error) {
	if err := m.record(); err != nil {
		klog.FromContext(ctx).Error(err, "Serving the GPU map failed")
		return gpumap.Moments{}, errNoMap
	}
	return m.kept.Moments(ctx)
}

// At returns the snapshot of a moment as the caller may see it.
func (m *gpuMap) At(ctx context.Context, second int64) (*snapshot.Snapshot, error) {
	s, err := m.kept.At(ctx, second)
	if errors.Is(err, gpumap.ErrNoMoment) {
		return nil, err
	}
	if err == nil {
		s, err = m.seen(ctx, s)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Serving the GPU map failed")
		return nil, errNoMap
	}
	return s, nil
}

// seen returns a snapshot without what the caller may not see.
func (m *gpuMap) seen(ctx context.Context, s *snapshot.Snapshot) (*snapshot.Snapshot, error) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, errors.New("serve map: the request has no user")
	}
	sees, all, err := visible(ctx, who, m.asks, s.Namespaces())
	if err != nil || all {
		return s, err
	}
	return s.Redact(func(namespace string) bool {
		_, found := slices.BinarySearch(sees, namespace)
		return found
	}), nil
}
