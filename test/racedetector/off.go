//go:build !race

// Package racedetector says whether the race detector watches the tests: it makes them ten times as slow.
package racedetector

// On is true in tests with the race detector.
const On = false
