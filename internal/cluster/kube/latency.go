package kube

import (
	"regexp"
	"time"
)

// Bounds of a latency: shorter is no work of a GPU, longer is no useful promise.
const (
	MinLatency = time.Microsecond
	MaxLatency = time.Hour
)

// latencyForm is what a latency may look like. time.ParseDuration alone takes signs and any number of parts.
var latencyForm = regexp.MustCompile(`^([0-9]{1,9}(\.[0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$`)

// LatencyOf reads a latency, and reports whether it is legal. The admission policy of deploy/ has the same form.
func LatencyOf(raw string) (time.Duration, bool) {
	latency, err := time.ParseDuration(raw)
	return latency, err == nil && latencyForm.MatchString(raw) && latency >= MinLatency && latency <= MaxLatency
}
