//go:build race

package racedetector

// On is true in tests with the race detector.
const On = true
