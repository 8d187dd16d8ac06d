package snapshots

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// rights are the namespaces in which each user may list pods; "" is all of them.
type rights struct {
	of  map[string][]string
	err error
	// gets are the users who may get Path.
	gets []string

	mu    sync.Mutex
	asked int
}

// Authorize answers as the API server would.
func (r *rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.err != nil {
		return authorizer.DecisionNoOpinion, "", r.err
	}
	if a.GetVerb() == "get" && a.GetPath() == Path && !a.IsResourceRequest() && slices.Contains(r.gets, a.GetUser().GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	if a.GetVerb() != "list" || a.GetResource() != "pods" || a.GetAPIGroup() != "" || !a.IsResourceRequest() {
		return authorizer.DecisionNoOpinion, "another question", nil
	}
	if slices.Contains(r.of[a.GetUser().GetName()], a.GetNamespace()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no role", nil
}

// bed is a handler over one snapshot, with a clock that stands still.
type bed struct {
	*handler
	*rights
	now    time.Time
	builds int
	// pods are the names of pods, "namespace/name", on the one node.
	pods []string
	// takes is how long a build takes.
	takes time.Duration
}

func newBed() *bed {
	b := &bed{now: time.Unix(1e9, 0), pods: []string{"a/one", "b/two"}, rights: &rights{of: map[string][]string{
		"admin": {""}, "user-a": {"a", "unrelated"}, "nobody": nil,
	}}}
	s := &store{build: b.build, now: func() time.Time { return b.now }, metrics: newMetrics()}
	b.handler = &handler{store: s, asks: b.rights, leads: func(context.Context) (bool, string, error) { return true, "", nil }}
	return b
}

func (b *bed) build() *snapshot.Snapshot {
	b.builds++
	b.now = b.now.Add(b.takes)
	n := snapshot.Node{Name: "n1", Devices: []snapshot.Device{{ID: "GPU-1", Model: "T4", Slots: 10, MemoryBytes: 1000, Healthy: true}}, Holds: []snapshot.Hold{}}
	for _, path := range b.pods {
		p := snapshot.Pod{Name: snapshot.NameOf(path, vgpu.UID("uid-"+path))}
		p.Containers = []snapshot.Container{{
			Name: "main", Kind: "app", Devices: []vgpu.DeviceID{"GPU-1"}, Slots: 3, MemoryBytes: 300, ComputeLimit: 300, MemoryLimitBytes: 300,
		}}
		n.Pods = append(n.Pods, p)
	}
	return &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: []snapshot.Node{n}}
}

// get asks as a user, with headers.
func (b *bed) get(who string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, Path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: who})))
	return w
}

// namesIn returns the names of the pods in an answer, sorted.
func namesIn(t *testing.T, w *httptest.ResponseRecorder) []string {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("answered %d: %s", w.Code, w.Body)
	}
	s, err := snapshotjson.Read(w.Body.Bytes())
	must.OK(t, err)
	var names []string
	for i := range s.Nodes[0].Pods {
		p := &s.Nodes[0].Pods[i]
		if p.Namespace == snapshot.Other {
			names = append(names, snapshot.Other)
			continue
		}
		names = append(names, p.Path())
	}
	slices.Sort(names)
	return names
}

// Each caller sees the names in the namespaces whose pods it may list, in whatever order the callers come.
func TestWhoSeesWhat(t *testing.T) {
	b := newBed()
	for range 2 {
		for who, want := range map[string][]string{"admin": {"a/one", "b/two"}, "user-a": {"a/one", "other"}, "nobody": {"other", "other"}} {
			if diff := cmp.Diff(want, namesIn(t, b.get(who))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", who, diff)
			}
		}
	}
	if b.builds != 1 {
		t.Errorf("%d builds for callers at one time, want 1", b.builds)
	}
}

// If the scheduler cannot find out what a caller may see, the caller sees nothing.
func TestUnknownRights(t *testing.T) {
	b := newBed()
	b.get("admin") // who has a view
	b.err = errors.New("the API server does not answer")
	if w := b.get("admin"); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "n1") {
		t.Errorf("answered %d: %s", w.Code, w.Body)
	}
	b.err = nil
	if diff := cmp.Diff([]string{"a/one", "b/two"}, namesIn(t, b.get("admin"))); diff != "" {
		t.Errorf("when it answers again (-want +got):\n%s", diff)
	}
}

// One question is enough about a caller who may see all.
func TestOneQuestionAboutAdministrators(t *testing.T) {
	b := newBed()
	if b.get("admin"); b.asked != 1 {
		t.Errorf("%d questions, want 1", b.asked)
	}
}

// A caller who has the snapshot gets no body, until the state changes. Only the part of the state that it sees counts.
func TestNotModified(t *testing.T) {
	b := newBed()
	etags := map[string]bool{}
	for _, coding := range []string{"identity", "gzip"} {
		first := b.get("user-a", "Accept-Encoding", coding)
		etag := first.Header().Get("ETag")
		if etags[etag] {
			t.Errorf("%s: the ETag %s is that of other bytes, too", coding, etag)
		}
		etags[etag] = true
		b.now = b.now.Add(time.Hour)
		again := b.get("user-a", "Accept-Encoding", coding, "If-None-Match", etag)
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s: answered %d with %d bytes to a caller who has the snapshot", coding, again.Code, again.Body.Len())
		}
		if w := b.get("admin", "Accept-Encoding", coding, "If-None-Match", etag); w.Code != http.StatusOK {
			t.Errorf("%s: answered %d to another caller", coding, w.Code)
		}
	}
	etag := b.get("user-a").Header().Get("ETag")
	b.pods = append(b.pods, "c/three")
	b.now = b.now.Add(time.Hour)
	if w := b.get("user-a", "If-None-Match", etag); w.Code != http.StatusOK || len(namesIn(t, w)) != 3 {
		t.Errorf("answered %d after a change", w.Code)
	}
}

// The time in a snapshot is that of the change, not that of the look.
func TestTimeOfChange(t *testing.T) {
	b := newBed()
	at := func() time.Time {
		s, err := snapshotjson.Read(b.get("admin").Body.Bytes())
		must.OK(t, err)
		return s.At
	}
	first, began := at(), b.now
	if !first.Equal(began) {
		t.Errorf("the first is of %v, want %v", first, began)
	}
	b.now = b.now.Add(time.Hour)
	if again := at(); !again.Equal(first) {
		t.Errorf("the same state is of %v, was of %v", again, first)
	}
	b.pods = b.pods[:1]
	b.now = b.now.Add(time.Hour)
	if changed := at(); !changed.Equal(b.now) {
		t.Errorf("another state is of %v, want %v", changed, b.now)
	}
}

// A snapshot is made when somebody asks, at most once a second, and no more often than its cost allows.
func TestPace(t *testing.T) {
	tests := []struct {
		name  string
		takes time.Duration
		// after is when the next is made.
		after time.Duration
	}{
		{"cheap", 0, time.Second},
		{"dear", 50 * time.Millisecond, 5 * time.Second},
		{"very dear", 10 * time.Second, time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed()
			b.takes = test.takes
			if b.now = b.now.Add(time.Hour); b.builds != 0 {
				t.Fatal("built without a caller")
			}
			b.get("admin")
			b.now = b.now.Add(test.after - time.Millisecond)
			if b.get("admin"); b.builds != 1 {
				t.Errorf("%d builds before %v, want 1", b.builds, test.after)
			}
			b.now = b.now.Add(time.Millisecond)
			if b.get("admin"); b.builds != 2 {
				t.Errorf("%d builds after %v, want 2", b.builds, test.after)
			}
		})
	}
}

func TestCompressed(t *testing.T) {
	b := newBed()
	plain := b.get("admin")
	for header, zips := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "br": false, "identity": false} {
		w := b.get("admin", "Accept-Encoding", header)
		body := io.Reader(w.Body)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zips {
			t.Errorf("Accept-Encoding %s: compressed %v", header, got)
			continue
		}
		if zips {
			r, err := gzip.NewReader(w.Body)
			must.OK(t, err)
			body = r
		}
		raw, err := io.ReadAll(body)
		must.OK(t, err)
		if string(raw) != plain.Body.String() {
			t.Errorf("Accept-Encoding %s: another body", header)
		}
	}
}

// Only the scheduler that schedules has the state: the others say who that is.
func TestFollower(t *testing.T) {
	b := newBed()
	b.leads = func(context.Context) (bool, string, error) { return false, "host-2_uuid", nil }
	if w := b.get("admin"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "host-2_uuid") || b.builds != 0 {
		t.Errorf("a follower answers %d after %d builds: %s", w.Code, b.builds, w.Body)
	}
	b.leads = func(context.Context) (bool, string, error) { return false, "", nil }
	if w := b.get("admin"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a leader it answers %d", w.Code)
	}
}

func TestOnlyReads(t *testing.T) {
	b := newBed()
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST is answered with %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}
