//go:build fastclock

package main

import (
	"fmt"
	"os"
	"time"
)

// speed is how many times as fast as the real clock this one runs, and beginVariable names the environment variable with the time at which both
// show the same.
const (
	speed         = 30
	beginVariable = "TANDEM_FASTCLOCK_BEGIN"
)

// clock returns a clock for the demo, in which nobody waits for minutes: fleets and notebooks are looked at as often as always, and more time
// passes between two looks.
func clock() (func() time.Time, error) {
	begin, err := time.Parse(time.RFC3339Nano, os.Getenv(beginVariable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: this controller was built with the tag fastclock, and needs a time such as 2026-01-31T09:00:00Z", beginVariable, err)
	}
	return func() time.Time { return begin.Add(speed * time.Since(begin)) }, nil
}
