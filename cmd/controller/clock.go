//go:build !fastclock

package main

import "time"

// clock returns the clock by which the controller looks at fleets and notebooks; nil is the real one. The demo builds the controller with
// the tag fastclock, which has another clock.
func clock() (func() time.Time, error) { return nil, nil }
