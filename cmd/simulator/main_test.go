package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/golden"
	"github.com/tandem-gpu/tandem/test/must"
)

// progress is the line that a run of several seconds prints now and then: a loaded machine prints some, an idle one none.
var progress = regexp.MustCompile(`(?m)^[\d.]+ of \d+ runs done after \S+\n`)

// simulate runs the command as a user does, and leaves its progress out.
func simulate(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = execute(args, &o, &e)
	return code, o.String(), progress.ReplaceAllString(e.String(), "")
}

// succeed runs the command and returns what it prints; it says nothing else.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := simulate(args...)
	if code != 0 || errs != "" {
		t.Fatalf("simulator %s ends with %d:\n%s", strings.Join(args, " "), code, errs)
	}
	return out
}

// file writes a file of a test and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.OK(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func TestHelp(t *testing.T) {
	golden.Text(t, "help.txt", succeed(t))
	if diff := cmp.Diff(succeed(t), succeed(t, "--help")); diff != "" {
		t.Errorf("with --help (-without +with):\n%s", diff)
	}
	for _, name := range []string{"run", "map", "snapshot", "jobs"} {
		golden.Text(t, "help_"+name+".txt", succeed(t, name, "--help"))
	}
}

// TestSameBytes: the same seeds give the same bytes, however many runs go at once.
func TestSameBytes(t *testing.T) {
	for name, args := range map[string][]string{
		"run":      {"run", "testdata/scenario.yaml", "-o", "json"},
		"map":      {"map", "testdata/scenario.yaml", "--at", "20m", "-o", "json"},
		"snapshot": {"snapshot", "testdata/scenario.yaml", "--at", "20m"},
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			var got []string
			for _, processors := range []int{1, 8, 8} {
				runtime.GOMAXPROCS(processors)
				got = append(got, succeed(t, args...))
			}
			if got[0] != got[1] || got[1] != got[2] {
				t.Errorf("one processor, eight, eight again differ:\n%s", cmp.Diff(got[0], got[1])+cmp.Diff(got[1], got[2]))
			}
		})
	}
}

func TestRun(t *testing.T) {
	golden.Text(t, "scenario.json", succeed(t, "run", "testdata/scenario.yaml", "-o", "json"))
	golden.Text(t, "scenario.txt", succeed(t, "run", "testdata/scenario.yaml"))
}

func TestMap(t *testing.T) {
	golden.Text(t, "map.json", succeed(t, "map", "testdata/scenario.yaml", "--at", "20m", "-o", "json"))
	golden.Text(t, "map.txt", succeed(t, "map", "testdata/scenario.yaml", "--at", "20m", "--policy", "packed", "--seed", "2"))
}

// TestSnapshot: the written snapshot can be read, and has the moment of the flag.
func TestSnapshot(t *testing.T) {
	raw := succeed(t, "snapshot", "testdata/scenario.yaml", "--at", "20m", "--policy", "packed", "--seed", "2")
	golden.Text(t, "snapshot.json", raw)
	s, err := snapshotjson.Read([]byte(raw))
	must.OK(t, err)
	if s.Source != snapshot.FromSimulator || s.At.Unix() != 20*60 || len(s.Nodes) == 0 {
		t.Errorf("it is of %s, at %v, with %d nodes", s.Source, s.At, len(s.Nodes))
	}
}

// TestOnePolicy: --policy plays one policy alone, with the assertions that are about it, and a scenario without a queue lets others overtake.
func TestOnePolicy(t *testing.T) {
	text, err := os.ReadFile("testdata/scenario.yaml")
	must.OK(t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "queue:") {
			lines = append(lines, line)
		}
	}
	out := succeed(t, "run", file(t, "scenario.yaml", strings.Join(lines, "")), "--policy", "packed", "--seed", "2")
	if !strings.Contains(out, "packed     2") || strings.Contains(out, "tandem") {
		t.Errorf("want the run of packed with seed 2 alone:\n%s", out)
	}
}

// TestFailedAssertions: all of them are told, the results are printed all the same, and the exit code is 1.
func TestFailedAssertions(t *testing.T) {
	code, out, errs := simulate("run", "testdata/failing.yaml")
	if code != command.Failed {
		t.Errorf("ends with %d, want %d", code, command.Failed)
	}
	golden.Text(t, "failing.txt", out)
	golden.Text(t, "failing.stderr.txt", errs)
	_, out, errs = simulate("run", "testdata/failing.yaml", "-o", "json") // whose output may go to a file
	golden.Text(t, "failing.json.stderr.txt", errs)
	if !json.Valid([]byte(out)) {
		t.Errorf("stdout is no JSON:\n%s", out)
	}
}

// TestExamples plays all examples: each holds what it asserts, under several policies.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d examples, want three or more: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			code, out, errs := simulate("run", path)
			if code != 0 || !strings.Contains(out, "assertions hold") {
				t.Errorf("ends with %d:\n%s%s", code, out, errs)
			}
		})
	}
}
