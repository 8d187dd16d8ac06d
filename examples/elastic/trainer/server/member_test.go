package server

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
	"github.com/tandem-gpu/tandem/test/must"
)

func listenLocally(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// The next order ends the fetch for a layout that was given up, and the server does what the order says.
func TestFetchIsGivenUp(t *testing.T) {
	source := listenLocally(t)
	far, near := net.Pipe()
	coordinator, m := wire.New(far), &member{store: newTestStore(10, 20), conn: wire.New(near)}
	ended := make(chan error)
	go func() { ended <- m.run(t.Context(), context.Background()) }()
	send := func(order wire.Message) {
		t.Helper()
		must.OK(t, coordinator.Send(order, nil))
	}

	send(wire.Message{Kind: wire.Fetch, Version: 2, Range: group.Range{To: 3}, Parts: []wire.Part{
		{Address: source.Addr().String(), Range: group.Range{From: 2, To: 3}},
	}})
	raw, err := source.Accept()
	must.OK(t, err)
	asked := wire.New(raw)
	for _, want := range []wire.Kind{wire.AsData, wire.Read} {
		if got, _, err := asked.Receive(); err != nil || got.Kind != want {
			t.Fatalf("the server asks %+v, %v, want %q", got, err, want)
		}
	}

	send(wire.Message{Kind: wire.Apply})
	if got, _, err := coordinator.Receive(); err != nil || got.Kind != wire.Applied {
		t.Fatalf("the server answers %+v, %v", got, err)
	}
	asked.Silence = time.Minute // only a server that does not end the fetch needs it
	if got, _, err := asked.Receive(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server asks %+v, %v, want the end of the connection", got, err)
	}
	send(wire.Message{Kind: wire.Dismiss})
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A server that listens on all addresses is reached at the one from which it reaches the coordinator.
func TestReachable(t *testing.T) {
	coordinator := listenLocally(t)
	raw, err := net.Dial("tcp", coordinator.Addr().String())
	must.OK(t, err)
	c := wire.New(raw)
	defer c.Close()
	for listener, want := range map[string]string{
		"0.0.0.0:7070":  "127.0.0.1:7070",
		"[::]:7070":     "127.0.0.1:7070",
		"10.0.0.7:7071": "10.0.0.7:7071",
	} {
		a, err := net.ResolveTCPAddr("tcp", listener)
		must.OK(t, err)
		if got := reachable(a, c); got != want {
			t.Errorf("a server that listens at %s is said to be at %s, want %s", listener, got, want)
		}
	}
}
