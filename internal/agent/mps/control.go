package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control talks to the daemon in one pair of directories.
type control struct {
	binary    string
	uuid      string
	pipe, log string
	multiUser bool
	timeout   time.Duration
	// launcher is the socket of the MPS host that starts the daemon, empty if this process does.
	launcher string
}

// pidName is the file in which a daemon writes down its PID.
const pidName = controlName + ".pid"

// maxSocketPath is the length of a Unix socket's path less its end (unix(7)): a longer one the daemon could not open.
const maxSocketPath = 107

func (c control) socket() string  { return filepath.Join(c.pipe, "control") }
func (c control) pidFile() string { return filepath.Join(c.pipe, pidName) }

// environ is the environment of the control program: that of this process, without what would make it speak with
// another daemon or see other devices.
func (c control) environ() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CUDA_") {
			env = append(env, e)
		}
	}
	return append(env, visibleVariable+"="+c.uuid, PipeVariable+"="+c.pipe, LogVariable+"="+c.log)
}

// run gives the daemon one command, or several in lines, and returns what it said. The program's exit status says
// whether it reached the daemon (manual page, "quit"); a command that the daemon refuses is not an error here, so read
// back what matters.
func (c control) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.binary)
	cmd.Env = c.environ()
	cmd.Stdin = strings.NewReader(command + "\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	said := strings.TrimSpace(out.String())
	var exit *exec.ExitError
	switch {
	case err == nil:
		return said, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("command %q: %w within %v", command, ErrNoAnswer, c.timeout)
	case ctx.Err() != nil:
		return "", fmt.Errorf("command %q: %w", command, ctx.Err())
	case errors.As(err, &exit):
		return "", fmt.Errorf("command %q: %w: %s", command, ErrNotRunning, said)
	default:
		return "", fmt.Errorf("command %q: %w", command, err)
	}
}

// start starts the daemon, here or in the MPS host.
func (c control) start(ctx context.Context) error {
	if c.launcher != "" {
		return c.launch(ctx)
	}
	return c.startHere(ctx)
}

// startHere starts the daemon in a session of its own, so that signals to the agent's terminal or process group do not
// reach it. The output goes to a file, not to a pipe: a pipe would be the daemon's for life. The file is in memory: a
// full disk is one of the failures that the daemon may report.
func (c control) startHere(ctx context.Context) error {
	fd, err := unix.MemfdCreate("mps-start", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	output := os.NewFile(uintptr(fd), "mps-start")
	defer output.Close()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	args := []string{"-d"}
	if c.multiUser {
		args = append(args, "-multiuser-server")
	}
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = c.environ()
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: it did not start within %v", ErrNoAnswer, c.timeout)
		}
		said, _ := io.ReadAll(io.NewSectionReader(output, 0, maxTranscript))
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}
