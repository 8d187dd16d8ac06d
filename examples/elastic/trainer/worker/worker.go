package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
)

// Options say what a worker does.
type Options struct {
	// Name is what the report calls the worker.
	Name string
	// Coordinator is the address of server 0.
	Coordinator string
	// Patience bounds the time for which a worker looks for the coordinator.
	Patience time.Duration
	// Work is the least time for a sample; a worker that is faster sleeps for the rest.
	Work time.Duration
	// Notice is the path of a file with the annotations of the pod, as a volume of the kind downwardAPI has it, "" for none.
	Notice string
	// Out gets the lines of the report.
	Out io.Writer
	// Count gets the number of samples of each task that is done.
	Count func(samples int)
}

// ErrLeft says that the worker left before the training was over.
var ErrLeft = errors.New("left before the last step")

// Line is a line of a worker's report.
type Line struct {
	// Event is "joined", "task", "leaving", "left", "rejoining" or "finished".
	Event string `json:"event"`
	// Name is that of the worker, ID its number in the training.
	Name string `json:"name"`
	ID   int    `json:"id,omitempty"`
	// Step and Slices are those of a task that begins: the number of steps before it, and how many slices it has.
	Step   int `json:"step,omitempty"`
	Slices int `json:"slices,omitempty"`
	// Reason is why it happened.
	Reason string `json:"reason,omitempty"`
}

func (o Options) report(l Line) {
	l.Name = o.Name
	_ = json.NewEncoder(o.Out).Encode(l) // a reader that is gone is no reason to stop
}

// Run works until the training is over, and returns nil then. Once the context is done it leaves, and returns ErrLeft.
func Run(ctx context.Context, o Options) error {
	for {
		if err := o.awaitNoNotice(ctx); err != nil {
			return err
		}
		end, err := o.stay(ctx)
		switch {
		case end == over:
			o.report(Line{Event: "finished"})
			return nil
		case ctx.Err() != nil:
			o.report(Line{Event: "left", Reason: "the process is to end"})
			return ErrLeft
		case end == left:
			o.report(Line{Event: "left", Reason: "the pod has a notice of its eviction"})
		case end == unreachable:
			return err
		default:
			o.report(Line{Event: "rejoining", Reason: err.Error()})
			if !pause(ctx, pauseRejoin) {
				return ErrLeft
			}
		}
	}
}

// pauseRejoin is the pause before a worker joins again after it has lost a connection.
const pauseRejoin = 200 * time.Millisecond

// ending is how a stay in the group ended.
type ending int

const (
	lost        ending = iota // a connection
	left                      // the worker wanted to
	over                      // the training
	unreachable               // there was no stay
)

// stay joins the group and works until the stay ends.
func (o Options) stay(ctx context.Context) (ending, error) {
	wanted, cancel := o.untilNotice(ctx)
	defer cancel()
	conn, welcome, err := wire.Join(wanted, o.Coordinator, o.Patience, func(*wire.Conn) wire.Message {
		return wire.Message{Kind: wire.AsWorker, Name: o.Name}
	})
	switch {
	case err != nil && wanted.Err() != nil:
		return left, nil
	case err != nil:
		return unreachable, err
	}
	o.report(Line{Event: "joined", ID: welcome.ID})
	s := newSession(o, conn, welcome)
	end, err := s.run(wanted)
	if err != nil {
		return lost, fmt.Errorf("worker %d: %w", welcome.ID, err)
	}
	return end, nil
}

// pause waits, and reports whether the context lasted.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
