package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// README.md and the guide show of why what the command prints for the cluster of testdata/commands/pages.
func TestPagesShowTheAnswer(t *testing.T) {
	read := func(path string) string {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	printed := read(filepath.Join("testdata", "commands", "pages"))
	root := filepath.Join("..", "..", "..")
	for _, page := range []string{"README.md", filepath.Join("docs", "guides", "kubectl.md")} {
		_, shown, found := strings.Cut(read(filepath.Join(root, page)), "\na/late waits")
		if !found {
			t.Errorf("%s shows no answer about a/late", page)
			continue
		}
		shown, _, _ = strings.Cut("a/late waits"+shown, "```")
		for _, line := range strings.Split(shown, "\n") {
			if line != "…" && !strings.Contains(printed, line+"\n") {
				t.Errorf("%s shows a line that the command does not print: %s", page, line)
			}
		}
	}
}
