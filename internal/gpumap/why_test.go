package gpumap_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
	"github.com/tandem-gpu/tandem/test/must"
)

// crowded is a source with pods and a gang that wait at one moment, and nothing that waits a minute before.
type crowded struct{}

func (crowded) Moments(context.Context) (gpumap.Moments, error) {
	return gpumap.Moments{Seconds: []int64{at.Unix() - 60, at.Unix()}}, nil
}

func (crowded) At(_ context.Context, second int64) (*snapshot.Snapshot, error) {
	s := small()
	if second == at.Unix() {
		wait(s)
	}
	return s, nil
}

// wait adds a pod and a gang of two that ask for more than there is.
func wait(s *snapshot.Snapshot) {
	gang := snapshot.GangName{Source: "label", Namespace: "team-a", Name: "train"}
	add := func(namespace, name string, of *snapshot.GangName) {
		c := snapshot.ContainerRequest{Name: "main", Kind: "app", Slots: 20, MemoryBytes: 1 << 30}
		p := snapshot.Pending{Name: snapshot.Name{Namespace: namespace, Name: name, UID: vgpu.UID("u-" + name)}, Gang: of, Since: at}
		p.Request = &snapshot.Request{Containers: []snapshot.ContainerRequest{c}}
		s.Pending = append(s.Pending, p)
	}
	add("team-a", "train-0", &gang)
	add("team-a", "train-1", &gang)
	add("team-b", "a&b <i>", nil)
	s.Gangs = []snapshot.Gang{{GangName: gang, MinCount: 2, Members: 2, Phase: "Unplaced", Need: "Refused"}}
}

// plain writes an answer with its time.
func plain(a *why.Answer, at time.Time) string {
	return fmt.Sprintln(at.Unix(), a.Pods, len(a.Changes))
}

// The text is about the moment that is asked for. A member of a gang has the answer of its gang.
func TestWhy(t *testing.T) {
	s := small()
	wait(s)
	ofPod, err := why.Pod(s, "u-a&b <i>")
	must.OK(t, err)
	ofGang, err := why.Gang(s, *s.Pending[0].Gang)
	must.OK(t, err)
	single, all := plain(ofPod, at), plain(ofGang, at)
	for _, tc := range []struct {
		name, query string
		code        int
		want        string
	}{
		{"pod", "at=1000000000&pod=" + url.QueryEscape("team-b/a&b <i>"), http.StatusOK, single},
		{"gang", "at=1000000000&gang=team-a/train", http.StatusOK, all},
		{"member", "at=1000000000&pod=team-a/train-1", http.StatusOK, all},
		{"before it waited", "at=999999940&gang=team-a/train", http.StatusNotFound, "team-a/train does not wait at this time\n"},
		{"pod of another namespace", "at=1000000000&pod=team-c/train-1", http.StatusNotFound, "team-c/train-1 does not wait at this time\n"},
		{"pod that runs", "at=1000000000&pod=team-a/bert", http.StatusNotFound, "team-a/bert does not wait at this time\n"},
		{"nothing", "at=1000000000", http.StatusBadRequest, `pod: "", gang: "", legal is one of the two, as NAMESPACE/NAME` + "\n"},
		{"both", "at=1000000000&pod=a/b&gang=a/b", http.StatusBadRequest, `pod: "a/b", gang: "a/b", legal is one of the two, as NAMESPACE/NAME` + "\n"},
		{"no time", "at=x&pod=a/b", http.StatusBadRequest, `at: "x", legal is one of the seconds in moments` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ask(gpumap.Explaining(crowded{}, plain), "GET", "/why?"+tc.query)
			if w.Code != tc.code || w.Body.String() != tc.want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%d %s, want %d:\n%s\nwant:\n%s", w.Code, w.Header().Get("Content-Type"), tc.code, w.Body, tc.want)
			}
		})
	}
	if w := ask(gpumap.Handler(crowded{}), "GET", "/why?at=1000000000&gang=team-a/train"); w.Code != http.StatusNotFound {
		t.Errorf("without words: %d %s", w.Code, w.Body)
	}
}

// A reader who has gone on costs no answer.
func TestWhyEndsWithItsReader(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/why?at=1000000000&gang=team-a/train", http.NoBody)
	must.OK(t, err)
	if w := answered(gpumap.Explaining(crowded{}, plain), r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
