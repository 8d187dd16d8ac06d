// Package fakeserver is a Kubernetes API server in memory, which clients reach without a connection.
//
// Config returns the configuration of its clients: typed ones, dynamic ones and those for discovery share the same objects. So a
// program that makes its clients itself runs in a bubble of testing/synctest as it does in a cluster.
//
// The server does what schedulers and controllers depend on: versions and conflicts, watches from any version, patches, preconditions,
// finalizers, deletion with a grace period, Bindings, evictions under budgets, priority classes, and the defaults of pods and Jobs.
// It validates the objects of CustomResourceDefinitions alone, and has no accounts and no garbage collector.
package fakeserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Server is an API server. Several goroutines may use it.
type Server struct {
	kinds map[schema.GroupVersionResource]kind
	// native: the server has Kubernetes' own PodGroup, without which pods cannot name one.
	native bool

	mu          sync.Mutex
	last        int64 // the version of the last change
	names       int64 // how many names and UIDs the server made
	collections map[schema.GroupVersionResource]*collection
	refuse      []func(Request) error
}

// Request is a request that changes something.
type Request struct {
	// Verb is create, update, patch or delete.
	Verb string
	// Resource has its subresource behind a slash, for example pods/binding.
	Resource        string
	Namespace, Name string
}

// New returns a server with the resources of an API server of Kubernetes 1.37 that schedulers and controllers read, and with more.
func New(more ...Resource) *Server {
	native := slices.ContainsFunc(more, func(r Resource) bool { return r.Group == schedulingGroup && r.Kind == "PodGroup" })
	return &Server{kinds: served(more), native: native, collections: map[schema.GroupVersionResource]*collection{}}
}

// Serve adds a resource, as a CustomResourceDefinition does.
func (s *Server) Serve(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[r.GroupVersionResource] = r.asKind()
}

// Config returns the configuration of clients without a limit of their requests.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://fakeserver", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{
		ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON,
	}}
}

// Refuse has each request answered with the error of a function, where it returns one, until the function that Refuse returns is called.
// It comes after all that would refuse the request anyway, and knows dry runs.
func (s *Server) Refuse(why func(Request) error) (accept func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.refuse)
	s.refuse = append(s.refuse, why)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refuse[at] = func(Request) error { return nil }
	}
}

// RoundTrip answers a request of a client.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer, ok := s.discovery(r.URL.Path); ok {
		return respond(r, answer, nil), nil
	}
	c, err := s.parse(r, body)
	if err != nil {
		return respond(r, nil, err), nil
	}
	if r.Method == http.MethodGet && c.query.Get("watch") != "" && c.query.Get("watch") != "false" {
		stream, err := s.watch(c)
		if err != nil {
			return respond(r, nil, err), nil
		}
		return response(r, http.StatusOK, stream), nil
	}
	answer, err := s.answer(c)
	done := respond(r, answer, err)
	if err == nil && r.Method == http.MethodPost {
		done.StatusCode = http.StatusCreated
	}
	return done, nil
}

// answer carries a request out. The caller holds the mutex, as all callees do.
func (s *Server) answer(c *call) ([]byte, error) {
	switch {
	case c.method == http.MethodGet && c.name == "":
		return s.list(c)
	case c.method == http.MethodGet && c.sub == "" || c.method == http.MethodGet && c.sub == "status":
		o, err := s.get(c)
		if err != nil {
			return nil, err
		}
		return o.raw, nil
	case c.method == http.MethodPost && c.sub == "binding":
		return s.bind(c)
	case c.method == http.MethodPost && c.sub == "eviction":
		return s.evict(c)
	case c.sub == "scale":
		return s.scale(c)
	case c.method == http.MethodPost && c.sub == "":
		return s.create(c)
	case c.method == http.MethodPut:
		return s.update(c, c.body, "update")
	case c.method == http.MethodPatch:
		return s.patch(c)
	case c.method == http.MethodDelete && c.name == "":
		return s.deleteAll(c)
	case c.method == http.MethodDelete:
		return s.delete(c)
	}
	return nil, apierrors.NewMethodNotSupported(c.resource.GroupResource(), c.method)
}

// admit asks those that refuse requests.
func (s *Server) admit(c *call, verb string) error {
	resource := c.resource.Resource
	if c.sub != "" {
		resource += "/" + c.sub
	}
	for _, why := range s.refuse {
		if err := why(Request{Verb: verb, Resource: resource, Namespace: c.namespace, Name: c.name}); err != nil {
			return err
		}
	}
	return nil
}

func respond(r *http.Request, answer []byte, err error) *http.Response {
	if err == nil {
		return response(r, http.StatusOK, io.NopCloser(bytes.NewReader(answer)))
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	raw, err := json.Marshal(status)
	if err != nil {
		panic(fmt.Sprintf("encode a status: %v", err)) // it has only texts and numbers
	}
	return response(r, int(status.Code), io.NopCloser(bytes.NewReader(raw)))
}

func response(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: body, Request: r,
	}
}
