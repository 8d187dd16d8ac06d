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

// Names of the two fakes, which are the names of what they stand for.
const (
	LibraryName = "libnvidia-ml.so.1"
	ControlName = "nvidia-cuda-mps-control"
)

const packagePath = "github.com/tandem-gpu/tandem/test/fakegpu"

// sources are what the fakes are built from. Being part of this package they also make `go test` forget the results of
// tests that ran over other fakes: it does not know that a test builds a program.
//
//go:embed *.go nvml mpscontrol
var sources embed.FS

// Build builds both fakes into dir, which it makes. It needs the go command, a C compiler and a working directory
// inside of the module. What was built there before from the same sources is kept.
func Build(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build fakes: %w", err)
	}
	key, err := sourceKey()
	if err != nil {
		return fmt.Errorf("build fakes: %w", err)
	}
	done, library, control := filepath.Join(dir, ".fakegpu-"+key), filepath.Join(dir, LibraryName), filepath.Join(dir, ControlName)
	if exist(done, library, control) {
		return nil
	}
	if err := build(ctx, "-buildmode=c-shared", "-o", library, packagePath+"/nvml"); err != nil {
		return err
	}
	// The C header that comes with a shared library; nobody compiles against it.
	_ = os.Remove(filepath.Join(dir, "libnvidia-ml.so.h"))
	if err := build(ctx, "-o", control, packagePath+"/mpscontrol"); err != nil {
		return err
	}
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

func build(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
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
