package oci

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// library finds the paths in ldd's lines: "libc.so.6 => /lib/…/libc.so.6 (0x…)" and "/lib64/ld-linux… (0x…)".
var library = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)

// libraries returns where on this machine the shared libraries of the program are, by their paths in the image.
func (p Program) libraries() (map[string]string, error) {
	f, err := elf.Open(p.Binary)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.Binary, err)
	}
	defer func() { _ = f.Close() }()
	interpreter := f.Section(".interp")
	if interpreter == nil {
		return nil, nil // static
	}
	if p.Libraries != "" {
		loader, err := interpreter.Data()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p.Binary, err)
		}
		return p.foreign(strings.TrimRight(string(loader), "\x00"))
	}
	out, err := exec.Command("ldd", p.Binary).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", p.Binary, err)
	}
	found := map[string]string{}
	for _, m := range library.FindAllSubmatch(out, -1) {
		found[string(m[1][1:])] = string(m[1])
	}
	return found, nil
}

// foreign finds the libraries of another architecture, which this machine cannot load: those that the program names, and those
// that its libraries name. They lie beside the loader, which looks there first of all.
func (p Program) foreign(loader string) (map[string]string, error) {
	found := map[string]string{loader[1:]: filepath.Join(p.Libraries, filepath.Base(loader))}
	wanted := []string{p.Binary}
	for len(wanted) > 0 {
		f, err := elf.Open(wanted[0])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", wanted[0], err)
		}
		names, err := f.ImportedLibraries()
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", wanted[0], err)
		}
		wanted = wanted[1:]
		for _, name := range names {
			inImage, source := filepath.Join(filepath.Dir(loader), name)[1:], filepath.Join(p.Libraries, name)
			if _, known := found[inImage]; known {
				continue
			}
			if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("find the libraries of %s: %s has no %s", p.Binary, p.Libraries, name)
			}
			found[inImage] = source
			wanted = append(wanted, source)
		}
	}
	return found, nil
}
