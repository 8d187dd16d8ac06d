package passes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

// No pass is made before all has been read, a failed one is counted and followed by the next, and all ends with the context.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isRead atomic.Bool
		var made, failed atomic.Int32
		l := &Loop{
			Over: "tests", Every: time.Minute,
			Synced: []cache.InformerSynced{func() bool { return true }, isRead.Load},
			Make: func(context.Context) error {
				if made.Add(1) == 2 {
					return errors.New("the second pass fails")
				}
				return nil
			},
			CountFailure: func() { failed.Add(1) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Start(ctx) }()
		time.Sleep(3 * time.Minute) // of the bubble's clock: three passes too early, if the loop did not wait
		synctest.Wait()
		if made.Load() > 0 || l.Ready(nil) == nil || !l.NeedLeaderElection() {
			t.Fatalf("%d passes before all was read, ready: %v", made.Load(), l.Ready(nil))
		}
		isRead.Store(true)
		time.Sleep(time.Second) // of the bubble's clock: the loop asks again and again whether all was read
		synctest.Wait()
		if err := l.Ready(nil); made.Load() != 1 || err != nil {
			t.Fatalf("%d passes when all was read, ready: %v", made.Load(), err)
		}
		time.Sleep(2 * time.Minute) // of the bubble's clock: for two more passes
		synctest.Wait()
		if made.Load() != 3 || failed.Load() != 1 {
			t.Errorf("%d passes after two minutes, %d failed; want 3 and 1", made.Load(), failed.Load())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start = %v at its end", err)
		}
	})
}

// A pass that the end interrupts has not failed, and an end before all was read is told.
func TestLoopEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := 0
		l := &Loop{Over: "tests", Every: time.Minute, CountFailure: func() { failed++ }, Make: func(context.Context) error {
			cancel()
			return ctx.Err()
		}}
		if err := l.Start(ctx); err != nil || failed > 0 {
			t.Errorf("Start = %v, %d passes failed", err, failed)
		}
		l.Synced = []cache.InformerSynced{func() bool { return false }}
		if err := l.Start(ctx); err == nil {
			t.Error("Start does not say that the API server was not read")
		}
	})
}
