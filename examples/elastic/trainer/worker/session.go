package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
)

// silence is for how long the coordinator may say nothing before the worker joins anew, and beatEvery how often the worker
// says that it lives.
const (
	silence   = 15 * time.Second
	beatEvery = time.Second
)

// session is one stay of a worker in the group.
type session struct {
	options Options
	conn    *wire.Conn // to the coordinator
	spec    model.Spec
	network *model.Network
	params  []float32
	step    int // the step that params are for, -1 for none
	data    map[string]*wire.Conn
}

func newSession(o Options, conn *wire.Conn, welcome wire.Message) *session {
	conn.Silence = silence
	spec := *welcome.Spec
	return &session{
		options: o, conn: conn, spec: spec, network: model.NewNetwork(spec), params: make([]float32, spec.Params()),
		step: -1, data: map[string]*wire.Conn{},
	}
}

// run works until the stay ends. It tells the coordinator that it wants to leave once wanted is done, and ends when the
// coordinator lets it go.
func (s *session) run(wanted context.Context) (ending, error) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(wanted))
	defer end(nil)
	context.AfterFunc(ctx, func() { s.conn.Close() })
	stop := context.AfterFunc(wanted, func() {
		s.options.report(Line{Event: "leaving", Reason: context.Cause(wanted).Error()})
		_ = s.conn.Send(wire.Message{Kind: wire.Leave}, nil) // where this fails, receive sees the end of the connection
	})
	defer stop()
	orders := make(chan wire.Message)
	go s.receive(ctx, end, orders)
	go s.beat(ctx)
	for {
		select {
		case <-ctx.Done():
			return lost, context.Cause(ctx)
		case order := <-orders:
			if order.Kind == wire.Dismiss && order.Over {
				return over, nil
			}
			if order.Kind == wire.Dismiss {
				return left, nil
			}
			if err := s.work(ctx, order); err != nil {
				return lost, errors.Join(context.Cause(ctx), err)
			}
		}
	}
}

// receive passes orders on, and ends the stay where the coordinator is gone.
func (s *session) receive(ctx context.Context, end context.CancelCauseFunc, orders chan<- wire.Message) {
	for {
		order, _, err := s.conn.Receive()
		switch {
		case err != nil:
			end(fmt.Errorf("lost the coordinator: %w", err))
			return
		case order.Kind == wire.Abort:
			end(errors.New(order.Reason))
			return
		case order.Kind != wire.Assign && order.Kind != wire.Dismiss:
			continue
		}
		select {
		case orders <- order:
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) beat(ctx context.Context) {
	for pause(ctx, beatEvery) {
		if s.conn.Send(wire.Message{Kind: wire.Beat}, nil) != nil {
			return // receive sees it too
		}
	}
}

// work does one task: it reads the parameters, adds the gradients of the slices, sends the sum to all servers, and reports.
func (s *session) work(ctx context.Context, task wire.Message) error {
	s.options.report(Line{Event: "task", Step: task.Step, Slices: len(task.Slices)})
	parts := make([]wire.Part, len(task.Parts))
	for i, p := range task.Parts {
		parts[i] = p
		if p.Address == "" {
			parts[i].Address = s.options.Coordinator
		}
	}
	s.forget(parts)
	if s.step != task.Step {
		s.step = -1
		if err := s.each(ctx, parts, func(c *wire.Conn, p wire.Part) error { return s.read(c, task, p) }); err != nil {
			return fmt.Errorf("read parameters: %w", err)
		}
		s.step = task.Step
	}
	sum, loss, err := s.compute(ctx, task)
	if err != nil {
		return err
	}
	if err := s.each(ctx, parts, func(c *wire.Conn, p wire.Part) error { return add(c, task, p, sum) }); err != nil {
		return fmt.Errorf("send gradients: %w", err)
	}
	samples := len(task.Slices) * s.spec.Batch / s.spec.Slices
	s.options.Count(samples)
	return s.conn.Send(wire.Message{Kind: wire.Done, Task: task.Task, Loss: loss}, nil)
}

// compute returns the sum of the gradients of a task, and takes at least the time that is asked for.
func (s *session) compute(ctx context.Context, task wire.Message) (sum []int32, loss int64, err error) {
	sum = make([]int32, len(s.params))
	perSlice := s.options.Work * time.Duration(s.spec.Batch/s.spec.Slices)
	until := time.Now()
	for _, slice := range task.Slices {
		until = until.Add(perSlice)
		loss += s.network.AddGradient(s.params, task.Step, slice, sum)
		if wait := time.Until(until); wait > 0 && !pause(ctx, wait) {
			return nil, 0, context.Cause(ctx)
		}
	}
	return sum, loss, nil
}

// read reads one part of the parameters.
func (s *session) read(c *wire.Conn, task wire.Message, p wire.Part) error {
	numbers, err := c.Ask(wire.Message{Kind: wire.Read, Step: task.Step, Range: p.Range}, nil, wire.Values)
	if err != nil {
		return err
	}
	return wire.Floats(numbers, s.params[p.Range.From:p.Range.To])
}

// add sends one part of the gradients.
func add(c *wire.Conn, task wire.Message, p wire.Part, sum []int32) error {
	_, err := c.Ask(wire.Message{Kind: wire.Add, Step: task.Step, Task: task.Task, Range: p.Range}, wire.OfInts(sum[p.Range.From:p.Range.To]), wire.Added)
	return err
}

// each talks to all servers at once, over connections that stay open.
func (s *session) each(ctx context.Context, parts []wire.Part, talk func(*wire.Conn, wire.Part) error) error {
	errs := make([]error, len(parts))
	var wait sync.WaitGroup
	for i, p := range parts {
		c, err := s.connection(ctx, p.Address)
		if err != nil {
			errs[i] = err
			continue
		}
		wait.Go(func() { errs[i] = talk(c, p) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// connection returns the connection to a server, which ends with the stay.
func (s *session) connection(ctx context.Context, address string) (*wire.Conn, error) {
	if c := s.data[address]; c != nil {
		return c, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := wire.New(conn)
	context.AfterFunc(ctx, func() { c.Close() })
	s.data[address] = c
	return c, c.Send(wire.Message{Kind: wire.AsData}, nil)
}

// forget closes the connections to servers that hold nothing any more.
func (s *session) forget(parts []wire.Part) {
	needed := map[string]bool{}
	for _, p := range parts {
		needed[p.Address] = true
	}
	for address, c := range s.data {
		if !needed[address] {
			c.Close()
			delete(s.data, address)
		}
	}
}
