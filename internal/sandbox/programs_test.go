package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/must"
)

// writeFiles writes files that were last changed at a time.
func writeFiles(t *testing.T, root string, changed time.Time, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte("module github.com/tandem-gpu/tandem\n"), 0o600))
		must.OK(t, os.Chtimes(path, changed, changed))
	}
}

// repositoryBuilt returns a repository whose programs were built after its sources had last changed, and that time.
func repositoryBuilt(t *testing.T) (root string, built time.Time) {
	t.Helper()
	root, built = t.TempDir(), time.Now().Add(-time.Hour)
	writeFiles(t, root, built.Add(-time.Minute), "go.mod", "cmd/agent/main.go", "internal/a.go", "pkg/b.go", "test/fakegpu/c.go")
	writeFiles(t, root, built, "bin/test/.built", "bin/test/agent")
	return root, built
}

func TestMissingProgramNamesItsCommand(t *testing.T) {
	root, _ := repositoryBuilt(t)
	t.Chdir(filepath.Join(root, "pkg"))
	if path, err := Program("agent"); path != filepath.Join(root, "bin", "test", "agent") {
		t.Errorf("program %s, %v", path, err)
	}
	if _, err := Program("scheduler"); err == nil || !strings.Contains(err.Error(), "scheduler") || !strings.Contains(err.Error(), "run make test-programs") {
		t.Errorf("got %v, want an error that names the program and what builds it", err)
	}
}

func TestProgramsAreNewerThanTheirSources(t *testing.T) {
	root, built := repositoryBuilt(t)
	later := built.Add(time.Minute)
	writeFiles(t, root, later, "pkg/b_test.go", "pkg/testdata/case.txt", "test/integration/main.go", "docs/a.md")
	if err := newer(root); err != nil {
		t.Errorf("nothing that the programs are built from has changed: %v", err)
	}
	for _, source := range []string{"go.mod", "cmd/agent/main.go", "internal/page.html", "pkg/deep/below/d.go", "test/fakegpu/c.go"} {
		root, _ := repositoryBuilt(t)
		writeFiles(t, root, later, source)
		if err := newer(root); err == nil || !strings.Contains(err.Error(), source+": run make test-programs") {
			t.Errorf("%s has changed: %v", source, err)
		}
	}
	must.OK(t, os.Remove(filepath.Join(root, "bin", "test", ".built")))
	if err := newer(root); err == nil || !strings.Contains(err.Error(), "run make test-programs") {
		t.Errorf("nothing says when the programs were built: %v", err)
	}
}
