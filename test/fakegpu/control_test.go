package fakegpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// controller runs the fake control program in directories of its own.
type controller struct {
	t    *testing.T
	path string // of the program; the test's PATH has the fakes first
	dir  string
	env  []string
}

func newController(t *testing.T, uuid string) *controller {
	t.Helper()
	path, err := exec.LookPath(fakegpu.ControlName)
	must.OK(t, err)
	dir, err := os.MkdirTemp("", "ctl")
	must.OK(t, err)
	c := &controller{t: t, path: path, dir: dir}
	c.env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+dir+"/pipe", "CUDA_MPS_LOG_DIRECTORY="+dir+"/log", "CUDA_VISIBLE_DEVICES="+uuid)
	t.Cleanup(func() {
		if raw, err := os.ReadFile(dir + "/pipe/nvidia-cuda-mps-control.pid"); err == nil {
			if pid, err := strconv.Atoi(string(raw)); err == nil && isDaemonOf(pid, dir) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		_ = os.RemoveAll(dir)
	})
	return c
}

// run returns what the program printed and its exit status.
func (c *controller) run(commands string, args ...string) (string, int) {
	c.t.Helper()
	cmd := exec.Command(c.path, args...)
	cmd.Env = c.env
	cmd.Stdin = strings.NewReader(commands)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

func (c *controller) expect(commands, want string, status int, args ...string) {
	c.t.Helper()
	got, code := c.run(commands, args...)
	if diff := cmp.Diff(want, got); diff != "" || code != status {
		c.t.Errorf("%q %v: exit status %d, want %d; %s", commands, args, code, status, diff)
	}
}

func TestDaemonEndsWithItsDirectory(t *testing.T) {
	write(t, node(t, "A100", 1))
	c := newController(t, "GPU-1")
	c.expect("", "", 0, "-d")
	raw, err := os.ReadFile(c.dir + "/pipe/nvidia-cuda-mps-control.pid")
	must.OK(t, err)
	must.OK(t, os.RemoveAll(c.dir))
	for deadline := time.Now().Add(patience); running(string(raw)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("daemon %s outlives its directory", raw)
		}
	}
}

// running says whether a process lives; a zombie does not.
func running(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestControlProgram(t *testing.T) {
	s := node(t, "A100", 1)
	write(t, s)
	c := newController(t, s.Devices[0].UUID)
	c.expect("get_server_list", "Cannot find MPS control daemon process", 1)
	c.expect("", "", 0, "-d")
	c.expect("", "An instance of this daemon is already running", 1, "-d")
	c.expect("", "usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]", 1, "--help")
	c.expect("get_server_list", "", 0)
	c.expect("dance", `Unknown command "dance"`, 0)

	// A server keeps the defaults of its start; new defaults are for the next.
	c.expect("set_default_active_thread_percentage 30\nset_default_device_pinned_mem_limit 0 900M\nstart_server -uid 0", "", 0)
	server, _ := c.run("get_server_list")
	if _, err := strconv.Atoi(server); err != nil {
		t.Fatalf("server list %q", server)
	}
	c.expect("set_default_active_thread_percentage 60\nset_default_device_pinned_mem_limit 0 3G", "", 0)
	c.expect("get_active_thread_percentage "+server+"\nget_device_pinned_mem_limit "+server+" 0", "30.0\n900M", 0)
	c.expect("get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0", "60.0\n3G", 0)
	c.expect("set_active_thread_percentage "+server+" 10\nget_active_thread_percentage "+server, "10.0", 0)
	for _, bad := range []string{"0", "101", "x", ""} {
		c.expect("set_default_active_thread_percentage "+bad, "Invalid active thread percentage", 0)
	}
	for _, bad := range []string{"5", "5K", "-1G", "G"} {
		c.expect("set_default_device_pinned_mem_limit 0 "+bad, "Invalid device memory limit", 0)
	}

	c.expect("get_client_list "+server, "", 0)
	c.expect("terminate_client "+server+" 9", "Client not found: 9", 0)
	c.expect("get_server_status "+server, "ACTIVE", 0)
	c.expect("get_server_status 1", "Server not found: 1", 0)
	c.expect("quit", "", 0)
	c.expect("get_server_list", "Cannot find MPS control daemon process", 1)
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		left, err := filepath.Glob(c.dir + "/pipe/*")
		if err == nil && len(left) == 1 && filepath.Base(left[0]) == "control_lock" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("quit left %v, %v", left, err)
		}
	}
}

// isDaemonOf reports whether a process was started with the pipe directory of a test: numbers are used again.
func isDaemonOf(pid int, dir string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(environ, []byte("CUDA_MPS_PIPE_DIRECTORY="+dir+"/pipe\x00"))
}
