//go:build race

package racedetector

// On is whether the tests were built with the race detector.
const On = true
