package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/golden"
)

// lend plays a small mix: half an hour, of which the last 20 minutes count.
func lend(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{
		"lending", "--workload", "testdata/gangs_jobs1.csv", "--measured", "testdata/gangs_measured", "--kind", "t4", "--nodes", "3", "--seeds", "1-2",
		"--profile", shares(t), "--model", "made-up batch 1", "--shares", "20,40,100", "--rates", minutes(t, 60), "--from", "30", "--minutes", "30",
		"--fleets", "2", "--scale", "2", "--promise", "5", "--load", "1,4", "--spikes", "3",
	}, more...)
}

func TestLending(t *testing.T) {
	golden.Text(t, "help_lending.txt", succeed(t, "lending", "--help"))
	out := succeed(t, lend(t)...)
	golden.Text(t, "lending.txt", out)
	golden.Text(t, "lending.json", succeed(t, lend(t, "--load", "2", "-o", "json")...))
	if diff := cmp.Diff(out, succeed(t, lend(t, "--shares", "100,20,40")...)); diff != "" {
		t.Errorf("the same once more, shares in another order (-first +second):\n%s", diff)
	}
	if other := succeed(t, lend(t, "--seeds", "3-4")...); other == out {
		t.Error("other seeds change nothing")
	}
}

func TestLendingBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", lend(t, "more.csv"), []string{`"more.csv"`, "flags only"}},
		{"no jobs", []string{"lending"}, []string{"--workload is missing"}},
		{"two workloads", lend(t, "--workload", "testdata/gangs_jobs2.csv"), []string{"--workload: 2 files, legal is one"}},
		{"no load", lend(t, "--load", "", "--spikes", "0"), []string{"--load and --spikes: no load and no spike"}},
		{"load", lend(t, "--load", "0"), []string{"--load", "above 0 and up to 10"}},
		{"no model", lend(t, "--model", ""), []string{"--model is missing"}},
		{"unknown model", lend(t, "--model", "bert"), []string{`no latency of "bert"`}},
		{"no rates", lend(t, "--rates", ""), []string{"--rates is missing"}},
		{"missing rates", lend(t, "--rates", "none.csv"), []string{"none.csv", "no such file"}},
		{"nothing before", lend(t, "--from", "0"), []string{"--from: 0, legal is 1 or more"}},
		{"nothing after", lend(t, "--from", "60"), []string{"--from", "0 are played"}},
		{"no whole device", lend(t, "--shares", "20,40"), []string{`--shares: "20,40" has no 100`}},
		{"promise", lend(t, "--promise", "-1"), []string{"--promise", "above 0"}},
		{"utilisation", lend(t, "--utilisation", "1.5"), []string{"--utilisation: 1.5, legal is above 0 and at most 1"}},
		{"neighbours", lend(t, "--neighbours", "0.5"), []string{"--neighbours: 0.5, legal is 1 to 10"}},
		{"neighbours that are no number", lend(t, "--neighbours", "NaN"), []string{"--neighbours: NaN"}},
		{"fleets", lend(t, "--fleets", "0"), []string{"--fleets: 0, legal is 1 to 64"}},
		{"spikes", lend(t, "--spikes", "-1"), []string{"--spikes: -1, legal is 0 to 10000"}},
		{"notice", lend(t, "--notice", "2h"), []string{"--notice: 2h0m0s, legal is 0s to 1h0m0s"}},
		{"grace", lend(t, "--grace", "-1s"), []string{"--grace: -1s, legal is 0s"}},
		{"checkpoint", lend(t, "--checkpoint", "48h"), []string{"--checkpoint: 48h0m0s, legal is 0s to 24h0m0s"}},
		{"cost", lend(t, "--cost", "oak"), []string{"--cost", `"oak"`}},
		{"nodes", lend(t, "--nodes", "0"), []string{"0 nodes, legal is 1 to 1000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refuse(t, tc.args, tc.says)
		})
	}
}
