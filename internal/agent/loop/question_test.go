package loop

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

func TestAskerPutsOneQuestionAtATime(t *testing.T) {
	var a Question[int]
	var asked atomic.Int32
	release := make(chan struct{})
	question := func() int { n := asked.Add(1); <-release; return int(n) }
	for range 3 {
		if _, ok := a.Ask(t.Context(), time.Millisecond, question); ok {
			t.Fatal("an answer although none was given")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := a.Ask(ctx, time.Hour, question); ok {
		t.Fatal("an answer although none was given")
	}
	close(release)
	if n, ok := a.Ask(t.Context(), time.Minute, question); !ok || n != 1 || asked.Load() != 1 {
		t.Errorf("answer %d %v after %d questions, want the late answer to the only one", n, ok, asked.Load())
	}
	if n, ok := a.Ask(t.Context(), time.Minute, question); !ok || n != 2 {
		t.Errorf("answer %d %v, want that to a second question", n, ok)
	}
}
