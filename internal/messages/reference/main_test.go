package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// The committed page is the one that the tables make.
func TestPage(t *testing.T) {
	var made strings.Builder
	must.OK(t, run(&made, []string{"../../.."}))
	page, err := os.ReadFile("../../../docs/reference/messages.md")
	must.OK(t, err)
	if diff := cmp.Diff(string(page), made.String()); diff != "" {
		t.Errorf("docs/reference/messages.md differs from the tables: run make generate\n%s", diff)
	}
	for _, want := range []string{"| `tandem-keys` |", "| `DriverMissing` | error |", "| `NoShareFits` |"} {
		if !strings.Contains(made.String(), want) {
			t.Errorf("the page has no row %s", want)
		}
	}
}

// A missing argument is refused.
func TestArguments(t *testing.T) {
	if err := run(&strings.Builder{}, nil); err == nil {
		t.Error("no folder is accepted")
	}
}
