package main

import (
	"testing"

	"github.com/tandem-gpu/tandem/test/golden"
)

// TestSettle is the short form of the table: the figures of the page are of a day and of more load times.
func TestSettle(t *testing.T) {
	golden.Text(t, "help_settle.txt", succeed(t, "settle", "--help"))
	args := []string{"settle", "--load-times", "1m", "--noise", "0.2", "--span", "5h"}
	golden.Text(t, "settle.txt", succeed(t, args...))
	golden.Text(t, "settle.json", succeed(t, append(args, "-o", "json")...))
}

func TestSettleBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"a load time of nothing", []string{"--load-times", "0s"}, []string{"--load-times", `"0s"`, "1s to 1h"}},
		{"noise below 0", []string{"--noise", "-0.1"}, []string{"--noise", `"-0.1"`, "at most 1"}},
		{"a short span", []string{"--span", "1h"}, []string{"--span", "1h", "3h0m0s to 240h"}},
	} {
		t.Run(tc.name, func(t *testing.T) { refuse(t, append([]string{"settle"}, tc.args...), tc.says) })
	}
}
