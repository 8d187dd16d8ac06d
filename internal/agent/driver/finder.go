package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
)

// Options say where the host has the driver.
type Options struct {
	// Root is the host's folder of the driver: "/" for packages, "/run/nvidia/driver" for NVIDIA's driver container.
	// Empty is "/".
	Root string
	// HostRoot is the folder in which this process sees the root of the host, for example "/host". Empty is "/": host
	// paths are the same here.
	HostRoot string
}

// ErrNoHook is returned by Edits where the host has no hook program: with the libraries alone, a container has them and
// its loader does not find them.
var ErrNoHook = errors.New("the host has no nvidia-cdi-hook: install NVIDIA Container Toolkit 1.17.8 or newer")

// ErrNoLibraries is returned by Edits where the driver's folder has no libcuda.so of the version.
var ErrNoLibraries = errors.New("the driver's folder has no libcuda.so of the version of the kernel driver")

// Finder finds the edits once for a version of the driver and remembers them as long as their files are there. The
// finder does not keep a failure. Callers may use its methods at the same time.
type Finder struct {
	options Options

	mu      sync.Mutex
	version string
	found   cdi.Edits
}

// New returns a finder.
func New(o Options) *Finder {
	for _, path := range []*string{&o.Root, &o.HostRoot} {
		*path = filepath.Join("/", *path)
	}
	return &Finder{options: o}
}

// Edits returns the edits of every container of the node for a version of the driver ("580.95.05"). Libraries of
// another version do not work with the kernel driver, so it leaves them out. The caller must not change it.
func (f *Finder) Edits(version string) (cdi.Edits, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version == version && f.current() {
		return f.found, nil
	}
	found, err := f.options.find(version)
	if err != nil {
		return cdi.Edits{}, fmt.Errorf("find libraries of driver %s under %s: %w", version, f.options.local(f.options.Root), err)
	}
	f.version, f.found = version, found
	return found, nil
}

// current reports whether the files are still there: an administrator may replace the driver while the agent runs, and
// the runtime refuses a container whose mount has no source.
func (f *Finder) current() bool {
	for _, m := range f.found.Mounts {
		if _, err := os.Stat(f.options.local(m.Host)); err != nil {
			return false
		}
	}
	return len(f.found.Mounts) > 0
}

// local returns where this process sees a path of the host.
func (o Options) local(path string) string { return filepath.Join(o.HostRoot, path) }

// onHost returns the host's name of a path of this process, and false for a path that is not the host's: an absolute
// link below HostRoot leads there.
func (o Options) onHost(path string) (string, bool) {
	rel, err := filepath.Rel(o.HostRoot, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.Join("/", rel), true
}

// hooks lists where the hook program is: by package, by NVIDIA's GPU operator, by hand. Source: NVIDIA Container
// Toolkit 1.19.
var hooks = []string{
	"/usr/bin/nvidia-cdi-hook", "/usr/local/nvidia/toolkit/nvidia-cdi-hook", "/usr/local/bin/nvidia-cdi-hook",
}

// ldconfigs lists ldconfig, the better first: Ubuntu's /sbin/ldconfig is a shell script around the real one, and the
// hook needs the program.
var ldconfigs = []string{"/sbin/ldconfig.real", "/sbin/ldconfig"}

// first returns the first of the host's paths that is a program here, "" where none is.
func (o Options) first(paths []string) string {
	for _, path := range paths {
		if info, err := os.Stat(o.local(path)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// find queries nvcdi. A missing hook or libcuda, which would break a container at its start, is an error.
func (o Options) find(version string) (cdi.Edits, error) {
	if version == "" {
		return cdi.Edits{}, errors.New("the version is not known")
	}
	root, err := filepath.EvalSymlinks(o.local(o.Root))
	if err != nil {
		return cdi.Edits{}, err
	}
	if _, ok := o.onHost(root); !ok {
		return cdi.Edits{}, fmt.Errorf("it is a link that leads out of %s, to %s", o.HostRoot, root)
	}
	hook := o.first(hooks)
	raw, err := ask(question{root: root, hook: hook, ldconfig: o.first(ldconfigs)}, answers{version: version})
	if err != nil {
		return cdi.Edits{}, err
	}
	edits, err := o.keep(raw)
	if err != nil {
		return cdi.Edits{}, err
	}
	if !hasCUDA(edits.Mounts, version) {
		return cdi.Edits{}, ErrNoLibraries
	}
	if hook == "" {
		return cdi.Edits{}, fmt.Errorf("%w (looked under %s for %s)", ErrNoHook, o.HostRoot, strings.Join(hooks, ", "))
	}
	return edits, nil
}

func hasCUDA(mounts []cdi.Mount, version string) bool {
	for _, m := range mounts {
		if filepath.Base(m.Container) == "libcuda.so."+version {
			return true
		}
	}
	return false
}
