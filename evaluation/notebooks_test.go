package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/golden"
)

func TestNotebooks(t *testing.T) {
	golden.Text(t, "help_notebooks.txt", succeed(t, "notebooks", "--help"))
	out := succeed(t, "notebooks", "--bursts", "20")
	golden.Text(t, "notebooks.txt", out)
	golden.Text(t, "notebooks.json", succeed(t, "notebooks", "--bursts", "20", "--duty", "0.3", "-o", "json"))
	if diff := cmp.Diff(out, succeed(t, "notebooks", "--bursts", "20")); diff != "" {
		t.Errorf("the same once more (-first +second):\n%s", diff)
	}
}

func TestNotebooksBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", []string{"more.csv"}, []string{`"more.csv"`, "flags only"}},
		{"duty", []string{"--duty", "1.5"}, []string{`--duty: "1.5"`, "at most 1"}},
		{"no duty", []string{"--duty", ""}, []string{"--duty"}},
		{"duties that fall", []string{"--duty", "0.4,0.3"}, []string{"--duty", "ascending"}},
		{"notebooks", []string{"--notebooks", "0"}, []string{"--notebooks: 0, legal is 1 to 10000"}},
		{"GPUs", []string{"--gpus", "-1"}, []string{"--gpus: -1, legal is 1 to 1000"}},
		{"slots", []string{"--slots", "101"}, []string{"--slots: 101, legal is 1 to 100"}},
		{"bursts", []string{"--bursts", "0"}, []string{"--bursts: 0, legal is 1 to 100000"}},
		{"burst", []string{"--burst", "NaN"}, []string{"--burst: NaN, legal is above 0"}},
		{"use", []string{"--sm", "2"}, []string{"--sm and --bandwidth"}},
		{"seeds", []string{"--seeds", "x"}, []string{"--seeds", `"x"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refuse(t, append([]string{"notebooks"}, tc.args...), tc.says)
		})
	}
}
