package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/test/must"
)

// TestCopiesAreWhatTheGatewayReplaces: the go.mod of the gateway uses each copy, and the files that a copy
// gets are there.
func TestCopiesAreWhatTheGatewayReplaces(t *testing.T) {
	root, err := Root()
	must.OK(t, err)
	dir := filepath.Join(root, "tools", "gateway")
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	must.OK(t, err)
	for _, c := range copies() {
		if !strings.Contains(string(mod), "\t"+c.module+" => ./"+c.to+"\n") {
			t.Errorf("tools/gateway/go.mod does not replace %s by ./%s", c.module, c.to)
		}
		for _, file := range c.adds {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
	}
	if replaced := strings.Count(string(mod), "=> ./"); replaced != len(copies())+1 { // ext lies in tools/gateway
		t.Errorf("tools/gateway/go.mod replaces %d modules by directories, and %d are copied", replaced, len(copies()))
	}
}
