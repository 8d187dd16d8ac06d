package reports

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/guarded"
	"github.com/tandem-gpu/tandem/pkg/shadow"
)

// Path is where the report is served.
const Path = "/report"

// rest bounds what reports cost: a report that took T is shown for rest × T, and for a second at least.
const rest = 50

// Source makes reports, and keeps each for a while. Several goroutines may use it.
type Source struct {
	make func() (*shadow.Report, error)
	now  func() time.Time

	mu    sync.Mutex
	last  *shadow.Report
	err   error
	until time.Time
}

// NewSource returns a Source of the reports that a function makes.
func NewSource(report func() (*shadow.Report, error), now func() time.Time) *Source {
	return &Source{make: report, now: now}
}

// Report returns a report of now, or of a moment ago. Callers do not modify it.
func (s *Source) Report() (*shadow.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.now()
	if began.Before(s.until) {
		return s.last, s.err
	}
	s.last, s.err = s.make()
	end := s.now()
	s.until = end.Add(max(time.Second, rest*end.Sub(began)))
	return s.last, s.err
}

// Handler answers those who may get Path. The examples name pods: they are for those who may list the pods of all namespaces.
type Handler struct {
	Source *Source
	Asks   guarded.Authorizer
	// Name is that of the other scheduler.
	Name string
}

// ServeHTTP writes the report in the form of the query's parameter format, text without one.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the report can be read only", http.StatusMethodNotAllowed)
		return
	}
	form := r.URL.Query().Get("format")
	if form == "" {
		form = Text
	}
	if !slices.Contains(Forms(), form) {
		http.Error(w, fmt.Sprintf("format %q is not legal, legal are %s", form, strings.Join(Forms(), ", ")), http.StatusBadRequest)
		return
	}
	report, err := h.seen(r)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Serving the report failed")
		http.Error(w, "there is no report now; the log of shadow mode says why", http.StatusServiceUnavailable)
		return
	}
	var body bytes.Buffer
	if err := Write(&body, report, h.Name, form); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", map[string]string{Text: "text/plain; charset=utf-8", JSON: "application/json"}[form])
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body.Bytes()))
}

// seen returns the report as the caller may see it.
func (h *Handler) seen(r *http.Request) (*shadow.Report, error) {
	who, ok := request.UserFrom(r.Context())
	if !ok {
		return nil, fmt.Errorf("serve report: the request has no user")
	}
	all, err := guarded.MayList(r.Context(), who, h.Asks, "")
	if err != nil {
		return nil, err
	}
	report, err := h.Source.Report()
	if err != nil || all {
		return report, err
	}
	less := *report
	less.Examples = []string{}
	less.Unknown = append(slices.Clone(report.Unknown), shadow.Unknown{What: "examples", Why: "they name pods, and you may not list the pods of all namespaces"})
	return &less, nil
}
