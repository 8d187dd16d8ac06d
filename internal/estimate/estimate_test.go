package estimate_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/estimate"
)

func TestWords(t *testing.T) {
	for _, x := range []struct {
		share  float64
		within time.Duration
		want   string
	}{
		{0.25, 10 * time.Second, "about 30s left"},
		{0.5, 3 * time.Minute, "about 3m0s left"},
		{1, 3 * time.Minute, "about 0s left"},
		{1, 0, "about 0s left"},
		{2, time.Minute, "about 0s left"},
		{0, time.Minute, ""},
		{-1, time.Minute, ""},
		{0.5, 0, ""},
		{0.5, -time.Second, ""},
		{math.NaN(), time.Minute, ""},
		{1e-300, time.Minute, ""},
		{0.001, time.Hour, ""}, // 999 hours
	} {
		if got := estimate.Words(x.share, x.within); got != x.want {
			t.Errorf("%v within %v: %q, want %q", x.share, x.within, got, x.want)
		}
	}
}

// An estimate is never negative, never above Most, and 0 at the end. More that is done within the same time never leaves more.
func TestPropertyLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share, more := rapid.Float64().Draw(t, "share"), rapid.Float64Range(0, 1).Draw(t, "more")
		within := time.Duration(rapid.Int64().Draw(t, "within"))
		left, known := estimate.Left(share, within)
		if left < 0 || left > estimate.Most || !known && left != 0 || share >= 1 && (left != 0 || !known) {
			t.Fatalf("%v, %v", left, known)
		}
		if next, knows := estimate.Left(share+more, within); known && (!knows || next > left) {
			t.Fatalf("%v left of %v, %v of %v", left, share, next, share+more)
		}
	})
}
