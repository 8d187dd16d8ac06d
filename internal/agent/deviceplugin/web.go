package deviceplugin

import (
	"container/list"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/loop"
)

// The bounds of the HTTP server: every host that reaches the node's network can connect to it.
const (
	// webRead is the time for a whole request, which is a few lines; the server cuts off a slower client.
	webRead = 5 * time.Second
	// webWrite is the time for reading a request, gathering the metrics and sending them to a client that reads slowly.
	// Prometheus waits ten seconds by default, which is less.
	webWrite = 30 * time.Second
	// webIdle is the life of a connection without a request, longer than Prometheus' default minute between scrapes.
	webIdle = 2 * time.Minute
	// webHeader bounds the header of a request in bytes.
	webHeader = 16 << 10
	// webConnections bounds the connections, and so the memory and the descriptors that they take. The kubelet's probes
	// and a few scrapers need some. Beyond it the server closes the oldest connection of the address that has the most, so
	// that neither held connections nor ever new ones of another address keep the probes out.
	webConnections = 64
)

// newWeb returns the server of /healthz, /readyz and /metrics.
func newWeb(p *loop.Pulse, ready func() error, metrics http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler(p, ready, metrics),
		ReadHeaderTimeout: webRead, ReadTimeout: webRead, WriteTimeout: webWrite, IdleTimeout: webIdle,
		MaxHeaderBytes: webHeader,
	}
}

// handler serves /healthz, /readyz and /metrics.
func handler(p *loop.Pulse, ready func() error, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if stuck := p.Stuck(time.Now()); len(stuck) > 0 {
			http.Error(w, fmt.Sprint(stuck), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

// boundedListener is a listener that keeps at most so many connections open. For one more the listener closes one of the address that has the most:
// the oldest of all such.
type boundedListener struct {
	net.Listener

	most int

	mu   sync.Mutex
	open list.List // of *boundedConn, the oldest first
	// from counts the connections by the address that they come from.
	from map[string]int
}

// Accept returns the next connection.
func (c *boundedListener) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	bounded := &boundedConn{Conn: conn, of: c, from: conn.RemoteAddr().String()}
	if host, _, err := net.SplitHostPort(bounded.from); err == nil {
		bounded.from = host
	}
	c.mu.Lock()
	if c.from == nil {
		c.from = map[string]int{}
	}
	bounded.place = c.open.PushBack(bounded)
	c.from[bounded.from]++
	var closed *boundedConn
	if c.open.Len() > c.most {
		closed = c.oldest()
		c.forget(closed)
	}
	c.mu.Unlock()
	if closed != nil {
		_ = closed.Conn.Close() // the server finds it closed and closes its boundedConn
	}
	return bounded, nil
}

// oldest returns the oldest connection of the addresses that have the most. The caller holds the mutex.
func (c *boundedListener) oldest() *boundedConn {
	var found *boundedConn
	for e := c.open.Front(); e != nil; e = e.Next() {
		if conn, _ := e.Value.(*boundedConn); found == nil || c.from[conn.from] > c.from[found.from] {
			found = conn
		}
	}
	return found
}

// forget counts a connection no longer. The caller holds the mutex.
func (c *boundedListener) forget(conn *boundedConn) {
	if conn.place == nil {
		return
	}
	c.open.Remove(conn.place)
	conn.place = nil
	if c.from[conn.from]--; c.from[conn.from] == 0 {
		delete(c.from, conn.from)
	}
}

// boundedConn is a connection that a boundedListener accepted.
type boundedConn struct {
	net.Conn

	of *boundedListener
	// place is nil once the connection does not count any more.
	place *list.Element
	from  string
}

// Close makes room for another connection.
func (g *boundedConn) Close() error {
	g.of.mu.Lock()
	g.of.forget(g)
	g.of.mu.Unlock()
	return g.Conn.Close()
}
