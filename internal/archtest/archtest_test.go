package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

const module = "github.com/tandem-gpu/tandem"

// TestRules holds the whole module to the rules.
func TestRules(t *testing.T) {
	violations, packages, err := Violations(filepath.Join("..", ".."), module)
	must.OK(t, err)
	if packages < 5 {
		t.Fatalf("read %d packages: the root of the module is not where the test looks", packages)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

// TestViolations holds the tree under testdata to the rules: it breaks each of them, and its packages pkg/placement,
// cmd/simulator, evaluation and test/papers keep to them.
func TestViolations(t *testing.T) {
	got, _, err := Violations(filepath.Join("testdata", "tree"), module)
	must.OK(t, err)
	want, err := os.ReadFile(filepath.Join("testdata", "violations.txt"))
	must.OK(t, err)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}
