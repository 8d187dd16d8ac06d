package kube

import (
	"fmt"
	"hash/fnv"
)

// EventAction returns the action of an event that says a text: Scheduling, and a hash of the text.
//
// The API keeps events about one object with the same reason and the same action as one series, which shows the text of the first event
// only, and counts the others. Without the hash "3 of 4 members exist" stays unsaid for minutes after "2 of 4 members exist", and after any
// FailedScheduling of the scheduler itself. A text that changes at each attempt needs another action: each would become an object of its own.
func EventAction(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // a hash takes everything
	return fmt.Sprintf("Scheduling-%08x", h.Sum32())
}
