package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
)

// Options say what a server does.
type Options struct {
	// Name is what the report calls the server.
	Name string
	// Listen is the address for connections. With port 0 the system chooses one, which the first line of the report tells.
	Listen string
	// Coordinator is the address of server 0, "" for server 0 itself.
	Coordinator string
	// Patience bounds the time for which a server looks for the coordinator.
	Patience time.Duration
	// Bandwidth bounds the bytes a second of the server's connections, 0 for no bound.
	Bandwidth float64
	// Out gets the lines of the report.
	Out io.Writer

	// Stay makes the server wait for its end after the last step, as a controller of pods that always run expects it. Server
	// 0 tells workers that come then that the training is over.
	Stay bool

	// Spec, Steps, MinWorkers and Every count at server 0 alone. Every n-th step has a line in the report.
	Spec       model.Spec
	Steps      int
	MinWorkers int
	Every      int
}

// hello bounds the time until the first message of a connection.
const hello = 10 * time.Second

// Run serves until the training is over. Once the context is done, server 0 stops, and any other server hands its parameters
// over first. Parameters that are lost are an error.
func Run(ctx context.Context, o Options) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	// A server that is about to leave serves until it has handed its parameters over.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	context.AfterFunc(serving, func() { listener.Close() })
	if o.Bandwidth > 0 {
		listener = &pacedListener{Listener: listener, pacer: &pacer{perSecond: o.Bandwidth}}
	}
	if o.Coordinator == "" {
		return o.coordinate(ctx, serving, listener)
	}
	return o.join(ctx, serving, listener)
}

// pacedListener counts the bytes of its connections.
type pacedListener struct {
	net.Listener
	pacer *pacer
}

func (l *pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &paced{Conn: c, pacer: l.pacer}, nil
}

// coordinate is server 0. Its own part of the parameters is a member like those of other servers, over a pipe.
func (o Options) coordinate(stop, serving context.Context, listener net.Listener) error {
	far, near := net.Pipe()
	m := &member{store: newStore(o.Spec, o.Spec.Initial()), conn: wire.New(near), coordinator: listener.Addr().String()}
	c := newCoordinator(serving, o, listener.Addr().String(), wire.New(far))
	go func() {
		// An error ends the pipe, and the coordinator takes the server for lost.
		if err := m.run(serving, serving); err != nil {
			near.Close()
		}
	}()
	go accept(serving, listener, m.store, c)
	c.report.listening(listener.Addr().String())
	return c.run(stop)
}

// join is any other server.
func (o Options) join(stop, serving context.Context, listener net.Listener) error {
	conn, welcome, err := wire.Join(stop, o.Coordinator, o.Patience, func(c *wire.Conn) wire.Message {
		return wire.Message{Kind: wire.AsServer, Name: o.Name, Address: reachable(listener.Addr(), c)}
	})
	if err != nil {
		return err
	}
	m := &member{store: newStore(*welcome.Spec, nil), conn: conn, coordinator: o.Coordinator}
	go accept(serving, listener, m.store, nil)
	newReporter(o).listening(listener.Addr().String())
	if err := m.run(serving, stop); err != nil {
		return err
	}
	if o.Stay {
		<-stop.Done()
	}
	return nil
}

// reachable returns the address at which others reach a listener: where it listens on all addresses of the machine, that at
// which the machine reaches the coordinator.
func reachable(listener net.Addr, c *wire.Conn) string {
	a, ok := listener.(*net.TCPAddr)
	if !ok || !a.IP.IsUnspecified() {
		return listener.String()
	}
	return net.JoinHostPort(c.LocalHost(), strconv.Itoa(a.Port))
}

// accept serves connections until the listener is closed.
func accept(ctx context.Context, listener net.Listener, s *store, c *coordinator) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go enter(ctx, wire.New(conn), s, c)
	}
}

// enter serves one connection; only server 0 has a coordinator, for members.
func enter(ctx context.Context, conn *wire.Conn, s *store, c *coordinator) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	conn.Silence = hello
	first, _, err := conn.Receive()
	conn.Silence = 0
	switch {
	case err != nil:
	case first.Kind == wire.AsData:
		_ = s.serveData(conn) // the other end has gone
	case c != nil && (first.Kind == wire.AsWorker || first.Kind == wire.AsServer):
		c.enter(ctx, conn, first)
		return
	default:
		_ = conn.Send(wire.Message{Kind: wire.Refused, Reason: fmt.Sprintf("this server takes no connection of the kind %q", first.Kind)}, nil)
	}
	stop()
	conn.Close()
}
