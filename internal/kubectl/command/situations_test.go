package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/test/must"
)

// TestSituations: thirty situations are prepared at least, each asks why a pod or a gang waits, each that names changes has them carried
// out, and the guide has all of them. TestDrawn runs them.
func TestSituations(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guides/kubectl.md")
	must.OK(t, err)
	paths, err := filepath.Glob("testdata/situations/*")
	if err != nil || len(paths) < 30 {
		t.Fatalf("%d situations, want 30 at least: %v", len(paths), err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		must.OK(t, err)
		text := string(raw)
		if !strings.HasPrefix(text, "# ") || !strings.Contains(text, "\ntandem\nwhy ") {
			t.Errorf("%s: want a story and a command", path)
		}
		if strings.Contains(text, "Tried on the snapshot") && !strings.Contains(text, "it fits") {
			t.Errorf("%s: no change is carried out", path)
		}
		if row := rowOf(text); !strings.Contains(string(guide), row) {
			t.Errorf("%s: docs/guides/kubectl.md lacks the row\n%s", path, row)
		}
	}
}

// rowOf returns the row of the guide's table: the story of a situation, and the first line of the answer.
func rowOf(text string) string {
	story, rest, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	_, answer, _ := strings.Cut(rest, "\ntandem\n")
	_, answer, _ = strings.Cut(answer, "----\n")
	first, _, _ := strings.Cut(strings.TrimPrefix(answer, "----\n"), "\n")
	return "| " + story + " | " + strings.TrimPrefix(first, "kubectl tandem: ") + " |\n"
}
