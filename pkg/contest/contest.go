// Package contest notices that somebody else writes a number of an object back that a controller has written.
//
// Another controller, a GitOps tool or a script may hold a number where it was. A controller that then writes again makes replicas come and go, and
// neither side gets what it wants. So a writer whose changes were undone leaves the number alone for a while, and says so.
package contest

import (
	"fmt"
	"time"
)

const (
	// most is how many changes in a row are undone before the number is left alone. One may be a person who did not know of the controller.
	most = 2
	// soon is how long after a change another one undoes it: GitOps tools look every few minutes. Later ones are taken for a new wish. With a
	// shorter time somebody who always waits for its end would see more than three changes an hour.
	soon = 20 * time.Minute
	// firstPause is for how long the number is left alone; it doubles each time that the change after it is undone too, up to mostPause.
	firstPause, mostPause = 30 * time.Minute, 4 * time.Hour
)

// Number is a number that a controller writes. The zero value has not been written.
type Number struct {
	wrote      bool
	from, to   int
	at         time.Time
	generation int64
	// undone counts the changes in a row that were undone.
	undone       int
	since, until time.Time
}

// Wrote notes a change of the number.
func (n *Number) Wrote(from, to int, now time.Time) {
	n.wrote, n.from, n.to, n.at = true, from, to, now
}

// Resume goes on with a contest of an earlier process, which leaves the number alone until a time. Generation is that of Read.
func (n *Number) Resume(until time.Time, generation int64) {
	n.undone, n.until, n.generation = most, until, generation
}

// IsWatched reports whether the last change may still be undone.
func (n *Number) IsWatched() bool { return n.wrote }

// Read notes what the number is now, and reports whether it has to be left alone. Generation is that of what the user asks of the controller: another
// one is tried at once.
func (n *Number) Read(value int, generation int64, now time.Time) (isContested bool) {
	if n.generation != generation {
		*n = Number{generation: generation}
	}
	switch passed := now.Sub(n.at); {
	case !n.wrote:
	case passed >= soon:
		n.wrote, n.undone = false, 0
	case value != n.to:
		n.wrote = false
		if n.undone++; n.undone >= most {
			pause := firstPause
			for range n.undone - most {
				pause = min(2*pause, mostPause)
			}
			n.since, n.until = now, now.Add(pause)
		}
	}
	return now.Before(n.until)
}

// Began reports whether the number is left alone since a moment: then an event tells it.
func (n *Number) Began(now time.Time) bool { return n.since.Equal(now) && now.Before(n.until) }

// Undone is a contest: a change that was undone, how many changes in a row were, and until when the number is left alone.
type Undone struct {
	From, To, Times int
	Until           time.Time
}

// Undone returns the contest that Read reported last.
func (n *Number) Undone() Undone { return Undone{n.from, n.to, n.undone, n.until} }

// Says tells what happened to the number of an object, and when the controller tries again. Pods are what the field counts.
//
// Example: "Deployment bert was changed from 1 to 5 replicas, and somebody changed that again soon, 2 times in a row: …".
func (u Undone) Says(object, pods, field string) string {
	change := fmt.Sprintf("from %d to %d %s", u.From, u.To, pods)
	if u.isResumed() {
		change = "to another number of " + pods
	}
	return u.SaysOf(object+" was changed "+change, field)
}

// SaysOf is Says after words for the change of the object.
func (u Undone) SaysOf(change, field string) string {
	times := fmt.Sprint(u.Times)
	if u.isResumed() {
		times = "several"
	}
	return fmt.Sprintf("%s, and somebody changed that again soon, %s times in a row: its managedFields say who writes %s; "+
		"stop one of the two. The controller tries again at %s", change, times, field, u.Until.UTC().Format("15:04 MST"))
}

// isResumed reports whether an earlier process saw the changes.
func (u Undone) isResumed() bool { return u.From == u.To }
