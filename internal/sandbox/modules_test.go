package sandbox

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/tandem-gpu/tandem/test/must"
)

// TestModulesShareVersions keeps the first `make demo` short: the control plane and the scheduler are built from many of
// the same packages, and one that differs in its version has all that import it compiled twice, for minutes.
func TestModulesShareVersions(t *testing.T) {
	root, err := Root()
	must.OK(t, err)
	ours, theirs := versions(t, root), versions(t, filepath.Join(root, "tools", "controlplane"))
	shared := 0
	for path, version := range theirs {
		if own, ok := ours[path]; ok {
			shared++
			if own != version {
				t.Errorf("%s is %s in go.mod and %s in tools/controlplane/go.mod: `go get` the newer one in both", path, own, version)
			}
		}
	}
	if shared < 100 {
		t.Errorf("the modules share %d dependencies: the test reads the wrong files", shared)
	}
}

// versions returns the version of each module that a go.mod builds with.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	raw, err := goCommand(t.Context(), dir, "mod", "edit", "-json").Output()
	must.OK(t, err)
	type version struct{ Path, Version string }
	var file struct {
		Require []version
		Replace []struct{ Old, New version }
	}
	must.OK(t, json.Unmarshal(raw, &file))
	all := map[string]string{}
	for _, r := range file.Require {
		all[r.Path] = r.Version
	}
	for _, r := range file.Replace {
		if _, required := all[r.Old.Path]; required {
			all[r.Old.Path] = r.New.Version
		}
	}
	return all
}
