package loop

import (
	"context"
	"time"
)

// Pause waits for a time or for the end of ctx.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Question runs calls that may hang, one at a time: a second waits for the end of the first.
type Question[T any] struct{ pending chan T }

// Ask returns the answer, false where there is none within the timeout. The next call returns a late answer.
func (a *Question[T]) Ask(ctx context.Context, timeout time.Duration, question func() T) (T, bool) {
	if a.pending == nil {
		answer := make(chan T, 1)
		a.pending = answer
		go func() { answer <- question() }()
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case answer := <-a.pending:
		a.pending = nil
		return answer, true
	case <-timer.C:
	case <-ctx.Done():
	}
	var none T
	return none, false
}
