package settle

import (
	"math"
	"time"
)

const hour = 3600.0

// event is when a world changes, in seconds.
const event = 2 * hour

// Worlds are those that the laboratory plays, at some 40 requests a second. A world that changes once does so after two
// hours.
func Worlds() []World {
	steady := constant(40)
	return []World{
		{Name: "constant", Rate: steady},
		{Name: "few requests", Rate: constant(4)},
		{Name: "step up", Rate: func(at float64) float64 { return pick(at < event, 20., 80) }},
		{Name: "step down", Rate: func(at float64) float64 { return pick(at < event, 80., 20) }},
		{Name: "ramp up", Rate: func(at float64) float64 { return 20 + 60*min(1, max(0, at-event)/(hour/2)) }},
		{Name: "ramp down", Rate: func(at float64) float64 { return 80 - 60*min(1, max(0, at-event)/(hour/2)) }},
		{Name: "day", Rate: func(at float64) float64 { return 40 - 30*math.Cos(2*math.Pi*at/(24*hour)) }},
		{Name: "backlog", Rate: func(at float64) float64 { return pick(at >= event && at < event+60, 240., 40) }},
		{Name: "replicas get slower", Rate: steady, Slower: func(at float64) float64 { return pick(at < event, 1, 1.3) }},
		{Name: "late measurements", Rate: steady, Delay: 45 * time.Second},
		{Name: "slow gateway", Rate: steady, Lie: func(at float64) time.Duration { return pick(math.Mod(at, hour) < 120, 2*time.Second, 0) }},
		{Name: "clock goes wrong", Rate: steady, Clock: func(at float64) float64 { return pick(math.Mod(at, 2*hour) < hour, 0, -600.) }},
		{Name: "controller restarts", Rate: steady, Restarts: hour},
	}
}

func constant(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
