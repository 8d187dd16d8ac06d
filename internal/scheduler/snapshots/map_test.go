package snapshots

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// newMapBed returns a bed with the map, which all users may get but the stranger.
func newMapBed() (*bed, *gpuMap) {
	b := newBed()
	b.gets = []string{"admin", "user-a", "nobody"}
	return b, newMap(b.handler)
}

// askMap asks for a path of the map as a user.
func askMap(ctx context.Context, m http.Handler, who, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, mapRequest(ctx, who, path))
	return w
}

func mapRequest(ctx context.Context, who, path string) *http.Request {
	return httptest.NewRequest(http.MethodGet, MapPath+path, nil).WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: who}))
}

// read returns the value of an answer.
func read[T any](t *testing.T, w *httptest.ResponseRecorder) (value T) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("answered %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// shown returns the pods of the picture of a moment, sorted.
func shown(t *testing.T, m http.Handler, who string, second int64) (pods []string) {
	t.Helper()
	p := read[gpumap.Picture](t, askMap(t.Context(), m, who, fmt.Sprintf("picture?at=%d", second)))
	for _, s := range p.Nodes[0].Devices[0].Slices {
		pods = append(pods, s.Pod)
	}
	slices.Sort(pods)
	return pods
}

// The map shows each caller the names that the snapshot shows it, of earlier moments too, and nothing to a caller who may not get the snapshot.
func TestMapShowsWhatTheSnapshotShows(t *testing.T) {
	b, m := newMapBed()
	first := read[gpumap.Moments](t, askMap(t.Context(), m, "nobody", "moments")).Seconds
	b.now = b.now.Add(time.Minute)
	b.pods = []string{"a/three", "b/four"}
	all := read[gpumap.Moments](t, askMap(t.Context(), m, "nobody", "moments")).Seconds
	if len(first) != 1 || len(all) != 2 || all[0] != first[0] {
		t.Fatalf("moments %v, then %v, want one and then two", first, all)
	}
	for who, want := range map[string][2][]string{
		"admin":  {{"a/one", "b/two"}, {"a/three", "b/four"}},
		"user-a": {{"a/one", "other/other:000001"}, {"a/three", "other/other:000001"}},
		"nobody": {{"other/other:000001", "other/other:000002"}, {"other/other:000001", "other/other:000002"}},
	} {
		if diff := cmp.Diff(want, [2][]string{shown(t, m, who, all[0]), shown(t, m, who, all[1])}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", who, diff)
		}
	}
	for _, path := range []string{"", "map.js", "moments", fmt.Sprintf("picture?at=%d", first[0]), fmt.Sprintf("why?at=%d&pod=a/one", first[0])} {
		if w := askMap(t.Context(), m, "stranger", path); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "one") {
			t.Errorf("a caller who may not get the snapshot asks for %q: %d %s", path, w.Code, w.Body)
		}
	}
	if w := askMap(t.Context(), m, "nobody", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `src="map.js"`) || w.Header().Get("Content-Security-Policy") == "" {
		t.Errorf("the page: %d %v", w.Code, w.Header())
	}
	if w := askMap(t.Context(), m, "admin", "picture?at=7"); w.Code != http.StatusNotFound {
		t.Errorf("a time without a snapshot: %d %s", w.Code, w.Body)
	}
}

// The map is at its path where it is turned on, and nowhere otherwise; the snapshot is there in both cases.
func TestPaths(t *testing.T) {
	b, m := newMapBed()
	get := func(h http.Handler, path string) int {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "admin"})))
		return w.Code
	}
	on, off := paths(b.handler, m), paths(b.handler, nil)
	for path, want := range map[string][2]int{"/snapshot": {200, 200}, "/map/": {200, 404}, "/map/moments": {200, 404}, "/map/page": {404, 404}, "/moments": {404, 404}} {
		if got := [2]int{get(on, path), get(off, path)}; got != want {
			t.Errorf("%s answers %d with the map and %d without, want %v", path, got[0], got[1], want)
		}
	}
}

// The map shows nothing where the API server does not answer, and where another scheduler schedules.
func TestMapWithoutAnswers(t *testing.T) {
	b, m := newMapBed()
	second := read[gpumap.Moments](t, askMap(t.Context(), m, "admin", "moments")).Seconds[0]
	picture := fmt.Sprintf("picture?at=%d", second)
	b.err = context.DeadlineExceeded
	if w := askMap(t.Context(), m, "admin", picture); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "deadline") {
		t.Errorf("without the API server: %d %s", w.Code, w.Body)
	}
	if _, err := m.At(request.WithUser(t.Context(), &user.DefaultInfo{Name: "admin"}), second); err == nil || strings.Contains(err.Error(), "deadline") {
		t.Errorf("without the API server the source says: %v", err)
	}
	if _, err := m.At(t.Context(), second); err == nil {
		t.Error("a request without a user gets a snapshot")
	}
	b.err = nil
	b.leads = func(context.Context) (bool, string, error) { return false, "host-2_uuid", nil }
	if w := askMap(t.Context(), m, "admin", picture); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "host-2_uuid") {
		t.Errorf("a follower: %d %s", w.Code, w.Body)
	}
}

// While nobody looks, a scheduler that schedules keeps each changed state for the slider; the same state is kept once, and a scheduler that
// does not schedule keeps none.
func TestMapFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := newMapBed()
		m.store.now = time.Now
		var mu sync.Mutex
		var leads bool
		m.leads = func(context.Context) (bool, string, error) {
			mu.Lock()
			defer mu.Unlock()
			return leads, "", nil
		}
		m.store.build = func() *snapshot.Snapshot {
			mu.Lock()
			defer mu.Unlock()
			return b.build()
		}
		change := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { m.follow(ctx); close(ended) }()
		moments := func() int {
			synctest.Wait()
			kept, _ := m.kept.Moments(ctx)
			return len(kept.Seconds)
		}
		pause := func(n int) { time.Sleep(time.Duration(n)*mapPause + time.Second) } // of the bubble's clock
		pause(3)
		if n := moments(); n != 0 || b.builds != 0 {
			t.Errorf("a follower keeps %d moments after %d looks", n, b.builds)
		}
		change(func() { leads = true })
		pause(3)
		if n := moments(); n != 1 || b.builds < 3 {
			t.Errorf("a state that lasts is %d moments after %d looks", n, b.builds)
		}
		change(func() { b.pods = b.pods[:1] })
		pause(2)
		if n := moments(); n != 2 {
			t.Errorf("two states are %d moments", n)
		}
		stop()
		<-ended
	})
}

// stuck is a reader that takes nothing until it is let go.
type stuck struct {
	*httptest.ResponseRecorder
	let chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.let
	return s.ResponseRecorder.Write(p)
}

// A reader that takes its time keeps nobody waiting: the turn is over when an answer is made.
func TestMapAndASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m := newMapBed()
		slow, done := &stuck{httptest.NewRecorder(), make(chan struct{})}, make(chan struct{})
		go func() {
			m.ServeHTTP(slow, mapRequest(t.Context(), "admin", "map.css"))
			close(done)
		}()
		synctest.Wait()
		quick := askMap(t.Context(), m, "admin", "map.css")
		close(slow.let)
		<-done
		if quick.Body.Len() == 0 || quick.Body.String() != slow.Body.String() || slow.Header().Get("Content-Type") != quick.Header().Get("Content-Type") {
			t.Errorf("%d bytes of %s, and %d bytes of %s", quick.Body.Len(), quick.Header(), slow.Body.Len(), slow.Header())
		}
	})
}

// One answer is made at a time, and a reader who goes does not wait for its turn.
func TestMapTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m := newMapBed()
		m.turn <- struct{}{}
		gone, stop := context.WithCancel(t.Context())
		left, stays := make(chan int, 1), make(chan int, 1)
		go func() { left <- askMap(gone, m, "admin", "map.css").Body.Len() }()
		go func() { stays <- askMap(t.Context(), m, "admin", "map.css").Body.Len() }()
		synctest.Wait()
		if len(left)+len(stays) != 0 {
			t.Fatal("there is an answer while another one is made")
		}
		stop()
		if n := <-left; n != 0 {
			t.Errorf("who has gone gets %d bytes", n)
		}
		<-m.turn
		if n := <-stays; n == 0 {
			t.Error("who waits for the turn gets nothing")
		}
	})
}
