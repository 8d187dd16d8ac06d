// Package licence collects the licence texts of the modules that programs are built from.
//
// A module's texts are those in its own folder, and those in the folders of the packages that are used, up to the module's. A module
// without a text that is a known licence is an error: its code cannot be given away.
package licence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Module is one whose code is in a program.
type Module struct {
	Path, Version string
	// Main marks the module of the programs themselves.
	Main bool
	// Texts are the licences and notices by their paths in the module.
	Texts map[string][]byte
	// Licences are the SPDX identifiers of the licences, in order.
	Licences []string
}

// golang is the name under which the standard library is listed.
const golang = "std"

// textName is what files with a licence, or with the notices that a licence wants to be kept, are called.
var textName = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|copyright|notice|patents)s?([-._].*)?$`)

// patents is what licensecheck calls a promise about patents beside a licence, which SPDX has no name for.
const patents = "GooglePatentsFile"

// known is the part of a text in percent that has to be a known licence. Names and years of authors are most of the rest.
const known = 75

// Of returns the modules of the packages in the order of their paths, the standard library among them. The environment says for which
// platform the packages are built.
func Of(ctx context.Context, root string, env []string, packages ...string) ([]Module, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=Dir,ImportPath,Standard,Module"}, packages...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	raw, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("list packages of %s: %w", strings.Join(packages, " "), err)
	}
	found, err := folders(ctx, raw)
	if err != nil {
		return nil, err
	}
	all := make([]Module, 0, len(found))
	for _, path := range slices.Sorted(maps.Keys(found)) {
		m, err := found[path].read()
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// source is where a module lies, with the folders of its packages that are used.
type source struct {
	Module
	dir      string
	packages map[string]bool
}

// folders reads what go list printed.
func folders(ctx context.Context, raw []byte) (map[string]*source, error) {
	found := map[string]*source{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	for {
		var p struct {
			Dir, ImportPath string
			Standard        bool
			Module          *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		if p.Standard {
			if found[golang] == nil {
				if found[golang], err = standard(ctx); err != nil {
					return nil, err
				}
			}
			continue
		}
		if p.Module == nil {
			return nil, fmt.Errorf("find the module of package %s: it has none", p.ImportPath)
		}
		if found[p.Module.Path] == nil {
			m := Module{Path: p.Module.Path, Version: p.Module.Version, Main: p.Module.Main}
			found[p.Module.Path] = &source{Module: m, dir: p.Module.Dir, packages: map[string]bool{}}
		}
		found[p.Module.Path].packages[p.Dir] = true
	}
}

// standard is Go's own library.
func standard(ctx context.Context) (*source, error) {
	raw, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	lines := strings.Fields(string(raw))
	return &source{Module: Module{Path: golang, Version: strings.TrimPrefix(lines[1], "go")}, dir: lines[0]}, nil
}

// read collects the texts of the module.
func (s *source) read() (Module, error) {
	m := s.Module
	m.Texts = map[string][]byte{}
	dirs := map[string]bool{s.dir: true}
	for dir := range s.packages {
		for ; dir != s.dir && strings.HasPrefix(dir, s.dir); dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	names := map[string]bool{}
	for dir := range dirs {
		if err := m.add(s.dir, dir, names); err != nil {
			return Module{}, err
		}
	}
	m.Licences = slices.Sorted(maps.Keys(names))
	if len(m.Licences) == 0 {
		return Module{}, fmt.Errorf("find the licence of %s %s: none of its files %v is a known licence; read them, and do without the module or teach tools/release/licence the text",
			m.Path, m.Version, slices.Sorted(maps.Keys(m.Texts)))
	}
	return m, nil
}

// add reads the texts in one folder of the module.
func (m *Module) add(root, dir string, names map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("find the licence of %s: %w", m.Path, err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !textName.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		rel, err := filepath.Rel(root, filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		content, err := fs.ReadFile(os.DirFS(root), filepath.ToSlash(rel))
		if err != nil {
			return fmt.Errorf("read the licence of %s: %w", m.Path, err)
		}
		m.Texts[filepath.ToSlash(rel)] = content
		scan := licensecheck.Scan(content)
		if scan.Percent < known {
			continue
		}
		for _, match := range scan.Match {
			if !match.IsURL && match.ID != patents {
				names[match.ID] = true
			}
		}
	}
	return nil
}

// Merge returns the modules of several lists, each once, in the order of their paths.
func Merge(lists ...[]Module) []Module {
	all := map[string]Module{}
	for _, list := range lists {
		for _, m := range list {
			if before, ok := all[m.Path]; ok {
				maps.Copy(m.Texts, before.Texts)
				m.Licences = slices.Compact(slices.Sorted(slices.Values(append(m.Licences, before.Licences...))))
			}
			all[m.Path] = m
		}
	}
	merged := make([]Module, 0, len(all))
	for _, path := range slices.Sorted(maps.Keys(all)) {
		merged = append(merged, all[path])
	}
	return merged
}

// Notices returns all texts as one, for a program that is given away.
func Notices(modules []Module) []byte {
	var b bytes.Buffer
	for _, m := range modules {
		for _, path := range slices.Sorted(maps.Keys(m.Texts)) {
			fmt.Fprintf(&b, "%[1]s\n%[2]s\n%[1]s\n\n%[3]s\n", strings.Repeat("=", 80), strings.TrimSpace(m.Path+" "+m.Version)+": "+path, m.Texts[path])
		}
	}
	return b.Bytes()
}
