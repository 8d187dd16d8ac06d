package activator

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
)

// Options are what an Activator works with.
type Options struct {
	// Informers read StatefulSets, Deployments and pods; the caller starts them.
	Informers informers.SharedInformerFactory
	// Kube writes scales.
	Kube kubernetes.Interface
	// Recorder writes events about workloads.
	Recorder events.EventRecorder
	// HoldFor bounds how long a request waits for its notebook, and MostHeld how many wait at a time. The notebooks of
	// a namespace may hold an eighth of these together, at least one, so that those that never start leave room for the others.
	HoldFor  time.Duration
	MostHeld int
	// MostConnections bounds the connections of clients; an eighth of them may have requests for notebooks of one namespace.
	MostConnections int
	// StripHeaders and StripCookies are names of headers and patterns of names of cookies that are not passed on: those of the login before the activator.
	StripHeaders, StripCookies []string
}

// Bounds of Options.
const (
	LeastHoldFor = time.Second
	MostHoldFor  = time.Hour
	MostMostHeld = 100_000
	// MostMostConnections is that of Options.MostConnections. Each takes some 100 KiB.
	MostMostConnections = 100_000
)

// Activator passes requests to notebooks, and wakes those that are parked.
type Activator struct {
	options      Options
	statefulSets appslisters.StatefulSetLister
	deployments  appslisters.DeploymentLister
	pods         corelisters.PodLister
	synced       []cache.InformerSynced
	transport    *http.Transport
	metrics      *metricSet

	mu sync.Mutex
	// held are the requests that wait, by notebook, by namespace, and all of them; served are those that are served, by namespace.
	held               map[string]*waiting
	heldIn, served     map[string]int
	heldAll, servedAll int
}

// waiting is what waits for a notebook.
type waiting struct {
	count int
	// waking is held by the request that wakes.
	waking sync.Mutex
}

// New returns an activator that has not read anything. An error names the option that is not legal.
func New(o Options) (*Activator, error) {
	switch {
	case o.HoldFor < LeastHoldFor || o.HoldFor > MostHoldFor:
		return nil, fmt.Errorf("requests are held for %v, legal is %v to %v", o.HoldFor, LeastHoldFor, MostHoldFor)
	case o.MostHeld < 1 || o.MostHeld > MostMostHeld:
		return nil, fmt.Errorf("%d requests are held at most, legal is 1 to %d", o.MostHeld, MostMostHeld)
	case o.MostConnections < 1 || o.MostConnections > MostMostConnections:
		return nil, fmt.Errorf("%d connections at most, legal is 1 to %d", o.MostConnections, MostMostConnections)
	}
	for _, name := range o.StripHeaders {
		if !IsHeader(name) {
			return nil, fmt.Errorf("%q is no name of a header that can be stripped", name)
		}
	}
	for _, name := range o.StripCookies {
		if !IsCookie(name) {
			return nil, fmt.Errorf("%q is no name of a cookie", name)
		}
	}
	sets, deployments, pods := o.Informers.Apps().V1().StatefulSets(), o.Informers.Apps().V1().Deployments(), o.Informers.Core().V1().Pods()
	return &Activator{
		options: o, statefulSets: sets.Lister(), deployments: deployments.Lister(), pods: pods.Lister(),
		synced:    []cache.InformerSynced{sets.Informer().HasSynced, deployments.Informer().HasSynced, pods.Informer().HasSynced},
		transport: newTransport(), metrics: newMetrics(), held: map[string]*waiting{}, heldIn: map[string]int{}, served: map[string]int{},
	}, nil
}

// Ready returns an error until the activator has read the API server.
func (a *Activator) Ready() error {
	for _, synced := range a.synced {
		if !synced() {
			return errors.New("the objects of the API server are not read yet")
		}
	}
	return nil
}

// unread refuses requests until it is known which notebooks there are.
func (a *Activator) unread() *refusal {
	if err := a.Ready(); err != nil {
		return &refusal{status: http.StatusServiceUnavailable, result: resultFailed, retry: true, message: err.Error()}
	}
	return nil
}

// ServeHTTP passes a request to the pod of its notebook, after it has waited for that where necessary.
func (a *Activator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() { bodyUntil(w, r, time.Now().Add(restWithin)) }()
	var n *found
	refused := a.unread()
	if refused == nil {
		n, refused = a.find(r.URL.EscapedPath())
	}
	result, target := resultPassed, ""
	if refused == nil {
		end := a.begin(n.Namespace)
		if end == nil {
			refused = &refusal{status: http.StatusServiceUnavailable, result: resultFull, retry: true, message: fmt.Sprintf("too many requests are for notebooks of namespace %s: try again later", n.Namespace)}
		} else {
			defer end()
			bodyUntil(w, r, time.Time{})
		}
	}
	if refused == nil {
		if target = a.target(n); target == "" {
			result = resultWoken
			target, refused = a.wait(r, n)
		}
	}
	if refused != nil {
		a.metrics.requests.WithLabelValues(refused.result).Inc()
		refused.write(w, r)
		return
	}
	a.metrics.requests.WithLabelValues(result).Inc()
	a.proxy(target).ServeHTTP(w, r)
}

// proxy returns what passes requests to an address. The host that the client asked stays: Jupyter compares the origin of WebSockets with it.
func (a *Activator) proxy(target string) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: a.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", target, p.In.Host
			p.SetXForwarded()
			a.options.strip(p.Out.Header)
		},
		ModifyResponse: a.options.clean,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client has gone
			}
			a.metrics.failures.Inc()
			(&refusal{status: http.StatusBadGateway, retry: true, message: fmt.Sprintf("the notebook does not answer: %v", err)}).write(w, r)
		},
	}
}
