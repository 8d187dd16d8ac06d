package deviceplugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/test/must"
)

// pipes is a listener in memory, for a bubble of synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// A client that is slow in any way is cut off in time.
func TestSlowClientsAreCutOff(t *testing.T) {
	const request = "GET /healthz HTTP/1.1\r\nHost: n1\r\n"
	endless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := io.WriteString(w, strings.Repeat("tandem ", 1000)); err != nil {
				return
			}
		}
	})
	for name, test := range map[string]struct {
		// play is what the client does before it waits for the server's end of the connection.
		play func(t *testing.T, c net.Conn)
		want time.Duration
	}{
		"says nothing": {func(*testing.T, net.Conn) {}, webRead},
		"trickles its header": {func(t *testing.T, c net.Conn) {
			send(t, c, request)
			go func() {
				for range 600 {
					time.Sleep(time.Second)
					if _, err := io.WriteString(c, "X-Slow: 1\r\n"); err != nil {
						return
					}
				}
			}()
		}, webRead},
		"owes its body": {func(t *testing.T, c net.Conn) {
			send(t, c, request+"Content-Length: 1000\r\n\r\n")
			answered(t, c)
		}, webRead},
		"keeps its connection": {func(t *testing.T, c net.Conn) {
			send(t, c, request+"\r\n")
			answered(t, c)
		}, webIdle},
		"does not read": {func(t *testing.T, c net.Conn) {
			send(t, c, "GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n")
			time.Sleep(webWrite + time.Millisecond)
		}, webWrite},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := newPipes()
				web := newWeb(loop.NewPulse(), func() error { return nil }, endless)
				go func() { _ = web.Serve(listener) }()
				c := listener.dial()
				began := time.Now()
				test.play(t, c)
				if n, err := io.CopyN(io.Discard, c, 1<<20); !errors.Is(err, io.EOF) {
					t.Errorf("after %d bytes the connection is still there: %v", n, err)
				}
				if took := time.Since(began); took < test.want || took > test.want+time.Second {
					t.Errorf("the server ended the connection after %v, want %v", took, test.want)
				}
				_ = c.Close()
				_ = web.Close()
				time.Sleep(time.Minute) // until all that the client began has ended
			})
		})
	}
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// answered reads one answer of the server.
func answered(t *testing.T, c net.Conn) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	must.OK(t, err)
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", response.Status, err)
	}
}

// remote is a connection from an address.
type remote struct {
	net.Conn
	from string
}

func (r *remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(r.from), Port: 40000} }

// A flood of new connections from some addresses closes none of those from others, and the bound holds.
func TestFloodsCloseTheirOwn(t *testing.T) {
	listener := newPipes()
	bounded := &boundedListener{Listener: listener, most: webConnections}
	accept := func(from string) (client, server net.Conn) {
		client, conn := net.Pipe()
		go func() { listener.conns <- &remote{conn, from} }()
		server, err := bounded.Accept()
		must.OK(t, err)
		return client, server
	}
	probe, kubelet := accept("10.0.0.1")
	metrics, prometheus := accept("10.0.0.2")
	accept("10.0.0.2")
	var flood []net.Conn
	for i := range 1000 {
		client, _ := accept(fmt.Sprint("10.1.0.", i%3))
		flood = append(flood, client)
	}
	if n := bounded.open.Len(); n != webConnections {
		t.Errorf("%d connections are open", n)
	}
	for name, c := range map[string][2]net.Conn{"probe": {probe, kubelet}, "metrics": {metrics, prometheus}} {
		go func() { _, _ = io.WriteString(c[0], "x") }()
		if _, err := io.ReadFull(c[1], make([]byte, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := flood[0].Write([]byte("x")); err == nil {
		t.Error("the oldest of the flood is open")
	}
	for e := bounded.open.Front(); e != nil; e = bounded.open.Front() {
		conn, _ := e.Value.(*boundedConn)
		_ = conn.Close()
		_ = conn.Close() // a second time changes nothing
	}
	if len(bounded.from) != 0 {
		t.Errorf("counted are %v", bounded.from)
	}
}

// However many connections are held open, a probe is answered: the oldest connections give way, and those are as many as
// are too many.
func TestHeldConnectionsGiveWay(t *testing.T) {
	b := newBench(t)
	b.run()
	const more = 3
	held := make([]net.Conn, webConnections+more)
	for i := range held {
		c, err := net.Dial("tcp", b.address)
		must.OK(t, err)
		defer c.Close()
		// An answer shows that the server has the connection.
		send(t, c, "GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n")
		answered(t, c)
		held[i] = c
	}
	for i, c := range held[:more] {
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("connection %d is not closed: %v", i, err)
		}
	}
	for i, c := range held[more:] {
		send(t, c, "GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n")
		answered(t, c)
		if i == 0 {
			send(t, c, "GET /healthz HTTP/1.1\r\nX-Slow")
		}
	}
	probe, err := http.Get("http://" + b.address + "/healthz")
	must.OK(t, err)
	defer probe.Body.Close()
	if probe.StatusCode != http.StatusOK {
		t.Error(probe.Status)
	}
}
