// Package lifetimes compares predictions of how long jobs still run: those of pkg/lifetime with rivals, on public traces.
package lifetimes
