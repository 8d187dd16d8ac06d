package activator

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// A path that a proxy before the activator may read as another one is refused, whatever it begins with. The files of Jupyter may have dots,
// spaces, percent signs and semicolons.
func TestAmbiguousPaths(t *testing.T) {
	w := newWorld(t)
	w.put(1, nil)
	w.start()
	for _, path := range []string{
		"/ns/nb/api/contents/../../../../other/x", "/ns/nb/%2e%2e/x", "/ns/nb/.%2E/x", "/ns/nb/a%2f..%2fb", "/ns/nb/a%5c..%5cb", "/ns/nb/%252e%252e/x", "/ns/nb/..;/x", "/ns/nb/./x",
		"/ns/nb/a//b", "//ns/nb/", "/ns/%2e%2e/nb", "/ns/nb/..", "/../ns/nb/",
	} {
		if _, refused := w.find(path); refused == nil || refused.status != http.StatusBadRequest {
			t.Errorf("%s: %+v", path, refused)
		}
	}
	for _, path := range []string{"/ns/nb", "/ns/nb/", "/ns/nb/lab/tree/a.b/..c/...", "/ns/nb/100%25.ipynb", "/ns/nb/a%20b;c/", "/ns/nb/api/contents/"} {
		if _, refused := w.find(path); refused != nil {
			t.Errorf("%s: %s", path, refused.message)
		}
	}
}

// FuzzAmbiguous: however often a path is decoded, cleaning it leaves what it was, where it is not refused.
func FuzzAmbiguous(f *testing.F) {
	for _, seed := range []string{"/ns/nb/..%2f", "/a/%252e/", "/a/b%00", "/%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.HasPrefix(path, "/") || ambiguous(path) {
			return
		}
		for range decodings {
			for _, s := range strings.Split(path, "/") {
				if s == "." || s == ".." {
					t.Fatalf("%q has a segment %q", path, s)
				}
			}
			request, err := http.NewRequest(http.MethodGet, path, nil)
			if err != nil || request.URL.Path == path {
				return
			}
			path = request.URL.Path
		}
	})
}

// The headers and cookies of the login go to no notebook, and no notebook replaces them or speaks for the whole host.
func TestStrips(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.StripHeaders, o.StripCookies = []string{"x-forwarded-user"}, []string{"_oauth2_proxy*"}
	})
	var came http.Header
	w.pod.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		came = r.Header.Clone()
		for key, values := range map[string][]string{"Set-Cookie": {"_oauth2_proxy=evil; Path=/", "_xsrf=1"}, "Clear-Site-Data": {"*"}, "Service-Worker-Allowed": {"/"}} {
			rw.Header()[key] = values
		}
	})
	w.put(1, nil)
	w.start()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.front.URL+"/ns/nb/", nil)
	must.OK(t, err)
	r.Header.Set("X-Forwarded-User", "jo")
	r.Header.Set("Authorization", "token 1")
	r.Header.Set("Cookie", "_oauth2_proxy_0=secret; _xsrf=2; _oauth2_proxy=secret; a=b=c")
	answer, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	defer answer.Body.Close()
	if diff := cmp.Diff([]string{"_xsrf=2; a=b=c"}, came["Cookie"]); diff != "" || came.Get("X-Forwarded-User") != "" || came.Get("Authorization") != "token 1" {
		t.Errorf("came %v (-want +got):\n%s", came, diff)
	}
	if diff := cmp.Diff([]string{"_xsrf=1"}, answer.Header["Set-Cookie"]); diff != "" || answer.Header.Get("Clear-Site-Data") != "" || answer.Header.Get("Service-Worker-Allowed") != "" {
		t.Errorf("answered %v (-want +got):\n%s", answer.Header, diff)
	}
}

// A server with large headers is one that does not answer.
func TestLargeHeaders(t *testing.T) {
	w := newWorld(t)
	w.pod.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("A", strings.Repeat("a", 2*answerHeaders))
	})
	w.put(1, nil)
	w.start()
	w.wants("GET", "/ns/nb/", 502, "the notebook does not answer")
}

// Requests that are served are bounded too, for the notebooks of a namespace and together.
func TestServed(t *testing.T) {
	w := newWorld(t) // 80 in all, 10 of one namespace
	w.put(1, nil)
	w.start()
	var ends []func()
	for i := range 10 {
		end := w.begin("ns")
		if end == nil {
			t.Fatalf("request %d is refused", i)
		}
		ends = append(ends, end)
	}
	w.wants("GET", "/ns/nb/", 503, "too many requests are for notebooks of namespace ns")
	for i := range 70 {
		ends = append(ends, w.begin(fmt.Sprint("other", i)))
	}
	if w.begin("last") != nil {
		t.Error("more than all")
	}
	for _, end := range ends {
		end()
	}
	r := httptest.NewRecorder()
	w.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/ns/nb/", nil))
	if r.Code != http.StatusOK || w.servedAll != 0 || len(w.served) != 0 {
		t.Errorf("%d; %d are left: %v", r.Code, w.servedAll, w.served)
	}
}

type namedConn struct {
	net.Conn
	name   string
	closed *[]string
}

func (c *namedConn) Close() error {
	*c.closed = append(*c.closed, c.name)
	return nil
}

// One connection too many ends the one that rests for the longest time; where all have requests, itself.
func TestBounded(t *testing.T) {
	var closed []string
	b := NewBounded(2)
	conn := func(name string) *namedConn { return &namedConn{name: name, closed: &closed} }
	one, two, three, four, five := conn("one"), conn("two"), conn("three"), conn("four"), conn("five")
	b.State(one, http.StateNew)
	b.State(one, http.StateActive)
	b.State(two, http.StateNew)
	b.State(two, http.StateActive)
	b.State(two, http.StateIdle)
	b.State(three, http.StateNew) // ends two
	b.State(two, http.StateClosed)
	b.State(three, http.StateActive)
	b.State(four, http.StateNew) // ends itself
	b.State(four, http.StateClosed)
	b.State(one, http.StateHijacked)
	b.State(five, http.StateNew) // has the place of one
	if diff := cmp.Diff([]string{"two", "four"}, closed); diff != "" || len(b.open) != 2 {
		t.Errorf("%d open; closed (-want +got):\n%s", len(b.open), diff)
	}
}
