package messages

import (
	"strings"
	"testing"
)

// A row is one line of the page, whatever characters its texts have, and a text that differs each time is said to.
func TestWrite(t *testing.T) {
	var page strings.Builder
	sections := []Section{{Title: "Events", Where: "Where.", Rows: []Row{{"Full", "a | b", "It is\nfull.", "Wait."}, {"Other", "", "Else.", "Nothing."}}}}
	findings := []Finding{{"Check", "error", "Why | not.", "docs/guides/install.md#x"}, {"Plain", "note", "Why.", ""}}
	if err := Write(&page, sections, findings, []Refusal{{"tandem-x", "a || b"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## Events\n\nWhere.\n", "| `Full` | a \\| b | It is full. | Wait. |\n", "| `Other` | differs | Else. | Nothing. |\n", "| `tandem-x` | a \\|\\| b |\n",
		"| `Check` | error | Why \\| not. | [guides/install.md#x](../guides/install.md#x) |\n", "| `Plain` | note | Why. |  |\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, page.String())
		}
	}
}
