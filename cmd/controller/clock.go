//go:build !fastclock

package main

import "time"

// clock returns the clock of the controller; nil is the real one. The demo and some tests build the controller with the tag fastclock, which has
// another clock.
func clock() (func() time.Time, error) { return nil, nil }
