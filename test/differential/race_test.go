//go:build race

package differential

// underRace is whether the tests were built with the race detector.
const underRace = true
