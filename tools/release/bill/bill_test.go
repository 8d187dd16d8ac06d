package bill

import (
	"bytes"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"

	"github.com/tandem-gpu/tandem/tools/release/licence"
)

// A reader of the format finds each module once, with the licences of all packages that programs use, and which program has it.
func TestJSON(t *testing.T) {
	shared := licence.Module{Path: "example.com/a_b", Version: "v1.2.3", Licences: []string{"MIT"}}
	wider := licence.Module{Path: "example.com/a_b", Version: "v1.2.3", Licences: []string{"BSD-3-Clause", "MIT"}}
	own := licence.Module{Path: "github.com/tandem-gpu/tandem", Main: true}
	b := Bill{Version: "v0.1.0", Revision: "5c7d74f", Created: time.Date(2026, 11, 27, 14, 0, 0, 0, time.FixedZone("", 3600)), Programs: map[string][]licence.Module{
		"tandem-scheduler": {shared, own}, "kubectl-tandem": {own, wider},
	}}
	raw, err := b.JSON()
	if err != nil {
		t.Fatal(err)
	}
	document, err := spdxjson.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if got := document.CreationInfo.Created; got != "2026-11-27T13:00:00Z" {
		t.Errorf("created at %s", got)
	}
	if len(document.Packages) != 3 {
		t.Fatalf("%d packages, want two programs and a module", len(document.Packages))
	}
	m := document.Packages[2]
	if m.PackageName != shared.Path || m.PackageVersion != "v1.2.3" || m.PackageLicenseDeclared != "BSD-3-Clause AND MIT" ||
		m.PackageExternalReferences[0].Locator != "pkg:golang/example.com/a_b@v1.2.3" {
		t.Errorf("the module is %+v", m)
	}
	users := 0
	for _, r := range document.Relationships {
		if r.Relationship == common.TypeRelationshipDependsOn && r.RefB.ElementRefID == m.PackageSPDXIdentifier {
			users++
		}
	}
	if users != 2 {
		t.Errorf("%d programs have the module, want 2", users)
	}
}
