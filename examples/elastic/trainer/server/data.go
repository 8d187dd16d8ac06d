package server

import (
	"context"
	"fmt"
	"net"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
)

// serveData answers questions about the parameters until the connection ends.
func (s *store) serveData(c *wire.Conn) error {
	for {
		m, numbers, err := c.Receive()
		if err != nil {
			return err
		}
		answer, values := s.answer(m, numbers)
		if err := c.Send(answer, values); err != nil {
			return err
		}
	}
}

// answer answers one question.
func (s *store) answer(m wire.Message, numbers []byte) (wire.Message, []byte) {
	switch m.Kind {
	case wire.Read:
		values, err := s.read(m.Step, m.Range)
		if err != nil {
			return wire.Message{Kind: wire.Refused, Reason: err.Error()}, nil
		}
		return wire.Message{Kind: wire.Values}, wire.OfFloats(values)
	case wire.Add:
		sum, err := wire.Ints(numbers, m.Range.Len())
		if err == nil {
			err = s.add(m.Step, m.Task, m.Range, sum)
		}
		if err != nil {
			return wire.Message{Kind: wire.Refused, Reason: err.Error()}, nil
		}
		return wire.Message{Kind: wire.Added}, nil
	}
	return wire.Message{Kind: wire.Refused, Reason: fmt.Sprintf("unknown question %q", m.Kind)}, nil
}

// dialData opens a connection for data. It ends with the context.
func dialData(ctx context.Context, address string) (*wire.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := wire.New(conn)
	context.AfterFunc(ctx, func() { c.Close() })
	if err := c.Send(wire.Message{Kind: wire.AsData}, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// fetch returns parameters before a step from the servers that hold them, by range.
func fetch(ctx context.Context, step int, parts []wire.Part) (map[group.Range][]float32, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connections
	all := make(map[group.Range][]float32, len(parts))
	for _, p := range parts {
		c, err := dialData(ctx, p.Address)
		if err != nil {
			return nil, err
		}
		numbers, err := c.Ask(wire.Message{Kind: wire.Read, Step: step, Range: p.Range}, nil, wire.Values)
		if err != nil {
			return nil, fmt.Errorf("from %s: %w", p.Address, err)
		}
		values := make([]float32, p.Range.Len())
		if err := wire.Floats(numbers, values); err != nil {
			return nil, fmt.Errorf("from %s: %w", p.Address, err)
		}
		all[p.Range] = values
	}
	return all, nil
}
