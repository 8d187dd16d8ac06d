package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
)

// parseGPUs reads "node name model slots: owner slots kind, …", a device per line.
func parseGPUs(t *testing.T, text string) []gpu {
	t.Helper()
	var all []gpu
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		head, tail, _ := strings.Cut(line, ":")
		var g gpu
		if _, err := fmt.Sscan(head, &g.node, &g.name, &g.model, &g.slots); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		for _, part := range strings.Split(tail, ",") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			var s slice
			if _, err := fmt.Sscan(part, &s.owner, &s.slots, &s.kind); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			g.slices = append(g.slices, s)
		}
		all = append(all, g)
	}
	return all
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestPicture(t *testing.T) {
	datadriven.RunTest(t, "testdata/picture", func(t *testing.T, d *datadriven.TestData) string {
		var width int
		d.ScanArgs(t, "width", &width)
		gpus := parseGPUs(t, d.Input)
		plain := draw(gpus, width, false)
		for _, line := range strings.Split(plain, "\n") {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d columns of %d: %s", n, width, line)
			}
		}
		coloured := draw(gpus, width, true)
		if escapes.ReplaceAllString(coloured, "") != plain || !escapes.MatchString(coloured) {
			t.Errorf("colours change the text:\n%s", coloured)
		}
		return strings.TrimPrefix(plain, "\n")
	})
}

func TestFitKeepsWidth(t *testing.T) {
	for _, text := range []string{"", "a", "abc", "abcdef", "Größe…"} {
		for n := range 8 {
			if got := utf8.RuneCountInString(fit(text, n)); got != n {
				t.Errorf("fit(%q, %d) has %d columns", text, n, got)
			}
		}
	}
}

func TestWrap(t *testing.T) {
	got := wrap("one two three four", 12, "    ")
	if want := "    one two\n    three\n    four\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
