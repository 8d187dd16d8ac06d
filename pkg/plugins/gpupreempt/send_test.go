package gpupreempt

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/tandem-gpu/tandem/internal/cluster/throttle"
)

// A request of an eviction has all its time, however long it waited for the limit of the scheduler's requests.
func TestEvictionWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := flowcontrol.NewTokenBucketRateLimiter(1./60, 1) // one in a minute
		p := &Plugin{requests: throttle.Limited(fake.NewClientset(), limit)}
		start := time.Now()
		for range 2 {
			err := p.send(t.Context(), func(ctx context.Context) error {
				deadline, _ := ctx.Deadline()
				if left := time.Until(deadline); left != evictTimeout {
					t.Errorf("the request has %v, want %v", left, evictTimeout)
				}
				return ctx.Err()
			})
			if err != nil {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		}
		if got := time.Since(start).Round(time.Second); got != time.Minute {
			t.Errorf("two requests took %v, want a minute", got)
		}
	})
}
