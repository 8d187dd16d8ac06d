package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSituations: thirty situations are prepared at least, each tells what a pod or a gang waits for, and each that names changes has
// them carried out. TestDrawn runs them.
func TestSituations(t *testing.T) {
	paths, err := filepath.Glob("testdata/situations/*")
	if err != nil || len(paths) < 30 {
		t.Fatalf("%d situations, want 30 at least: %v", len(paths), err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if !strings.HasPrefix(text, "# ") || !strings.Contains(text, "\ntandem\nwhy ") {
			t.Errorf("%s: want a story and a command", path)
		}
		if strings.Contains(text, "Tried on the snapshot") && !strings.Contains(text, "it fits") {
			t.Errorf("%s: no change is carried out", path)
		}
	}
}
