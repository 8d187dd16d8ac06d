package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
)

func TestInferenceSplit(t *testing.T) {
	golden.Text(t, "help_inference_split.txt", succeed(t, "inference-split", "--help"))
	args := []string{"inference-split", "--mix", "4:1", "--busy", "0.3,0.6", "--requests", "20000"}
	out := succeed(t, args...)
	golden.Text(t, "inference_split.txt", out)
	golden.Text(t, "inference_split.json", succeed(t, append(args, "-o", "json")...))
	if diff := cmp.Diff(out, succeed(t, append(args, "--seed", "1")...)); diff != "" {
		t.Errorf("the same seed (-want +got):\n%s", diff)
	}
	if out == succeed(t, append(args, "--seed", "2")...) {
		t.Error("another seed gives the same")
	}
}

func TestInferenceSplitBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", []string{"3:1"}, []string{`"3:1"`, "flags only"}},
		{"one GPU", []string{"--mix", "3"}, []string{"--mix", `"3"`, "2 to 64 numbers", "such as 10:5"}},
		{"no numbers", []string{"--mix", "a:b"}, []string{"--mix", `"a:b"`}},
		{"a GPU that serves nothing", []string{"--mix", "3:0"}, []string{"--mix", `"3:0"`, "above 0"}},
		{"not busy", []string{"--busy", "0"}, []string{"--busy", `"0"`, "above 0"}},
		{"overloaded", []string{"--busy", "1"}, []string{"--busy", `"1"`, "at most 0.98"}},
		{"few requests", []string{"--requests", "10"}, []string{"--requests", "10", "1000 to 100000000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refuse(t, append([]string{"inference-split"}, tc.args...), tc.says)
		})
	}
}

// refuse runs a command that cannot be carried out: it ends with 2 and says why in a line.
func refuse(t *testing.T, args, says []string) {
	t.Helper()
	code, out, errs := evaluate(args...)
	if code != command.Broken || out != "" || strings.Count(errs, "\n") != 1 {
		t.Errorf("ends with %d, prints %q, says %q", code, out, errs)
	}
	for _, want := range says {
		if !strings.Contains(errs, want) {
			t.Errorf("stderr %q does not say %q", errs, want)
		}
	}
}
