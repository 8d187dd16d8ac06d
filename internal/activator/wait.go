package activator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
)

const (
	// lookEvery is the pause between two looks whether a pod is ready. A longer one delays each first answer by half of it.
	lookEvery = 200 * time.Millisecond
	// eachPart is the part of the held requests, and of the connections, that the notebooks of one namespace may have.
	eachPart = 8
	// dialWithin bounds the time of a connection to a pod.
	dialWithin = 5 * time.Second
	// idlePerPod bounds the connections that wait for another request to the same pod.
	idlePerPod = 8
	// answerHeaders bounds the bytes of the headers of an answer.
	answerHeaders = 64 << 10
)

func newTransport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialWithin}).DialContext, MaxIdleConnsPerHost: idlePerPod, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		MaxResponseHeaderBytes: answerHeaders,
	}
}

// wait wakes a notebook where the request is one that does, and waits until its server can be reached.
func (a *Activator) wait(r *http.Request, n *found) (target string, refused *refusal) {
	base := n.declared.Path
	switch {
	case n.Replicas == 0 && !n.declared.Wakes:
		return "", &refusal{status: http.StatusServiceUnavailable, result: resultParked, message: "the notebook is culled: its owner scales it up"}
	case n.Replicas == 0 && !wakes(r, base):
		return "", &refusal{status: http.StatusServiceUnavailable, result: resultParked, retry: true,
			message: fmt.Sprintf("the notebook is parked, and this request does not wake it: open %s/ in a browser", base)}
	}
	of, release := a.hold(n)
	if of == nil {
		return "", &refusal{status: http.StatusServiceUnavailable, result: resultFull, retry: true, message: "too many requests wait for notebooks, or for those of this namespace: try again later"}
	}
	defer release()
	ctx, end := context.WithTimeout(r.Context(), a.options.HoldFor)
	defer end()
	begin := time.Now()
	if target, refused = a.await(ctx, r.URL.EscapedPath(), of); target != "" {
		a.metrics.waits.Observe(time.Since(begin).Seconds())
	}
	return target, refused
}

// await looks at a notebook again and again, until it is ready.
func (a *Activator) await(ctx context.Context, path string, of *waiting) (string, *refusal) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		n, refused := a.find(path) // its owner may change it meanwhile
		if refused != nil {
			return "", refused
		}
		if target := a.target(n); target != "" {
			return target, nil
		}
		if n.Replicas == 0 && n.declared.Wakes && of.waking.TryLock() {
			err := a.wake(ctx, n)
			of.waking.Unlock()
			if err != nil {
				return "", &refusal{status: http.StatusBadGateway, result: resultFailed, retry: true, message: fmt.Sprintf("the notebook cannot be woken: %v", err)}
			}
		}
		select {
		case <-ctx.Done():
			return "", &refusal{status: http.StatusServiceUnavailable, result: resultLate, retry: true,
				message: fmt.Sprintf("%s is not ready after %v. Its events, and those of its pod, say why; its place in the queue stays", n.Workload, a.options.HoldFor)}
		case <-tick.C:
		}
	}
}

// wake scales a notebook to one. If somebody else has done so, that is just as well.
func (a *Activator) wake(ctx context.Context, n *found) error {
	err := parking.Wake(ctx, a.options.Kube, n.Workload)
	switch {
	case err == nil:
		a.metrics.wakes.WithLabelValues(wakeDone).Inc()
		a.options.Recorder.Eventf(n.Reference(), nil, v1.EventTypeNormal, "NotebookWoken", "Wake", "scaled to one: a request for its page has come")
		return nil
	case parking.IsStale(err):
		a.metrics.wakes.WithLabelValues(wakeStale).Inc()
		return nil
	}
	a.metrics.wakes.WithLabelValues(wakeFailed).Inc()
	return err
}

// hold notes a request that waits for a notebook, and returns how to end that; nil where too many wait.
func (a *Activator) hold(n *found) (*waiting, func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := n.String()
	of := a.held[key]
	if of == nil {
		of = &waiting{}
	}
	if a.heldAll >= a.options.MostHeld || a.heldIn[n.Namespace] >= max(1, a.options.MostHeld/eachPart) {
		return nil, nil
	}
	a.held[key] = of
	of.count++
	a.heldIn[n.Namespace]++
	a.heldAll++
	a.metrics.held.Set(float64(a.heldAll))
	return of, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.heldAll--
		a.metrics.held.Set(float64(a.heldAll))
		if of.count--; of.count == 0 {
			delete(a.held, key)
		}
		if a.heldIn[n.Namespace]--; a.heldIn[n.Namespace] == 0 {
			delete(a.heldIn, n.Namespace)
		}
	}
}
