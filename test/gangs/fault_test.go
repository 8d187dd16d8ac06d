package gangs

import (
	"slices"
	"strings"
	"time"
)

// The requests that may be made to fail.
const (
	bindFault   = "bind"
	evictFault  = "evict"
	deleteFault = "delete"
	// controlFault is of the controller's requests to write.
	controlFault = "control"
)

// kinds of faults of binds: four have no effect, two of them in a way that the client can tell; two have one although the
// client is told otherwise, at once and late; slow succeeds.
var kinds = []string{"refuse", "conflict", "error", "hang", "lost", "late", "slow"}

const (
	// lateBy is how long after its failure a bind takes effect that comes late.
	lateBy = 7 * time.Second
	// retried is how long requests are tried again that fail.
	retried = 20 * time.Second
	// slowness of a bind is less than what the client waits for one.
	slowness = 1500 * time.Millisecond
)

// fault is one order to fail.
type fault struct {
	what, kind string
	// target is a pod, or the gang of pods; "" for all.
	target string
	// left is how often it strikes; negative for ever.
	left int
}

func (f *fault) hits(what, pod string) bool {
	return f.what == what && f.left != 0 && (f.target == "" || f.target == pod || strings.HasPrefix(pod, f.target+"-"))
}

// order makes requests fail from now on.
func (a *api) order(f fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, &f)
}

// heal ends all faults.
func (a *api) heal() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = nil
}

// refusedLately reports whether a request to remove a pod met a fault a moment ago: it may have been tried again since.
func (a *api) refusedLately() bool { return a.refusedAt(time.Now()) }

// refusedAt reports whether a request to remove a pod met a fault at an instant, or a moment before it.
func (a *api) refusedAt(at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.refusals, func(r time.Time) bool { return !r.After(at) && at.Sub(r) < retried })
}

// strike returns the fault that a request meets, "" for none, and excuses the pod's gang.
func (a *api) strike(what, pod string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.faults {
		if f.hits(what, pod) {
			f.left--
			a.sayLocked("fault %s %s of %s", f.kind, what, pod)
			if what != controlFault {
				a.struck(pod)
			}
			if what == deleteFault {
				a.refusals = append(a.refusals, time.Now())
			}
			return f.kind
		}
	}
	return ""
}
