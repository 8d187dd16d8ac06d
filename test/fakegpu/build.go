package fakegpu

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Names of the fakes, which are the names of what they stand for, and of the program that is a tenant.
const (
	LibraryName = "libnvidia-ml.so.1"
	CUDAName    = "libcuda.so.1"
	ControlName = "nvidia-cuda-mps-control"
	TenantName  = "tenant"
)

const packagePath = "github.com/tandem-gpu/tandem/test/fakegpu"

// sources are the sources of the fakes. As a part of this package they also invalidate the cached results of tests over
// other fakes: `go test` does not know that a test builds a program.
//
//go:embed *.go nvml mpscontrol cuda cmd/tenant
var sources embed.FS

// products are the results of Build: a package, its name, and its build flags. The tenant is static, so that it runs in
// a container that holds nothing else.
var products = []struct {
	name, source string
	cgo          bool
}{
	{LibraryName, "/nvml", true},
	{CUDAName, "/cuda", true},
	{ControlName, "/mpscontrol", false},
	{TenantName, "/cmd/tenant", false},
}

// Build builds the fakes and the tenant into dir, which it makes. The build needs the go command, a C compiler and a
// working directory inside of the module. A former result of the same sources stays.
func Build(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build fakes: %w", err)
	}
	key, err := sourceKey()
	if err != nil {
		return fmt.Errorf("build fakes: %w", err)
	}
	done := filepath.Join(dir, ".fakegpu-"+key)
	wanted := []string{done}
	for _, p := range products {
		wanted = append(wanted, filepath.Join(dir, p.name))
	}
	if exist(wanted...) {
		return nil
	}
	for _, p := range products {
		args := []string{"-o", filepath.Join(dir, p.name), packagePath + p.source}
		if p.cgo {
			args = append([]string{"-buildmode=c-shared"}, args...)
		}
		if err := build(ctx, p.cgo, args...); err != nil {
			return err
		}
	}
	// The C headers that come with shared libraries; no program compiles against them.
	_ = os.Remove(filepath.Join(dir, "libnvidia-ml.so.h"))
	_ = os.Remove(filepath.Join(dir, "libcuda.so.h"))
	return os.WriteFile(done, nil, 0o644)
}

func exist(paths ...string) bool {
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			return false
		}
	}
	return true
}

// sourceKey is short for the sources and the Go version.
func sourceKey() (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version())
	err := fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := sources.ReadFile(path)
		fmt.Fprintln(sum, path, len(raw))
		sum.Write(raw)
		return err
	})
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), err
}

func build(ctx context.Context, cgo bool, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	enabled := "0"
	if cgo {
		enabled = "1"
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+enabled)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", args[len(args)-1], err, out)
	}
	return nil
}

// Env returns the variables that put the fakes of dir, driven by the state file, before everything else. Append them
// to os.Environ().
func Env(dir, state string) []string {
	return []string{
		"LD_LIBRARY_PATH=" + before(dir, os.Getenv("LD_LIBRARY_PATH")),
		"PATH=" + before(dir, os.Getenv("PATH")),
		StateVariable + "=" + state,
	}
}

func before(dir, list string) string {
	if list == "" {
		return dir
	}
	return dir + string(os.PathListSeparator) + list
}
