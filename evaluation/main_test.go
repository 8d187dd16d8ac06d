package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/golden"
	"github.com/tandem-gpu/tandem/test/must"
)

// progress is the line that a run of several seconds prints now and then: a loaded machine prints some, an idle one none.
var progress = regexp.MustCompile(`(?m)^[\d.]+ of \d+ runs done after \S+\n`)

// evaluate runs the command as a user does, and leaves its progress out.
func evaluate(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = execute(args, &o, &e)
	return code, o.String(), progress.ReplaceAllString(e.String(), "")
}

// succeed runs the command and returns what it prints; it says nothing else.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := evaluate(args...)
	if code != 0 || errs != "" {
		t.Fatalf("evaluation %s ends with %d:\n%s", strings.Join(args, " "), code, errs)
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
	for _, name := range []string{"draw", "fragmentation"} {
		golden.Text(t, "help_"+name+".txt", succeed(t, name, "--help"))
	}
}
