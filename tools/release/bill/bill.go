// Package bill writes the bill of materials of a release in the format of SPDX 2.3: which modules, in which versions and under which
// licences, are in which program.
package bill

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/tandem-gpu/tandem/tools/release/licence"
)

// Bill is that of a release.
type Bill struct {
	Version, Revision string
	// Created is the time of the commit.
	Created time.Time
	// Programs are the modules of each program.
	Programs map[string][]licence.Module
}

// JSON returns the text of the bill.
func (b Bill) JSON() ([]byte, error) {
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: "tandem-" + b.Version,
		DocumentNamespace: "https://github.com/tandem-gpu/tandem/spdx/" + b.Version + "/" + b.Revision,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "tandem-release"}}, Created: b.Created.UTC().Format(time.RFC3339),
		},
	}
	modules := map[string]licence.Module{}
	for _, program := range slices.Sorted(maps.Keys(b.Programs)) {
		id := common.ElementID("Program-" + program)
		document.Packages = append(document.Packages, b.program(id, program))
		document.Relationships = append(document.Relationships, related("DOCUMENT", id, common.TypeRelationshipDescribe))
		for _, m := range b.Programs[program] {
			if !m.Main {
				m.Licences = union(modules[m.Path].Licences, m.Licences)
				modules[m.Path] = m
				document.Relationships = append(document.Relationships, related(id, identifier(m), common.TypeRelationshipDependsOn))
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		document.Packages = append(document.Packages, dependency(modules[path]))
	}
	var buf bytes.Buffer
	if err := spdxjson.Write(document, &buf, spdxjson.Indent("  ")); err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	return buf.Bytes(), nil
}

// union returns the licences of both lists in order, each once: programs use different packages of a module, which may have licences
// of their own.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// program describes one of ours.
func (b Bill) program(id common.ElementID, name string) *spdx.Package {
	return &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: id, PackageVersion: b.Version, PrimaryPackagePurpose: "APPLICATION",
		PackageDownloadLocation: "https://github.com/tandem-gpu/tandem/releases/tag/" + b.Version,
		PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: "NOASSERTION",
	}
}

// dependency describes a module.
func dependency(m licence.Module) *spdx.Package {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	return &spdx.Package{
		PackageName: m.Path, PackageSPDXIdentifier: identifier(m), PackageVersion: m.Version, PrimaryPackagePurpose: "LIBRARY",
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION",
		PackageLicenseDeclared: strings.Join(m.Licences, " AND "), PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: url}},
	}
}

// other are the characters that an identifier of SPDX cannot have.
var other = regexp.MustCompile(`[^A-Za-z0-9.-]`)

func identifier(m licence.Module) common.ElementID {
	return common.ElementID("Module-" + other.ReplaceAllString(m.Path, "-"))
}

func related(from, to common.ElementID, kind string) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to}, Relationship: kind,
	}
}
