package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Switch is the environment variable that turns the tests on.
	Switch = "TANDEM_E2E"
	// stageVariable says in which of its three stages the test binary is.
	stageVariable = "TANDEM_E2E_STAGE"
	stageInit     = "init"
	stageTests    = "tests"
)

// kubeletDir is where the kubelet looks for device plugins, whatever --root-dir says.
const kubeletDir = "/var/lib/kubelet"

// nodeIP is the node's address. The kubelet refuses loopback addresses.
const nodeIP = "10.87.0.1"

// Main is what TestMain of this package returns: it runs the tests inside of the namespaces. Without the Switch it just
// runs them, and each skips itself.
func Main(run func() int) int {
	if os.Getenv(Switch) == "" {
		return run()
	}
	switch os.Getenv(stageVariable) {
	case stageInit:
		return report(asInit())
	case stageTests:
		return run()
	default:
		return report(outside())
	}
}

// errTests: the tests failed, and have said why.
var errTests = errors.New("the tests failed")

// report prints an error and returns the exit status.
func report(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTests):
		return 1
	default:
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
}

// outside prepares a run, starts it in its namespaces and clears up.
func outside() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := theLayout()
	if err := checkMachine(); err != nil {
		return err
	}
	unlock, err := lock(l.root + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if err := sweep(l); err != nil {
		return err
	}
	if err := prepare(ctx, l); err != nil {
		return errors.Join(err, sweep(l))
	}
	if err := enter(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: the logs of this run are in %s until the next run\n", l.root)
		return errors.Join(err, removeControlGroups(), removeKubeletDir(l))
	}
	return sweep(l)
}

// prepare makes all that the run finds in its layout.
func prepare(ctx context.Context, l layout) error {
	for _, dir := range []string{"bin", "fakes", "devroot", "images", "log", "kubelet", "controlplane"} {
		if err := os.MkdirAll(l.path(dir), 0o755); err != nil {
			return fmt.Errorf("make folder of the run: %w", err)
		}
	}
	if err := build(ctx, l); err != nil {
		return err
	}
	if err := writeImages(l); err != nil {
		return err
	}
	if os.Getenv(installSwitch) != "" {
		if err := buildInstalled(ctx, l); err != nil {
			return err
		}
	}
	if err := makeKubeletDir(l); err != nil {
		return err
	}
	return makeControlGroups()
}

// enter runs this binary again as the init process of new namespaces. The kernel ends it, and with it all that runs in
// there, when this process ends (PR_SET_PDEATHSIG counts by thread, so this one stays).
func enter(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stageVariable+"="+stageInit)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return errTests
	}
	return err
}

// asInit sets the namespaces up, starts the tests and collects the orphans that fall to process 1.
func asInit() error {
	if err := mountAll(theLayout()); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stageVariable+"="+stageTests)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start tests: %w", err)
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait for tests: %w", err)
		case pid == cmd.Process.Pid && status.ExitStatus() == 0:
			return nil
		case pid == cmd.Process.Pid:
			return errTests
		}
	}
}

// mountAll gives the run its own view of the folders with fixed paths.
func mountAll(l layout) error {
	mounts := []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE}, // no mount of the run is visible outside
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/run", "tmpfs", 0},
		{"tmpfs", "/dev/shm", "tmpfs", 0},
		{l.kubelet(), kubeletDir, "", unix.MS_BIND},
		{l.logs(), "/var/log", "", unix.MS_BIND},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

// network brings loopback up and adds the node's address on a pair of interfaces that leads nowhere.
func network() error {
	commands := []string{
		"link set lo up",
		"link add node0 type veth peer name node1",
		"addr add " + nodeIP + "/24 dev node0",
		"link set node0 up",
		"link set node1 up",
		"route add default dev node0", // the kubelet and the API server look for the interface of the default route
	}
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("run ip %s: %w: %s", c, err, out)
		}
	}
	return nil
}
