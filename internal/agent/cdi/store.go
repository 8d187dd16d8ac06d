package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Store is the folder of the specs, shared with other vendors: it touches only files of our kind.
//
// Callers may use its methods at the same time for different names. Callers must not change the specs that it returns.
type Store struct {
	dir   string
	cache *cdi.Cache

	mu sync.Mutex
	// read holds the content of each file, by file name. Parsing a spec with the driver's libraries takes a third of a
	// millisecond, and the agent reads the folder again and again.
	read map[string]readSpec
}

// readSpec is a spec with the state of its file at the time of the read.
type readSpec struct {
	info fs.FileInfo
	spec Spec
}

// of reports whether the spec comes from this file as it is: the store replaces files and never rewrites them.
func (r readSpec) of(info fs.FileInfo) bool {
	return r.info != nil && os.SameFile(r.info, info) && r.info.ModTime().Equal(info.ModTime()) && r.info.Size() == info.Size()
}

// Open returns the store in dir and creates the folder if it is absent.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open CDI folder: %w", err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("open CDI folder %s: %w", dir, err)
	}
	return &Store{dir: dir, cache: cache, read: map[string]readSpec{}}, nil
}

// Write puts the spec in its file, whole or not at all. Only the runtime, which is root, has to read it: the file is
// not readable for others.
func (s *Store) Write(spec Spec) error {
	if !validName(spec.Name) {
		return fmt.Errorf("write CDI spec: %q is no name of ours", spec.Name)
	}
	raw, err := spec.raw()
	if err != nil {
		return err
	}
	if err := s.cache.WriteSpec(raw, filename(spec.Name)); err != nil {
		return fmt.Errorf("write CDI spec %s: %w", spec.Name, err)
	}
	return nil
}

// Read returns the spec of a name; the error is fs.ErrNotExist where there is none.
func (s *Store) Read(name string) (Spec, error) {
	if !validName(name) {
		return Spec{}, fmt.Errorf("read CDI spec: %q is no name of ours", name)
	}
	return s.readFile(filename(name))
}

func (s *Store) readFile(file string) (Spec, error) {
	path := filepath.Join(s.dir, file)
	info, err := os.Stat(path)
	if err != nil {
		s.forget(file)
		return Spec{}, fmt.Errorf("read CDI spec: %w", err)
	}
	s.mu.Lock()
	known := s.read[file]
	s.mu.Unlock()
	if known.of(info) {
		return known.spec, nil
	}
	read, err := cdi.ReadSpec(path, 0)
	if err != nil {
		return Spec{}, fmt.Errorf("read CDI spec: %w", err)
	}
	spec, err := fromRaw(read.Spec)
	if err != nil {
		return Spec{}, err
	}
	if filename(spec.Name) != file {
		return Spec{}, fmt.Errorf("read CDI spec: %s holds the name %q", path, spec.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[file] = readSpec{info: info, spec: spec}
	return spec, nil
}

func (s *Store) forget(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.read, file)
}

// List returns all specs by name. List leaves out files that it cannot read and names them in the error; the list is
// good without them.
func (s *Store) List() ([]Spec, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	var list []Spec
	var bad []error
	there := map[string]bool{}
	for _, e := range entries {
		if !ours(e.Name()) {
			continue
		}
		there[e.Name()] = true
		spec, err := s.readFile(e.Name())
		switch {
		case err == nil:
			list = append(list, spec)
		case !errors.Is(err, fs.ErrNotExist):
			bad = append(bad, fmt.Errorf("%s: %w", e.Name(), err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.read, func(file string, _ readSpec) bool { return !there[file] })
	return list, errors.Join(bad...)
}

// Remove deletes the spec of a name; one that is not there is no error.
func (s *Store) Remove(name string) error {
	if !validName(name) {
		return fmt.Errorf("remove CDI spec: %q is no name of ours", name)
	}
	if err := s.cache.RemoveSpec(filename(name)); err != nil {
		return fmt.Errorf("remove CDI spec %s: %w", name, err)
	}
	s.forget(filename(name))
	return nil
}

// vendor and class are the two parts of the kind.
var vendor, class, _ = strings.Cut(v1alpha1.CDIKind, "/")

const extension = ".json"

func filename(name string) string {
	return cdi.GenerateTransientSpecName(vendor, class, name) + extension
}

func ours(file string) bool {
	name, ok := strings.CutPrefix(file, cdi.GenerateTransientSpecName(vendor, class, ""))
	if !ok {
		return false
	}
	name, ok = strings.CutSuffix(name, extension)
	return ok && validName(name)
}
