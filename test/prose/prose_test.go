package prose

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// TestProse reads all pages and comments of the repository.
func TestProse(t *testing.T) {
	root, read := filepath.Join("..", ".."), 0
	must.OK(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (name == "testdata" || name == "bin" || name == "dist" || strings.HasPrefix(name, ".") && name != ".github") {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".md" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var mistakes []Mistake
		if filepath.Ext(path) == ".md" {
			mistakes = Page(string(raw))
		} else if mistakes, err = Comments(path, raw); err != nil {
			return err
		}
		for _, m := range mistakes {
			t.Errorf("%s:%d: %s: %q", strings.TrimPrefix(path, root+"/"), m.Line, m.Help, m.Found)
		}
		read++
		return nil
	}))
	if read < 1000 {
		t.Errorf("read %d files: the root of the repository is not where the test looks", read)
	}
}

func TestPage(t *testing.T) {
	const subject, zero = "begin the sentence with its subject", "write the zero before the point"
	for _, test := range []struct {
		text string
		want []Mistake
	}{
		{"The agent writes it. What it writes stays.", []Mistake{{1, "What it writes stays.", subject}}},
		{"Of two equal nodes the first is taken.", []Mistake{{1, "Of two equal nodes the first is taken.", subject}}},
		{"* Where a long sentence goes on and on it is cut.", []Mistake{{1, "Where a long sentence goes on and on …", subject}}},
		{"| field | What it is for |", []Mistake{{1, "What it is for |", subject}}},
		{"**Who may** do it.", []Mistake{{1, "Who may** do it.", subject}}},
		{"What does it cost? Nothing.", nil},
		{"# What a tenant gets", nil},
		{"The agent knows what it writes, and where.", nil},
		{"```\nWhat this prints is code.\n```\nThen .5 of it.", []Mistake{{4, ".5", zero}}},
		{"<!-- What is hidden\nOf old -->\nA share of 0.5, `.5` in code, v1.37, a/.5x and the file x.5", nil},
		{"(.25) or −.5, ±.1", []Mistake{{1, ".25", zero}, {1, "−.5", zero}, {1, ".1", zero}}},
	} {
		if diff := cmp.Diff(test.want, Page(test.text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
	}
}

func TestComments(t *testing.T) {
	got, err := Comments("a.go", []byte(`// Package a is one. Who reads it is wrong.
package a

// Of returns what is asked for.
//
//	What is code stays.
//
// Where it ends is a sentence of two
// lines.
func Of() {}

//go:generate What is a directive stays
type T struct {
	What int // What is the field's name.
	Else int // What is no name.
}

var _ = "What is a string stays. Of course."
`))
	must.OK(t, err)
	want := []Mistake{
		{1, "Who reads it is wrong.", "begin the sentence with its subject"},
		{4, "Where it ends is a sentence of two …", "begin the sentence with its subject"},
		{15, "What is no name.", "begin the sentence with its subject"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
