package main

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A group is a section of the navigation.
type group struct {
	Title string
	// Pages are the Markdown files of the group, in order. A path that ends with /* stands for all files of a folder that no
	// group names, by their names.
	Pages []string
}

// groups are the sections of the navigation. Each Markdown file of the documentation belongs to one.
var groups = []group{
	{"Start", []string{"README.md", "docs/guides/install.md", "docs/guides/requests.md", "docs/guides/shadow.md", "docs/comparison.md"}},
	{"Use", []string{"docs/guides/gangs.md", "docs/guides/elastic.md", "docs/guides/inference.md", "docs/guides/notebooks.md",
		"docs/guides/interference.md", "docs/guides/preemption.md", "docs/guides/*"}},
	{"Operate", []string{"docs/guides/operating.md", "docs/guides/kubectl.md", "docs/guides/map.md", "docs/guides/monitoring.md",
		"docs/runbooks.md", "docs/guides/snapshot.md", "docs/guides/security.md", "docs/enforcement.md", "docs/faults.md"}},
	{"Beside and instead of", []string{"docs/guides/beside-*", "docs/guides/migrate-*"}},
	{"Simulate", []string{"docs/guides/simulator.md", "docs/guides/traces.md"}},
	{"Reference", []string{"docs/reference/*"}},
	{"How it works", []string{"docs/choosing.md", "docs/architecture.md", "docs/glossary.md", "docs/*"}},
	{"Experiments", []string{"docs/experiments.md", "docs/experiments/*"}},
	{"Decisions", []string{"docs/decisions/*"}},
	{"Project", []string{"CONTRIBUTING.md", "CHANGELOG.md"}},
}

// arrange returns the groups with the files that exist in place of patterns; a file that is named by itself, or by a pattern
// that says more than that of a folder, is in no other group.
func arrange(fsys fs.FS, groups []group) ([]group, error) {
	files, err := documents(fsys)
	if err != nil {
		return nil, err
	}
	owner := map[string]string{} // by file: the pattern that has it
	for _, g := range groups {
		for _, pattern := range g.Pages {
			for _, f := range files {
				if ok, _ := path.Match(pattern, f); ok && len(pattern) > len(owner[f]) {
					owner[f] = pattern
				}
			}
		}
	}
	var all []group
	for _, g := range groups {
		arranged := group{Title: g.Title}
		for _, pattern := range g.Pages {
			for _, f := range files {
				if owner[f] == pattern {
					arranged.Pages = append(arranged.Pages, f)
				}
			}
		}
		if len(arranged.Pages) > 0 {
			all = append(all, arranged)
		}
	}
	for _, f := range files {
		if owner[f] == "" {
			return nil, fmt.Errorf("arrange pages: no group in tools/site/nav.go has %s", f)
		}
	}
	return all, nil
}

// documents returns the Markdown files of the documentation, by their names.
func documents(fsys fs.FS) ([]string, error) {
	files, err := fs.Glob(fsys, "*.md")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(fsys, "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(name, ".md") {
			files = append(files, name)
		}
		return err
	})
	slices.Sort(files)
	return files, err
}
