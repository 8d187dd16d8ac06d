package podgroup

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
)

// Patience says how long an API server that does not answer is asked again.
type Patience struct {
	// Within bounds the time from the first question to the last.
	Within time.Duration
	// First is the pause after the first question; each later one is twice as long, up to Most.
	First, Most time.Duration
	// Note is called with each question that failed and the pause that follows it, 0 after the last; nil for nobody.
	Note func(err error, pause time.Duration)
}

// Await asks an API server which PodGroups it has until it answers, and gives up in the end: the error is that of the last
// question.
func Await(ctx context.Context, client discovery.DiscoveryInterface, p Patience) (Served, error) {
	started, pause := time.Now(), p.First
	for asked := 1; ; asked++ {
		served, err := Discover(ctx, client)
		if err == nil {
			return served, nil
		}
		last := time.Since(started)+pause > p.Within
		if last {
			pause = 0
		}
		if p.Note != nil {
			p.Note(err, pause)
		}
		if last {
			return Served{}, fmt.Errorf("ask the API server %d times within %v: %w", asked, p.Within, err)
		}
		select {
		case <-ctx.Done():
			return Served{}, fmt.Errorf("ask the API server: %w", ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, p.Most)
	}
}

// jitter is the largest part by which the pause between two questions is longer than said: replicas of a scheduler do not
// ask in step.
const jitter = 0.2

// Appeared waits until an API server has PodGroups that it did not have before, and returns those that it has then. It asks
// after every pause, up to a fifth longer; a question that fails is asked again after the next. It returns false when ctx
// ends.
func Appeared(ctx context.Context, client discovery.DiscoveryInterface, before Served, pause time.Duration) (Served, bool) {
	if before.Native && before.XK8s {
		<-ctx.Done()
		return Served{}, false
	}
	for {
		select {
		case <-ctx.Done():
			return Served{}, false
		case <-time.After(wait.Jitter(pause, jitter)):
		}
		now, err := Discover(ctx, client)
		if err == nil && (now.Native && !before.Native || now.XK8s && !before.XK8s) {
			return now, true
		}
	}
}
