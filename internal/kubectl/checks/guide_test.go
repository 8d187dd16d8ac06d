package checks_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
)

// The guide has a row for each check, with its severity and what it reads, and for no others.
func TestGuide(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guides", "kubectl.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(raw)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 4 && slices.Contains([]string{"error", "warning", "note"}, cells[1]) {
			rows = append(rows, strings.Trim(cells[0], "| `")+" "+cells[1]+" "+strings.Trim(cells[3], "| "))
		}
	}
	var want []string
	for _, c := range checks.All() {
		var needs []string
		for _, s := range c.Needs {
			name, _, _ := strings.Cut(string(s), ".")
			needs = append(needs, name)
		}
		reads := strings.Join(needs, ", ")
		if reads == "" {
			reads = "—"
		}
		want = append(want, c.Name+" "+string(c.Severity)+" "+reads)
	}
	for _, x := range want {
		if !slices.Contains(rows, x) {
			t.Errorf("docs/guides/kubectl.md has no row %q", x)
		}
	}
	if len(rows) != len(want) {
		t.Errorf("docs/guides/kubectl.md has %d rows for %d checks", len(rows), len(want))
	}
}
