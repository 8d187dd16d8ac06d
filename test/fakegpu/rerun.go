package fakegpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// rerunVariable marks a test program that runs over the fakes already.
const rerunVariable = "TANDEM_FAKEGPU_RERUN"

// Run is the body of a TestMain whose tests load the fake library: m is the *testing.M. The dynamic loader reads
// LD_LIBRARY_PATH only when a program starts, so Run builds the fakes and starts the test program once more over them.
// Tests name their state file with t.Setenv(StateVariable, path).
func Run(m interface{ Run() int }) int {
	if os.Getenv(rerunVariable) != "" {
		return m.Run()
	}
	code, err := rerun()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func rerun() (int, error) {
	dir, err := os.MkdirTemp("", "fakegpu")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := Build(context.Background(), dir); err != nil {
		return 0, err
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(append(os.Environ(), Env(dir, filepath.Join(dir, "state.json"))...), rerunVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
