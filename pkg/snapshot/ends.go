package snapshot

import (
	"fmt"
	"slices"
	"time"
)

// Ends is when a pod that runs probably ends, as the scheduler predicted it from pods that ended before.
type Ends struct {
	// At is when that was predicted.
	At time.Time `json:"at"`
	// AfterSeconds are seconds from At on: the pod ends within each of them with the probability in the same place of EndParts.
	AfterSeconds []int64 `json:"afterSeconds"`
	// Known is how many pods of its namespace that ended the scheduler remembered.
	Known int `json:"known"`
}

// endParts are the probabilities of Ends.AfterSeconds. The outer ones are for what depends on the first or the last of many pods.
var endParts = [...]float64{.01, .1, .25, .5, .75, .9, .99}

// EndParts returns the probabilities of Ends.AfterSeconds, from the least to the greatest.
func EndParts() []float64 { return slices.Clone(endParts[:]) }

func (e *Ends) check() error {
	if len(e.AfterSeconds) != len(endParts) {
		return fmt.Errorf("afterSeconds: %d numbers, legal are %d", len(e.AfterSeconds), len(endParts))
	}
	if e.AfterSeconds[0] < 0 || !slices.IsSorted(e.AfterSeconds) {
		return fmt.Errorf("afterSeconds: %v, legal are numbers from 0 on, none less than the one before", e.AfterSeconds)
	}
	if e.Known < 0 {
		return fmt.Errorf("known: %d, legal is 0 or more", e.Known)
	}
	return nil
}

// Within returns the probability that the pod ends within a time from e.At on. Between two of e.AfterSeconds ends are spread evenly. Beyond
// the last one, half of the pods that reach a time reach twice of it.
//
// Example: with 10 % within 100 s and 25 % within 400 s it is 15 % for 200 s.
func (e *Ends) Within(d time.Duration) float64 {
	seconds := d.Seconds()
	from, part := 0., 0.
	for i, s := range e.AfterSeconds {
		to := float64(s)
		if seconds < to {
			return part + (endParts[i]-part)*max(0, seconds-from)/(to-from)
		}
		from, part = to, endParts[i]
	}
	return 1 - (1-part)*min(1, max(1, from)/seconds)
}

// Left returns within which time from now on the pod ends with a probability from 0 to less than 1, given that it runs now.
func (e *Ends) Left(probability float64, now time.Time) time.Duration {
	age := max(0, now.Sub(e.At))
	passed := e.Within(age)
	want := passed + (1-passed)*probability
	from, part := 0., 0.
	for i, s := range e.AfterSeconds {
		to := float64(s)
		if want < endParts[i] {
			return toGo(from+(to-from)*(want-part)/(endParts[i]-part), age)
		}
		from, part = to, endParts[i]
	}
	return toGo(max(1, from)*(1-part)/(1-want), age) // all within no time leaves a second for the last ones
}

// toGo returns the time until so many seconds have passed, at most longestLeft.
func toGo(seconds float64, age time.Duration) time.Duration {
	return max(0, time.Duration(min(seconds, longestLeft.Seconds())*float64(time.Second))-age)
}

// longestLeft bounds what is said of an end: ten years.
const longestLeft = 10 * 365 * 24 * time.Hour
