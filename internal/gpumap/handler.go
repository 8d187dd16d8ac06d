package gpumap

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// Source gives the snapshots that the page shows. Several requests use it at once; the context is that of the request, and knows
// the caller where there is authentication.
type Source interface {
	// Moments says which snapshots there are.
	Moments(context.Context) (Moments, error)
	// At returns the snapshot of one of the moments, ErrNoMoment for others. Nobody modifies it.
	At(ctx context.Context, second int64) (*snapshot.Snapshot, error)
}

// Moments are the times of the snapshots of a Source.
type Moments struct {
	// Title says what is shown: a cluster, a scenario.
	Title string `json:"title"`
	// Live says that more moments come.
	Live bool `json:"live"`
	// Seconds since 1970, ascending; in the simulator since the start of the scenario.
	Seconds []int64 `json:"seconds"`
	// Explains says that /why has answers. The handler sets it.
	Explains bool `json:"explains,omitempty"`
}

// ErrNoMoment says that a Source has no snapshot of a time.
var ErrNoMoment = errors.New("there is no snapshot of this time")

//go:embed page
var page embed.FS

// files lists what the page consists of, by path, with the types.
var files = map[string]struct{ name, kind string }{
	"/":         {"index.html", "text/html; charset=utf-8"},
	"/map.js":   {"map.js", "text/javascript; charset=utf-8"},
	"/draw.js":  {"draw.js", "text/javascript; charset=utf-8"},
	"/words.js": {"words.js", "text/javascript; charset=utf-8"},
	"/map.css":  {"map.css", "text/css; charset=utf-8"},
}

// policy lets the page use its own files and nothing else: no inline script or style, no other host.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at /, the moments of a source at /moments, and the picture of one at /picture?at=SECOND. All paths in the page
// are relative: a caller that serves it under a prefix strips that, and ends the prefix with a slash.
func Handler(s Source) http.Handler { return Explaining(s, nil) }

// Explaining is Handler, and serves why a pod or a gang of a moment waits, at /why?at=SECOND&pod=NAMESPACE/NAME or &gang=NAMESPACE/NAME,
// in the words of a function.
func Explaining(s Source, words Words) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache, private")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "the map can be read only", http.StatusMethodNotAllowed)
			return
		}
		kind, body, err := answer(r, s, words)
		if err != nil {
			fail(w, err)
			return
		}
		sum := sha256.Sum256(body)
		h.Set("Content-Type", kind)
		h.Set("ETag", strconv.Quote(hex.EncodeToString(sum[:16])))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

// badRequest is an error of the caller.
type badRequest struct{ error }

// answer returns what a path has, with its type.
func answer(r *http.Request, s Source, words Words) (kind string, body []byte, err error) {
	if f, ok := files[r.URL.Path]; ok {
		body, err = page.ReadFile("page/" + f.name)
		return f.kind, body, err
	}
	var value any
	switch {
	case r.URL.Path == "/why" && words != nil:
		body, err = explained(r, s, words)
		return "text/plain; charset=utf-8", body, err
	case r.URL.Path == "/moments":
		var m Moments
		m, err = s.Moments(r.Context())
		m.Explains = words != nil
		value = m
	case r.URL.Path == "/picture":
		value, err = picture(r, s)
	default:
		return "", nil, errNoPath
	}
	if err != nil {
		return "", nil, err
	}
	body, err = json.Marshal(value)
	return "application/json", body, err
}

var errNoPath = errors.New("the map has no such path")

func picture(r *http.Request, s Source) (*Picture, error) {
	shot, err := shotAt(r, s)
	if err != nil {
		return nil, err
	}
	return Of(shot)
}

// shotAt returns the snapshot of the moment that a request names.
func shotAt(r *http.Request, s Source) (*snapshot.Snapshot, error) {
	second, err := strconv.ParseInt(r.URL.Query().Get("at"), 10, 64)
	if err != nil {
		return nil, badRequest{fmt.Errorf("at: %q, legal is one of the seconds in moments", r.URL.Query().Get("at"))}
	}
	return s.At(r.Context(), second)
}

// fail answers with an error. It gives the text of those that the caller can mend.
func fail(w http.ResponseWriter, err error) {
	var bad badRequest
	switch {
	case errors.As(err, &bad):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, ErrNoMoment), errors.Is(err, errNoPath), errors.Is(err, errNotWaiting):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}
