package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
)

// retryFetch is the pause before a server asks again for parameters that it did not get.
const retryFetch = 100 * time.Millisecond

// member is a server as the coordinator sees it; server 0 is one too.
type member struct {
	store *store
	conn  *wire.Conn
	// coordinator is the address of the coordinator, where the parts without an address are.
	coordinator string
}

// run does what the coordinator says until it dismisses the server. The server tells that it wants to leave once leave is
// done.
func (m *member) run(ctx, leave context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	context.AfterFunc(ctx, func() { m.conn.Close() })
	context.AfterFunc(leave, func() {
		// If this fails, the connection has ended, and receive says so.
		_ = m.conn.Send(wire.Message{Kind: wire.Leave}, nil)
	})
	orders := make(chan wire.Message)
	go m.receive(ctx, end, orders)
	previous := context.CancelFunc(func() {})
	defer func() { previous() }()
	for {
		// The context of an order ends with the next order: a fetch may be for a layout that has been given up.
		obeying, stop := context.WithCancel(ctx)
		select {
		case <-ctx.Done():
			stop()
			return context.Cause(ctx)
		case order := <-orders:
			previous()
			previous = stop
			if order.Kind == wire.Dismiss {
				return nil
			}
			if err := m.obey(obeying, end, order); err != nil {
				return err
			}
		}
	}
}

// receive passes orders on, and ends the member where the coordinator is gone or the training is broken.
func (m *member) receive(ctx context.Context, end context.CancelCauseFunc, orders chan<- wire.Message) {
	for {
		order, _, err := m.conn.Receive()
		switch {
		case err != nil:
			end(fmt.Errorf("lost the coordinator: %w", err))
			return
		case order.Kind == wire.Abort:
			end(errors.New(order.Reason))
			return
		case order.Kind == wire.Beat:
			continue
		}
		select {
		case orders <- order:
		case <-ctx.Done():
			return
		}
	}
}

// obey carries one order out and answers it. A fetch goes on beside the next order.
func (m *member) obey(ctx context.Context, end context.CancelCauseFunc, order wire.Message) error {
	switch order.Kind {
	case wire.Apply:
		if err := m.store.apply(order.Step, order.Tasks); err != nil {
			return err
		}
		return m.conn.Send(wire.Message{Kind: wire.Applied, Step: order.Step}, nil)
	case wire.Adopt:
		if err := m.store.adopt(order.Version, order.Step, order.Range); err != nil {
			return err
		}
		return m.conn.Send(wire.Message{Kind: wire.Adopted, Version: order.Version}, nil)
	case wire.Fetch:
		go func() {
			if !m.fetch(ctx, order) {
				return
			}
			if err := m.conn.Send(wire.Message{Kind: wire.Fetched, Version: order.Version}, nil); err != nil {
				end(err)
			}
		}()
	}
	return nil
}

// fetch gets the parameters of a next layout, and tries again until it has them or the context ends.
func (m *member) fetch(ctx context.Context, order wire.Message) bool {
	for {
		pieces, err := fetch(ctx, order.Step, located(order.Parts, m.coordinator))
		if err == nil {
			m.store.prepare(order.Version, order.Range, pieces)
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(retryFetch):
		}
	}
}

// located returns the parts with the coordinator's address where they have none.
func located(parts []wire.Part, coordinator string) []wire.Part {
	all := make([]wire.Part, len(parts))
	for i, p := range parts {
		all[i] = p
		if p.Address == "" {
			all[i].Address = coordinator
		}
	}
	return all
}
