package snapshots

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/guarded"
)

// Path is where snapshots are served.
const Path = "/snapshot"

// handler answers those who may get Path.
type handler struct {
	store *store
	asks  guarded.Authorizer
	leads func(context.Context) (bool, string, error)
}

// ServeHTTP writes the snapshot as the caller may see it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &recorder{ResponseWriter: w, code: http.StatusOK}
	h.serve(counted, r)
	h.store.metrics.requests.WithLabelValues(strconv.Itoa(counted.code)).Inc()
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the snapshot can be read only", http.StatusMethodNotAllowed)
		return
	}
	if !h.answers(w, r) {
		return
	}
	v, err := h.view(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeView(w, r, v)
}

// answers reports whether this scheduler schedules. If it does not, it has no state, and the answer says who has.
func (h *handler) answers(w http.ResponseWriter, r *http.Request) bool {
	leads, holder, err := h.leads(r.Context())
	switch {
	case err != nil:
		h.fail(w, r, err)
	case !leads && holder == "":
		http.Error(w, "this scheduler does not schedule now, and neither does another; ask again in a moment", http.StatusServiceUnavailable)
	case !leads:
		http.Error(w, fmt.Sprintf("this scheduler does not schedule, and so has no state: ask %s", holder), http.StatusServiceUnavailable)
	}
	return err == nil && leads
}

// fail answers with 503: a question to the API server failed, which may succeed a moment later. The log has the reason.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	klog.FromContext(r.Context()).Error(err, "Serving the snapshot failed")
	http.Error(w, "the scheduler cannot serve the snapshot now; its log says why", http.StatusServiceUnavailable)
}

// view returns the snapshot as the caller may see it.
func (h *handler) view(r *http.Request) (*view, error) {
	who, ok := request.UserFrom(r.Context())
	if !ok {
		return nil, fmt.Errorf("serve snapshot: the request has no user")
	}
	p, err := h.store.current()
	if err != nil {
		return nil, err
	}
	sees, all, err := visible(r.Context(), who, h.asks, p.namespaces)
	if err != nil {
		return nil, err
	}
	return h.store.of(p, sees, all)
}

// writeView writes a view, compressed where the caller takes that, and nothing where the caller has it.
func writeView(w http.ResponseWriter, r *http.Request, v *view) {
	body, etag := v.raw, v.etag
	if takesGzip(r) {
		body, etag = v.zipped(), v.etag+"-gzip"
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", strconv.Quote(etag))
	w.Header().Add("Vary", "Accept-Encoding, Authorization")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// takesGzip reports whether the caller accepts a compressed answer.
func takesGzip(r *http.Request) bool {
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		coding, weight, _ := strings.Cut(part, ";")
		if strings.TrimSpace(coding) != "gzip" {
			continue
		}
		number, isWeight := strings.CutPrefix(strings.TrimSpace(weight), "q=")
		q, err := strconv.ParseFloat(number, 64)
		return !isWeight || err == nil && q > 0
	}
	return false
}

// recorder remembers the code of an answer.
type recorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader remembers the code.
func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}
