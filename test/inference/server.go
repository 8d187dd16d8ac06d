package inference

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The headers by which an answer says which replica of which variant gave it.
const (
	HeaderVariant = "Inference-Variant"
	HeaderReplica = "Inference-Replica"
)

// mostWaiting bounds the requests that wait in a server. It refuses more with 503. A shorter queue fails requests of a short burst; a longer
// one answers requests that no client waits for any more.
const mostWaiting = 4096

// Options of a server.
type Options struct {
	// Variant and Replica are names, for answers.
	Variant, Replica string
	Times            Times
	// Slots is how many batches are served at once, from 1 to 1024.
	Slots int
	// Batch is the most requests of a batch, from 1 to 1024; 1 has no batches.
	Batch int
	// Growth is by which part of the time of one request each further request makes a batch longer, from 0 to 1.
	Growth float64
	// Seed of the times.
	Seed uint64
}

func (o *Options) validate() error {
	switch {
	case o.Times.Mean <= 0:
		return fmt.Errorf("times: mean %v: it must be above 0", o.Times.Mean)
	case !(o.Times.Variation > 0 && o.Times.Variation <= 100):
		return fmt.Errorf("times: variation %v: legal are numbers above 0 and up to 100", o.Times.Variation)
	case o.Slots < 1 || o.Slots > 1024:
		return fmt.Errorf("slots %d: legal are 1 to 1024", o.Slots)
	case o.Batch < 1 || o.Batch > 1024:
		return fmt.Errorf("batch %d: legal are 1 to 1024", o.Batch)
	case !(o.Growth >= 0 && o.Growth <= 1):
		return fmt.Errorf("growth %v: legal are 0 to 1", o.Growth)
	}
	return nil
}

// Server is one replica: a queue before some slots. It answers every path but /metrics.
type Server struct {
	options  Options
	slowdown atomic.Uint64 // the bits of a float64
	queue    chan *waiting
	ended    chan struct{}
	slots    sync.WaitGroup
	metrics  *triton
	scraped  http.Handler
}

// waiting is a request in the queue.
type waiting struct {
	gone <-chan struct{} // closes when the client has left
	done chan struct{}
}

// NewServer starts a server, which Close ends.
func NewServer(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	s := &Server{
		options: o, queue: make(chan *waiting, mostWaiting), ended: make(chan struct{}), metrics: newTriton(registry),
		scraped: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
	s.SlowDown(1)
	for i := range o.Slots {
		random := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		s.slots.Go(func() { s.serve(random) })
	}
	return s, nil
}

// SlowDown has batches that begin from now on take so many times as long as drawn: what a neighbour on the GPU does.
func (s *Server) SlowDown(factor float64) { s.slowdown.Store(math.Float64bits(factor)) }

// Close ends the server. Requests that wait are answered with 503.
func (s *Server) Close() {
	close(s.ended)
	s.slots.Wait()
}

// ServeHTTP answers when the request was served, in the order of arrival.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		s.scraped.ServeHTTP(w, r)
		return
	}
	arrived := time.Now()
	w.Header().Set(HeaderVariant, s.options.Variant)
	w.Header().Set(HeaderReplica, s.options.Replica)
	request := &waiting{gone: r.Context().Done(), done: make(chan struct{})}
	select {
	case s.queue <- request:
	default:
		s.refuse(w, "the queue is full")
		return
	}
	select {
	case <-request.done:
		s.metrics.answered(time.Since(arrived))
		fmt.Fprintln(w, s.options.Replica)
	case <-request.gone:
		s.metrics.failed("CANCELED")
	case <-s.ended:
		s.refuse(w, "the replica ends")
	}
}

func (s *Server) refuse(w http.ResponseWriter, why string) {
	s.metrics.failed("REJECTED")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// serve is one slot: it serves batch after batch.
func (s *Server) serve(random *rand.Rand) {
	for {
		batch := s.next()
		if batch == nil {
			return
		}
		alone := s.options.Times.draw(random).Seconds()
		factor := math.Float64frombits(s.slowdown.Load()) * (1 + s.options.Growth*float64(len(batch)-1))
		over := time.NewTimer(time.Duration(alone * factor * float64(time.Second)))
		select {
		case <-over.C:
		case <-s.ended:
			over.Stop()
			return
		}
		for _, request := range batch {
			close(request.done)
		}
	}
}

// next waits for a request, and returns it with those that wait too, as many as a batch takes; nil at the end. A request whose client has
// left is not served.
func (s *Server) next() []*waiting {
	var batch []*waiting
	take := func(request *waiting) {
		select {
		case <-request.gone:
		default:
			batch = append(batch, request)
		}
	}
	for len(batch) < s.options.Batch {
		select {
		case request := <-s.queue:
			take(request)
			continue
		default:
		}
		if len(batch) > 0 {
			break
		}
		select {
		case request := <-s.queue:
			take(request)
		case <-s.ended:
			return nil
		}
	}
	return batch
}
