package sim

import "time"

// Event is one thing that happened, for tests.
type Event struct {
	At   time.Duration
	Job  int
	What string
}

// Events returns all that happened, in order.
func (h *History) Events() []Event {
	words := map[what]string{starts: "starts", ends: "ends", refused: "refused", queued: "queued", drains: "drains", givesUp: "gives up", leftOut: "left out", preempts: "preempts", evicts: "evicted", leaves: "leaves", returns: "returns", letsGo: "lets go"}
	var all []Event
	for _, e := range h.log {
		all = append(all, Event{e.at, e.job, words[e.what]})
	}
	return all
}

// RunForgetful is Run without the memory of pods that nobody could be evicted for.
func RunForgetful(s Setup) (*History, error) {
	e, err := newEngine(s)
	if err != nil {
		return nil, err
	}
	for {
		at, more := e.next()
		if !more {
			return e.history, nil
		}
		clear(e.helpless)
		if err := e.instant(at); err != nil {
			return nil, err
		}
	}
}
