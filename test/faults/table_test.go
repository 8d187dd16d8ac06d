package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// head is the table's first line.
const head = "| fault | how it is found | found after | back after | what pods see | what the operator sees |"

// line is a row as the document has it.
func (r Row) line(figures string) string {
	return "| " + strings.Join([]string{r.Name, r.How, figures, r.Pods, r.Operator}, " | ") + " |"
}

// The table of docs/faults.md has the rows that are measured, with the words that stand here; only the figures are the
// document's own.
func TestDocument(t *testing.T) {
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "docs", "faults.md"))
	must.OK(t, err)
	_, rest, ok := strings.Cut(string(raw), head+"\n")
	if !ok {
		t.Fatalf("docs/faults.md has no line %q", head)
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(strings.TrimSpace(table), "\n")[1:] // below the rule
	var have, want []string
	for _, line := range lines {
		cells := strings.Split(line, " | ")
		if len(cells) != 6 {
			t.Errorf("a row of %d cells, want 6: %s", len(cells), line)
			continue
		}
		if cells[2] == "" || cells[3] == "" {
			t.Errorf("a row without figures: %s", line)
		}
		cells[2], cells[3] = "", ""
		have = append(have, strings.Join(cells, " | "))
	}
	for _, r := range Rows() {
		want = append(want, r.line(" | "))
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("docs/faults.md has other rows than are measured: run go test ./test/faults -run TestTable -table -v and copy what it prints (-want +got):\n%s", diff)
	}
}

// Every row has a measurement or says why not, and none both.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows() {
		if (r.measure == nil) == (r.Figures == "") {
			t.Errorf("%s: wants either a measurement or a reason for none", r.Name)
		}
		if r.Name == "" || r.How == "" || r.Pods == "" || r.Operator == "" || seen[r.Name] {
			t.Errorf("%q is incomplete, or there twice", r.Name)
		}
		seen[r.Name] = true
	}
}

// TestTable makes each fault once, checks that it is found and that the device comes back, and prints the table.
func TestTable(t *testing.T) {
	if !*table {
		t.Skip("minutes of waiting for default intervals: pass -table")
	}
	w := theWorld(t)
	rows := slices.DeleteFunc(Rows(), func(r Row) bool { return !strings.Contains(r.Name, *row) })
	lines := make([]string, len(rows))
	turn := make(chan struct{}, *together)
	var all sync.WaitGroup
	for i, r := range rows {
		if r.measure == nil {
			lines[i] = r.line(r.Figures + " | –")
			continue
		}
		if os.Geteuid() != 0 && strings.HasPrefix(r.Name, "Disk full") {
			lines[i] = r.line("not measured: needs root | –")
			continue
		}
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			times, err := w.Measure(t.Context(), r)
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
			lines[i] = r.line(times.String())
		})
	}
	all.Wait()
	t.Logf("\n%s\n|---|---|---|---|---|---|\n%s", head, strings.Join(lines, "\n"))
}
