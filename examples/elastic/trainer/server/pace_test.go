package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// Bytes of all callers together take their time: 3 times 500 at 1000 a second are done after 1.5 seconds, and time in which
// nothing passed is not made up for.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begun := &pacer{perSecond: 1000}, time.Now()
		done := make(chan time.Duration)
		for range 3 {
			go func() { p.pass(500); done <- time.Since(begun) }()
		}
		for i, want := range []time.Duration{500, 1000, 1500} {
			if got := <-done; got != want*time.Millisecond {
				t.Errorf("passage %d is done after %v, want %v ms", i, got, want)
			}
		}
		time.Sleep(time.Hour)
		begun = time.Now()
		p.pass(100)
		if got := time.Since(begun); got != 100*time.Millisecond {
			t.Errorf("100 bytes after a pause take %v", got)
		}
	})
}
