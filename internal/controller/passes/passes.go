// Package passes makes the passes of a feature of the controller, one after the other, on the elected leader.
//
// A feature embeds a Loop, which makes it a Runnable of controller-runtime's manager. The Loop waits until the informers have read the
// API server: a feature that decided earlier would take objects that were not read yet for objects that are gone. A pass that failed
// is logged and counted, and the next one tries again.
//
// The package does not know what a pass does.
package passes

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Loop makes passes. All fields are needed.
type Loop struct {
	// Over names what the passes are over, for the log: "notebooks".
	Over string
	// Every is the time between the starts of two passes. One that takes longer delays the next one.
	Every time.Duration
	// Synced are true when what the passes read has been read once.
	Synced []cache.InformerSynced
	// Make makes a pass, CountFailure counts one that returned an error.
	Make         func(context.Context) error
	CountFailure func()
}

// NeedLeaderElection makes a manager start the loop in one of several processes.
func (l *Loop) NeedLeaderElection() bool { return true }

// Ready returns an error until the API server has been read: a check for /readyz.
func (l *Loop) Ready(*http.Request) error {
	for _, synced := range l.Synced {
		if !synced() {
			return errors.New("the objects of the API server are not read yet")
		}
	}
	return nil
}

// Start makes passes until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), l.Synced...) {
		return errors.New("the API server was not read before the end")
	}
	tick := time.NewTicker(l.Every)
	defer tick.Stop()
	for {
		if err := l.Make(ctx); err != nil && ctx.Err() == nil {
			l.CountFailure()
			klog.FromContext(ctx).Error(err, "A pass over the "+l.Over+" failed in part; the next one tries again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
