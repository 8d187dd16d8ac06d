package gpumap_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// one has a snapshot of one moment.
type one struct{ fails error }

func (o one) Moments(context.Context) (gpumap.Moments, error) {
	return gpumap.Moments{Title: "here", Seconds: []int64{at.Unix()}}, o.fails
}

func (o one) At(_ context.Context, second int64) (*snapshot.Snapshot, error) {
	if second != at.Unix() {
		return nil, gpumap.ErrNoMoment
	}
	return small(), o.fails
}

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return answered(h, r)
}

func answered(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	broken := errors.New("the API server does not answer")
	for _, tc := range []struct {
		name, method, path string
		fails              error
		code               int
		kind, has          string
	}{
		{"page", "GET", "/", nil, 200, "text/html; charset=utf-8", `src="map.js"`},
		{"script", "GET", "/map.js", nil, 200, "text/javascript; charset=utf-8", "poll()"},
		{"drawing", "GET", "/draw.js", nil, 200, "text/javascript; charset=utf-8", "export function place"},
		{"style", "GET", "/map.css", nil, 200, "text/css; charset=utf-8", "--back"},
		{"moments", "GET", "/moments", nil, 200, "application/json", `{"title":"here","live":false,"seconds":[1000000000]}`},
		{"picture", "GET", "/picture?at=1000000000", nil, 200, "application/json", `"answers"`},
		{"only the head", "HEAD", "/moments", nil, 200, "application/json", ""},
		{"another time", "GET", "/picture?at=7", nil, 404, "text/plain; charset=utf-8", "no snapshot of this time"},
		{"no time", "GET", "/picture?at=now", nil, 400, "text/plain; charset=utf-8", `at: "now", legal is`},
		{"no path", "GET", "/page/index.html", nil, 404, "text/plain; charset=utf-8", "no such path"},
		{"write", "POST", "/", nil, 405, "text/plain; charset=utf-8", "read only"},
		{"broken moments", "GET", "/moments", broken, 503, "text/plain; charset=utf-8", broken.Error()},
		{"broken picture", "GET", "/picture?at=1000000000", broken, 503, "text/plain; charset=utf-8", broken.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ask(gpumap.Handler(one{tc.fails}), tc.method, tc.path)
			if w.Code != tc.code || w.Header().Get("Content-Type") != tc.kind || !strings.Contains(w.Body.String(), tc.has) {
				t.Errorf("%d %s, want %d %s with %q:\n%.300s", w.Code, w.Header().Get("Content-Type"), tc.code, tc.kind, tc.has, w.Body)
			}
			for name, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
				"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// TestETag: a browser that has the picture gets no second one.
func TestETag(t *testing.T) {
	h := gpumap.Handler(one{})
	first := ask(h, "GET", "/picture?at=1000000000")
	again := ask(h, "GET", "/picture?at=1000000000", "If-None-Match", first.Header().Get("ETag"))
	if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("%d with %d bytes, want 304 with none", again.Code, again.Body.Len())
	}
	if other := ask(h, "GET", "/moments", "If-None-Match", first.Header().Get("ETag")); other.Code != http.StatusOK {
		t.Errorf("another answer with the tag of the picture: %d", other.Code)
	}
}

// TestPageIsSelfContained: the files name no other host, have no inline script, handler or style, which the policy forbids, and
// write no text as HTML. All files are served, and the script finds the elements that it looks for.
func TestPageIsSelfContained(t *testing.T) {
	paths, err := filepath.Glob("page/*")
	if err != nil || len(paths) != 5 {
		t.Fatalf("%v, want the five files of the page: %v", paths, err)
	}
	var all strings.Builder
	h := gpumap.Handler(one{})
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		must.OK(t, err)
		all.Write(raw)
		name := "/" + strings.TrimSuffix(filepath.Base(path), "index.html")
		if w := ask(h, "GET", name); w.Body.String() != string(raw) {
			t.Errorf("%s is not served as it is", name)
		}
		for what, bad := range map[string]*regexp.Regexp{
			"another host":     regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`),
			"an absolute path": regexp.MustCompile(`(?i)(src|href|from|fetch|get)\s*[=(]?\s*["'\x60]/`),
			"an inline script": regexp.MustCompile(`(?i)<script(\s+type="module")?\s*>`),
			"a handler":        regexp.MustCompile(`(?i)<[^>]*\son[a-z]+\s*=`),
			"an inline style":  regexp.MustCompile(`(?i)<style|<[^>]*\sstyle\s*=`),
			"text as HTML":     regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`),
			"an import":        regexp.MustCompile(`@import|url\(`),
		} {
			if found := bad.FindString(string(raw)); found != "" {
				t.Errorf("%s has %s: %q", path, what, found)
			}
		}
	}
	text := all.String()
	for _, m := range regexp.MustCompile(`\$\('([a-z]+)'\)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(text, `id="`+m[1]+`"`) {
			t.Errorf("the script looks for #%s, which the page does not have", m[1])
		}
	}
}

// TestPictureKeys: the script reads the fields that Go writes.
func TestPictureKeys(t *testing.T) {
	raw, err := json.Marshal(picture(t, small()))
	must.OK(t, err)
	for _, key := range []string{"owners", "models", "nodes", "waiting", "waitingLeftOut", "answers", "devices", "slices", "smPercent", "slowdownMilli", "island", "held", "idle", "freeMilliGPU", "lostMilliGPU"} {
		if !strings.Contains(string(raw), `"`+key+`":`) {
			t.Errorf("the picture has no %s", key)
		}
	}
}
