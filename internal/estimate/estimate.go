// Package estimate says how long work will still take, by how far it has come.
//
// It takes work to go on as fast as it went so far. It has no clock, and draws nothing.
package estimate

import (
	"fmt"
	"time"
)

// Most is the longest time that is estimated. Work that would take longer has hardly begun, so that nothing is known of its speed.
const Most = 100 * time.Hour

// Left returns how long work will still take of which a share, from 0 to 1, was done within a time: 0 where all is done. It returns false where
// nothing is done yet, and where more than Most would be left.
//
// Example: a quarter within 10 s leaves 30 s.
func Left(share float64, within time.Duration) (time.Duration, bool) {
	switch {
	case share >= 1:
		return 0, true
	case !(share > 0) || within <= 0: // a share that is no number is not above 0
		return 0, false
	}
	left := float64(within) * (1 - share) / share
	if left > float64(Most) {
		return 0, false
	}
	return time.Duration(left), true
}

// Words returns for people what Left returns, in whole seconds, "" where nothing is known.
func Words(share float64, within time.Duration) string {
	left, known := Left(share, within)
	if !known {
		return ""
	}
	return fmt.Sprintf("about %v left", left.Round(time.Second))
}
