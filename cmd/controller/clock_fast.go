//go:build fastclock

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Environment variables: the time at which this clock and the real one show the same, and how many times as fast this one runs.
const (
	beginVariable = "TANDEM_FASTCLOCK_BEGIN"
	speedVariable = "TANDEM_FASTCLOCK_SPEED"
)

// clock returns a clock that runs faster than the real one. The demo and some tests use it, because they would wait for minutes otherwise. The
// controller looks as often as with the real clock, so more of this clock's time passes between two looks.
func clock() (func() time.Time, int, error) {
	begin, err := time.Parse(time.RFC3339Nano, os.Getenv(beginVariable))
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w: this controller was built with the tag fastclock, and needs a time such as 2026-01-31T09:00:00Z", beginVariable, err)
	}
	speed, err := strconv.Atoi(os.Getenv(speedVariable))
	if err != nil || speed < 1 || speed > 1000 {
		return nil, 0, fmt.Errorf("%s %q: this controller was built with the tag fastclock, and needs a number from 1 to 1000", speedVariable, os.Getenv(speedVariable))
	}
	return func() time.Time { return begin.Add(time.Duration(speed) * time.Since(begin)) }, speed, nil
}
