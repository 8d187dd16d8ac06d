package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is the rules' view of a package: its production files, whatever their build constraints.
type source struct {
	module  string
	dir     string // slash-separated, below the root
	name    string
	doc     string
	files   []string
	imports []string
	clocks  []string // what the package uses of clock
}

// Violations reads all packages of the module below root and returns what they do against the rules, as "directory: what",
// sorted, and how many packages it read.
func Violations(root, module string) (violations []string, packages int, err error) {
	all, err := readAll(root, module)
	if err != nil {
		return nil, 0, fmt.Errorf("read packages: %w", err)
	}
	graph := graphOf(all)
	for _, p := range all {
		for _, v := range p.violations(graph) {
			violations = append(violations, p.dir+": "+v)
		}
	}
	slices.Sort(violations)
	return violations, len(all), nil
}

// graphOf returns the directories of the module that each directory imports, sorted.
func graphOf(all []*source) map[string][]string {
	graph := make(map[string][]string, len(all))
	for _, p := range all {
		for _, i := range p.imports {
			if dir, ours := strings.CutPrefix(i, p.module+"/"); ours {
				graph[p.dir] = append(graph[p.dir], dir)
			}
		}
		slices.Sort(graph[p.dir])
	}
	return graph
}

// readAll returns all packages of the module below root.
func readAll(root, module string) (all []*source, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != root && skipped(path, d.Name()) {
			return filepath.SkipDir
		}
		p, err := read(root, path, module)
		if p == nil || err != nil {
			return err
		}
		all = append(all, p)
		return nil
	})
	return all, err
}

// skipped reports whether a directory is no part of the module.
func skipped(path, name string) bool {
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

// read returns the package in a directory, nil where there is none or only tests.
func read(root, path, module string) (*source, error) {
	ctx := build.Default
	ctx.UseAllFiles = true
	b, err := ctx.ImportDir(path, 0)
	var none *build.NoGoError
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read package in %s: %w", path, err)
	}
	files := append(slices.Clone(b.GoFiles), b.CgoFiles...)
	if len(files) == 0 {
		return nil, nil
	}
	dir, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	p := &source{module: module, dir: filepath.ToSlash(dir), name: b.Name, doc: b.Doc, files: files, imports: b.Imports}
	for _, f := range files {
		used, err := clocks(filepath.Join(path, f))
		if err != nil {
			return nil, err
		}
		p.clocks = append(p.clocks, used...)
	}
	return p, nil
}

// clocks returns the uses of package time in a file that read the clock or wait.
func clocks(file string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	name := ""
	for _, i := range f.Imports {
		if i.Path.Value == `"time"` {
			name = "time"
			if i.Name != nil {
				name = i.Name.Name
			}
		}
	}
	if name == "" {
		return nil, nil
	}
	var used []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name && slices.Contains(clock, s.Sel.Name) {
				used = append(used, s.Sel.Name)
			}
		}
		return true
	})
	if name == "." {
		used = append(used, "* by a dot import")
	}
	return used, nil
}
