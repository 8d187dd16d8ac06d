package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// howToBuild is what makes Tandem's programs for tests.
const howToBuild = "run make test-programs"

// Program returns the path of one of Tandem's programs that hack/test-programs.sh has built for tests: scheduler, controller,
// controller-fastclock, shadow, activator, agent or tenant. It opens the file, so that Go's test cache runs the test again once
// the program is another.
func Program(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "test", name)
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("find the program %s for tests: %w; %s", name, err, howToBuild)
	}
	file.Close()
	return path, programsAreNew()
}

// programsAreNew looks once, when the tests begin.
var programsAreNew = sync.OnceValue(func() error {
	root, err := Root()
	if err != nil {
		return err
	}
	return newer(root)
})

// newer returns an error if a source is newer than the programs. Another process looks: if this one did, each test would depend
// on the times of all sources, in Go's test cache.
func newer(root string) error {
	cmd := exec.CommandContext(context.Background(), "find", "go.mod", "cmd", "internal", "pkg", "test/fakegpu", "-name", "testdata", "-prune", "-o",
		"-type", "f", "!", "-name", "*_test.go", "-newer", "bin/test/.built", "-print", "-quit")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("compare the programs for tests with their sources: %w; %s", withStderr(err), howToBuild)
	}
	if source := strings.TrimSpace(string(out)); source != "" {
		return fmt.Errorf("the programs for tests are older than %s: %s", source, howToBuild)
	}
	return nil
}
