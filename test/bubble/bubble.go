// Package bubble runs schedulers in bubbles of testing/synctest, where time passes once all goroutines wait for it.
//
// All consequences of one change come before the next instant, whatever the speed of the machine: informers have called
// their handlers, the scheduler has tried pods, and requests have their answers. A test that has awaited one thing may
// look at another.
package bubble

import (
	"os"
	"os/signal"
	"syscall"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

const (
	// Patience is how long Await waits, on the clock of the bubble: more than any span that a test waits for, and hours for a hang
	// cost next to nothing.
	Patience = 5 * time.Minute
	tick     = 20 * time.Millisecond
)

// Prepare is for TestMain: it starts and stops what schedulers share with others outside of their bubble.
func Prepare() {
	// The runtime starts its goroutine for signals with the first scheduler that listens to one: not inside of a bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	// The handler after the one that logs sleeps under a lock, and for as long as the clocks of two bubbles are apart.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
}

// Rest waits until all goroutines of the bubble wait, for time or for the test, and advances the time by an instant.
// Events of one object have names by their time, and the API has room for one of a name.
func Rest() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// Await reports whether wanted becomes true within the patience. All goroutines rest at each call of it.
func Await(wanted func() bool) bool {
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(tick) {
		Rest()
		if wanted() {
			return true
		}
	}
	return false
}
