package fakeserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// change is one of an object: old is nil for a new one, and now for one that is gone, which last is then with the version of its end.
type change struct {
	version  int64
	old, now *object
	last     *object
}

// selection is what a request is interested in.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (c *call) selection() (selection, error) {
	s := selection{namespace: c.namespace}
	var err error
	if s.labels, err = labels.Parse(c.query.Get("labelSelector")); err == nil {
		s.fields, err = fields.ParseSelector(c.query.Get("fieldSelector"))
	}
	if err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

// selects tells whether an object, which may be nil, is of interest.
func (s selection) selects(o *object) bool {
	return o != nil && (s.namespace == "" || o.GetNamespace() == s.namespace) && s.labels.Matches(labels.Set(o.GetLabels())) && s.fields.Matches(contents(o.Object))
}

// contents are the fields of an object for selectors.
type contents map[string]any

// Has reports whether there is such a field.
func (c contents) Has(path string) bool { return c.Get(path) != "" }

// Get returns the text of a field, "" without one.
func (c contents) Get(path string) string {
	text, _, _ := unstructured.NestedString(c, strings.Split(path, ".")...)
	return text
}

// stream is a watch: the body of its answer, which ends with the request.
type stream struct {
	selection
	mu    sync.Mutex
	more  *sync.Cond
	buf   bytes.Buffer
	ended bool
}

// watch begins a watch from the version that a request names; without one, or from "0", it begins with what is there.
func (s *Server) watch(c *call) (io.ReadCloser, error) {
	of := s.collection(c.resource)
	selected, err := c.selection()
	if err != nil {
		return nil, err
	}
	if c.name != "" {
		selected.fields = fields.OneTermEqualSelector("metadata.name", c.name)
	}
	w := &stream{selection: selected}
	w.more = sync.NewCond(&w.mu)
	from, _ := strconv.ParseInt(c.query.Get("resourceVersion"), 10, 64)
	initial := c.query.Get("sendInitialEvents") == "true"
	switch {
	case initial || from == 0:
		for _, key := range of.sorted() {
			if o := of.objects[key]; w.selects(o) {
				w.send(watch.Added, o.raw)
			}
		}
	default:
		for _, past := range of.log {
			if past.version > from {
				w.tell(past)
			}
		}
	}
	if initial {
		w.send(watch.Bookmark, fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}`,
			c.kind.name, c.resource.GroupVersion(), s.last, metav1.InitialEventsAnnotationKey))
	}
	of.watches[w] = true
	end := func() {
		s.mu.Lock()
		delete(of.watches, w)
		s.mu.Unlock()
		w.end()
	}
	stop := context.AfterFunc(c.done.Context(), end)
	return body{w, func() { stop(); end() }}, nil
}

// body is the body of an answer.
type body struct {
	*stream
	close func()
}

// Close ends the watch.
func (b body) Close() error {
	b.close()
	return nil
}

// tell sends a change, as the selection sees it.
func (w *stream) tell(c change) {
	was, is := w.selects(c.old), w.selects(c.now)
	switch {
	case is && !was:
		w.send(watch.Added, c.now.raw)
	case is:
		w.send(watch.Modified, c.now.raw)
	case was && c.now != nil: // it is there, and of no interest any more
		w.send(watch.Deleted, c.now.raw)
	case was:
		w.send(watch.Deleted, c.last.raw)
	}
}

func (w *stream) send(what watch.EventType, raw []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.buf, "{\"type\":%q,\"object\":", what)
	w.buf.Write(raw)
	w.buf.WriteString("}\n")
	w.more.Broadcast()
}

func (w *stream) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.more.Broadcast()
}

// Read waits for events.
func (w *stream) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.buf.Len() == 0 && !w.ended {
		w.more.Wait()
	}
	if w.ended {
		return 0, io.EOF
	}
	return w.buf.Read(p)
}
