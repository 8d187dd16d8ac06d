package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
)

// silence is for how long a worker may say nothing before the coordinator takes it for lost. A shorter one loses workers on
// machines that are busy, which costs a part of a step each time. Servers have no such limit: their loss ends the training.
const silence = 15 * time.Second

// beatEvery is how often the coordinator and the workers say that they live.
const beatEvery = time.Second

// farewell bounds the wait for the next member to be gone after the last step.
const farewell = 10 * time.Second

// coordinator runs the decisions of package group. All fields are of the goroutine of run, but for events.
type coordinator struct {
	options Options
	address string // where the data of server 0 are
	state   *group.State
	report  *reporter
	events  chan happened
	workers map[group.WorkerID]*link
	servers map[group.ServerID]*link
	lastW   group.WorkerID
	lastS   group.ServerID
	step    int
	over    bool
}

// maxUnsent is how many messages a member may leave untaken; one has three to answer at most.
const maxUnsent = 64

// link is the connection to a member.
type link struct {
	conn    *wire.Conn
	out     chan wire.Message
	name    string
	address string // of a server's data, "" for server 0
	leaving bool
}

// happened is something that happened to the coordinator: a new link, or an event of one.
type happened struct {
	worker, server *link
	event          group.Event
}

// newLink returns a link and starts to send over it.
func newLink(ctx context.Context, c *wire.Conn, name, address string) *link {
	l := &link{conn: c, out: make(chan wire.Message, maxUnsent), name: name, address: address}
	go func() {
		beat := time.NewTicker(beatEvery)
		defer beat.Stop()
		for {
			m := wire.Message{Kind: wire.Beat}
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			case m = <-l.out:
			}
			if err := c.Send(m, nil); err != nil {
				c.Close()
				return
			}
		}
	}()
	return l
}

// send sends a message soon. A member that leaves too many untaken loses its connection.
func (l *link) send(m wire.Message) {
	select {
	case l.out <- m:
	default:
		l.conn.Close()
	}
}

// errStopped ends a coordinator that is stopped before the last step.
var errStopped = errors.New("stopped before the last step: the coordinator cannot be handed over, so the parameters are lost")

// run coordinates until the training is over, or for as long as the context with Stay.
func (c *coordinator) run(ctx context.Context) error {
	for !c.over || c.options.Stay || len(c.workers)+len(c.servers) > 0 {
		var patience <-chan time.Time
		if c.over && !c.options.Stay {
			patience = time.After(farewell)
		}
		select {
		case <-ctx.Done():
			if c.over {
				return nil
			}
			c.abort(errStopped.Error())
			return errStopped
		case <-patience:
			return nil
		case h := <-c.events:
			if err := c.take(ctx, h); err != nil {
				c.abort(err.Error())
				return err
			}
		}
	}
	return nil
}

// abort tells all members that the training is broken.
func (c *coordinator) abort(reason string) {
	for _, l := range c.links() {
		l.conn.Limit(farewell)
		// A member that does not get it sees the end of the connection.
		_ = l.conn.Send(wire.Message{Kind: wire.Abort, Reason: reason}, nil)
		l.conn.Close()
	}
}

func (c *coordinator) links() []*link {
	all := make([]*link, 0, len(c.workers)+len(c.servers))
	for _, l := range c.workers {
		all = append(all, l)
	}
	for _, l := range c.servers {
		all = append(all, l)
	}
	return all
}

// take takes what happened: a new member gets its number and its goroutine.
func (c *coordinator) take(ctx context.Context, h happened) error {
	switch {
	case h.worker != nil:
		c.lastW++
		id := c.lastW
		c.workers[id] = h.worker
		c.welcome(h.worker, int(id))
		go c.listenToWorker(ctx, id, h.worker.conn)
		c.report.member("worker-joined", int(id), h.worker.name, c.step)
		h.event = group.WorkerJoined{Worker: id}
	case h.server != nil:
		c.lastS++
		id := c.lastS
		c.servers[id] = h.server
		c.welcome(h.server, int(id))
		go c.listenToServer(ctx, id, h.server.conn)
		c.report.member("server-joined", int(id), h.server.name, c.step)
		h.event = group.ServerJoined{Server: id}
	}
	c.note(h.event)
	for _, e := range c.state.Step(h.event) {
		if err := c.do(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (c *coordinator) welcome(l *link, id int) {
	spec := c.options.Spec
	l.send(wire.Message{Kind: wire.Welcome, ID: id, Spec: &spec})
}

// note reports members that are leaving or gone, and forgets the links of those.
func (c *coordinator) note(e group.Event) {
	switch e := e.(type) {
	case group.WorkerLost:
		if l := c.workers[e.Worker]; l != nil && !l.leaving {
			c.report.member("worker-lost", int(e.Worker), l.name, c.step)
		}
		delete(c.workers, e.Worker)
	case group.ServerLost:
		if l := c.servers[e.Server]; l != nil && !l.leaving {
			c.report.member("server-lost", int(e.Server), l.name, c.step)
		}
		delete(c.servers, e.Server)
	}
}

// do carries one effect out. An effect on a member that has gone meanwhile does nothing: the event of its end is on its way.
func (c *coordinator) do(ctx context.Context, e group.Effect) error {
	switch e := e.(type) {
	case group.Assign:
		c.toWorker(e.Worker, wire.Message{Kind: wire.Assign, Task: e.Task.ID, Step: e.Task.Step, Slices: e.Task.Slices, Parts: c.parts(e.Layout.Parts)})
	case group.Apply:
		c.toServer(e.Server, wire.Message{Kind: wire.Apply, Step: e.Step, Tasks: e.Tasks})
	case group.Fetch:
		c.toServer(e.Server, wire.Message{Kind: wire.Fetch, Version: e.Version, Step: e.Step, Range: e.Range, Parts: c.parts(e.Pieces)})
	case group.Adopt:
		c.toServer(e.Server, wire.Message{Kind: wire.Adopt, Version: e.Version, Step: e.Step, Range: e.Range})
	case group.Stepped:
		c.step = e.Step
		c.report.step(e)
	case group.Moved:
		c.report.moved(e)
	case group.DismissWorker:
		c.dismiss(c.workers[e.Worker], "worker-left", int(e.Worker), e.Over)
	case group.DismissServer:
		c.dismiss(c.servers[e.Server], "server-left", int(e.Server), e.Over)
	case group.Finished:
		return c.finish(ctx, e.Layout)
	case group.Broken:
		return errors.New(e.Reason)
	}
	return nil
}

// finish reports the end, with the parameters of all servers.
func (c *coordinator) finish(ctx context.Context, layout group.Layout) error {
	c.over = true
	parts := located(c.parts(layout.Parts), c.address)
	pieces, err := fetch(ctx, c.step, parts)
	if err != nil {
		return fmt.Errorf("read the trained parameters: %w", err)
	}
	params := make([]float32, c.options.Spec.Params())
	for r, values := range pieces {
		copy(params[r.From:], values)
	}
	c.report.finished(params)
	return nil
}

func (c *coordinator) dismiss(l *link, event string, id int, over bool) {
	if l == nil {
		return
	}
	if !over {
		c.report.member(event, id, l.name, c.step)
	}
	l.leaving = true
	l.send(wire.Message{Kind: wire.Dismiss, Over: over})
}

func (c *coordinator) toWorker(id group.WorkerID, m wire.Message) {
	if l := c.workers[id]; l != nil {
		l.send(m)
	}
}

func (c *coordinator) toServer(id group.ServerID, m wire.Message) {
	if l := c.servers[id]; l != nil {
		l.send(m)
	}
}

// parts returns the parts with the addresses of their servers.
func (c *coordinator) parts(parts []group.Part) []wire.Part {
	all := make([]wire.Part, len(parts))
	for i, p := range parts {
		all[i].Range = p.Range
		if l := c.servers[p.Server]; l != nil {
			all[i].Address = l.address
		}
	}
	slices.SortFunc(all, func(a, b wire.Part) int { return cmp.Compare(a.Range.From, b.Range.From) })
	return all
}

// listenToWorker makes events of the messages of a worker.
func (c *coordinator) listenToWorker(ctx context.Context, id group.WorkerID, conn *wire.Conn) {
	conn.Silence = silence
	for {
		m, _, err := conn.Receive()
		switch {
		case err != nil:
			conn.Close()
			c.happen(ctx, happened{event: group.WorkerLost{Worker: id}})
			return
		case m.Kind == wire.Done:
			c.happen(ctx, happened{event: group.TaskDone{Worker: id, Task: m.Task, Loss: m.Loss}})
		case m.Kind == wire.Leave:
			c.happen(ctx, happened{event: group.WorkerLeaves{Worker: id}})
		}
	}
}

// listenToServer makes events of the messages of a server.
func (c *coordinator) listenToServer(ctx context.Context, id group.ServerID, conn *wire.Conn) {
	for {
		m, _, err := conn.Receive()
		switch {
		case err != nil:
			conn.Close()
			c.happen(ctx, happened{event: group.ServerLost{Server: id}})
			return
		case m.Kind == wire.Leave:
			c.happen(ctx, happened{event: group.ServerLeaves{Server: id}})
		case m.Kind == wire.Applied:
			c.happen(ctx, happened{event: group.Applied{Server: id, Step: m.Step}})
		case m.Kind == wire.Fetched:
			c.happen(ctx, happened{event: group.Fetched{Server: id, Version: m.Version}})
		case m.Kind == wire.Adopted:
			c.happen(ctx, happened{event: group.Adopted{Server: id, Version: m.Version}})
		}
	}
}

func (c *coordinator) happen(ctx context.Context, h happened) {
	select {
	case c.events <- h:
	case <-ctx.Done():
	}
}

// newCoordinator returns the coordinator of a training that has not begun, with server 0 at the end of a connection.
func newCoordinator(ctx context.Context, o Options, address string, own *wire.Conn) *coordinator {
	c := &coordinator{
		options: o, address: address, report: newReporter(o), events: make(chan happened),
		workers: map[group.WorkerID]*link{}, servers: map[group.ServerID]*link{},
	}
	c.state = group.New(group.Config{Steps: o.Steps, Slices: o.Spec.Slices, Params: o.Spec.Params(), MinWorkers: o.MinWorkers})
	c.servers[0] = newLink(ctx, own, o.Name, "")
	go c.listenToServer(ctx, 0, own)
	return c
}

// enter makes a member of a connection whose first message is known.
func (c *coordinator) enter(ctx context.Context, conn *wire.Conn, first wire.Message) {
	l := newLink(ctx, conn, first.Name, first.Address)
	if first.Kind == wire.AsWorker {
		c.happen(ctx, happened{worker: l})
		return
	}
	c.happen(ctx, happened{server: l})
}
