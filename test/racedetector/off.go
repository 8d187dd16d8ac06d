//go:build !race

// Package racedetector tells tests whether the race detector watches them: it makes them ten times as slow.
package racedetector

// On is whether the tests were built with the race detector.
const On = false
