package fakegpu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Names of the two fakes, which are the names of what they stand for.
const (
	LibraryName = "libnvidia-ml.so.1"
	ControlName = "nvidia-cuda-mps-control"
)

const packagePath = "github.com/tandem-gpu/tandem/test/fakegpu"

// Build builds both fakes into dir, which it makes. It needs the go command, a C compiler and a working directory
// inside of the module. What is up to date is not built again.
func Build(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("build fakes: %w", err)
	}
	library := filepath.Join(dir, LibraryName)
	if err := build(ctx, "-buildmode=c-shared", "-o", library, packagePath+"/nvml"); err != nil {
		return err
	}
	// The C header that comes with a shared library; nobody compiles against it.
	_ = os.Remove(filepath.Join(dir, "libnvidia-ml.so.h"))
	return build(ctx, "-o", filepath.Join(dir, ControlName), packagePath+"/mpscontrol")
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
