package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// retryJoin is the pause before the next try to reach the coordinator.
const retryJoin = 200 * time.Millisecond

// dialTimeout bounds one try, and hello the wait for the answer.
const (
	dialTimeout = 5 * time.Second
	hello       = 10 * time.Second
)

// Join reaches the coordinator at an address and becomes a member. It tries again for a time, since the coordinator may not have
// begun, or its name may not be known yet. The first message of the connection may depend on it. The answer has the number of
// the member and the Spec.
func Join(ctx context.Context, address string, patience time.Duration, first func(*Conn) Message) (*Conn, Message, error) {
	deadline := time.Now().Add(patience)
	for {
		c, welcome, err := join(ctx, address, first)
		if err == nil || time.Now().After(deadline) {
			return c, welcome, err
		}
		select {
		case <-ctx.Done():
			return nil, Message{}, ctx.Err()
		case <-time.After(retryJoin):
		}
	}
}

func join(ctx context.Context, address string, first func(*Conn) Message) (*Conn, Message, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, Message{}, fmt.Errorf("reach the coordinator: %w", err)
	}
	c := New(conn)
	c.Silence = hello
	stop := context.AfterFunc(ctx, func() { c.Close() })
	welcome, err := greet(c, first(c))
	if stop(); err != nil {
		c.Close()
		return nil, Message{}, fmt.Errorf("join at %s: %w", address, err)
	}
	c.Silence = 0
	return c, welcome, nil
}

// greet sends the first message and returns the Welcome.
func greet(c *Conn, first Message) (Message, error) {
	if err := c.Send(first, nil); err != nil {
		return Message{}, err
	}
	for {
		m, _, err := c.Receive()
		switch {
		case err != nil:
			return Message{}, err
		case m.Kind == Refused:
			return Message{}, errors.New(m.Reason)
		case m.Kind == Welcome && m.Spec != nil:
			return m, m.Spec.Validate()
		case m.Kind != Beat:
			return Message{}, fmt.Errorf("the answer is %q, not %q", m.Kind, Welcome)
		}
	}
}
