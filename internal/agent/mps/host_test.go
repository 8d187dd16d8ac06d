package mps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// host starts this program as an MPS host in a process group of its own, as in a container of its own, and returns its
// socket and its PID.
func (n *node) host() (socket string, pid int) {
	n.t.Helper()
	socket = filepath.Join(n.dir, "host.sock")
	cmd := n.self(hostVariable + "=" + filepath.Join(n.dir, "mps") + "," + socket)
	n.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// A connection succeeds before the host has closed its socket to other users. An answer comes after that only.
	eventually(n.t, "the host answers", func() bool {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(tooLong))
		_ = conn.CloseWrite()
		answer, err := io.ReadAll(conn)
		return err == nil && len(answer) > 0
	})
	return socket, cmd.Process.Pid
}

func TestHostStartsTheDaemonForTheAgent(t *testing.T) {
	n := newNode(t)
	socket, host := n.host()
	n.mps = NewV2(Options{Dir: filepath.Join(n.dir, "mps"), MultiUser: true, Launcher: socket, Timeout: time.Minute})
	pid := n.ensure()
	p, _ := findProcess(pid)
	if !strings.Contains(strings.Join(p.words(), " "), "-multiuser-server") {
		t.Errorf("the daemon was started as %q", p.words())
	}
	if got := p.variable(visibleVariable); got != n.uuid {
		t.Errorf("the daemon sees %q, want %q", got, n.uuid)
	}
	// The mark is in the host's environment only.
	if p.variable(hostVariable) == "" {
		t.Error("the daemon was not started by the host")
	}
	if again := n.recycle(n.mps); again == pid {
		t.Error("Recycle did not replace the daemon")
	}
	// An agent without the host adopts the daemon all the same.
	must.OK(t, syscall.Kill(host, syscall.SIGKILL))
	pid = n.pid()
	if got := n.ensure(); got != pid {
		t.Errorf("daemon %d, was %d: not adopted", got, pid)
	}
	n.kill(pid)
	if err := n.mps.Ensure(t.Context(), n.spec()); !errors.Is(err, ErrNoHost) {
		t.Errorf("Ensure without a host: %v, want %v", err, ErrNoHost)
	}
}

func TestHostSaysWhyItCannot(t *testing.T) {
	n := newNode(t)
	n.program("")
	socket, _ := n.host()
	n.mps = NewV2(Options{Dir: filepath.Join(n.dir, "mps"), Launcher: socket, Timeout: time.Minute})
	script := "#!/bin/sh\n[ \"$1\" = -d ] || exit 1\necho out of order; exit 3\n"
	must.OK(t, os.WriteFile(filepath.Join(n.dir, controlName), []byte(script), 0o755))
	if err := n.mps.Ensure(t.Context(), n.spec()); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("Ensure: %v, want what the program said", err)
	}
}

// The daemons would be killed with the host's container; they quit before.
func TestHostEndsInOrder(t *testing.T) {
	n := newNode(t)
	socket, host := n.host()
	n.mps = NewV2(Options{Dir: filepath.Join(n.dir, "mps"), Launcher: socket, Timeout: time.Minute})
	pid, server := n.ensure(), n.server()
	must.OK(t, syscall.Kill(host, syscall.SIGTERM))
	eventually(t, "daemon and server have ended", func() bool { return !isMPS(pid) && !isMPS(server) })
	if log := n.log(); strings.Count(log, "Cmd:"+quitCommand) != 1 {
		t.Errorf("the daemon was not asked to quit:\n%s", log)
	}
	eventually(t, "the host has ended", func() bool { return !runs(host) })
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the host left its socket: %v", err)
	}
}

// A daemon that the host did not start is not its to end.
func TestHostLeavesOtherDaemonsAlone(t *testing.T) {
	n := newNode(t)
	pid := n.ensure()
	_, host := n.host()
	must.OK(t, syscall.Kill(host, syscall.SIGTERM))
	eventually(t, "the host has ended", func() bool { return !runs(host) })
	if err := n.mps.Ready(t.Context(), n.uuid); err != nil || n.pid() != pid {
		t.Errorf("Ready: %v, daemon %d, was %d", err, n.pid(), pid)
	}
}

// ask sends the host any bytes and returns its answer.
func ask(t *testing.T, socket, request string) started {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	must.OK(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(tooLong))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var answer started
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return answer
}

// Nothing but a start for a device can be asked for, and only in the host's own directory.
func TestHostRefusesEverythingElse(t *testing.T) {
	n := newNode(t)
	socket, _ := n.host()
	for request, says := range map[string]string{
		`{"uuid":"../../etc"}` + "\n":                 "not a device UUID",
		`{"uuid":"a/b"}` + "\n":                       "not a device UUID",
		`{"uuid":""}` + "\n":                          "not a device UUID",
		`{}` + "\n":                                   "not a device UUID",
		`{"uuid":".."}` + "\n":                        "not a device UUID",
		`{"uuid":"GPU-1","args":["-f"]}` + "\n":       "unknown field",
		`{"uuid":"GPU-1","binary":"/bin/sh"}` + "\n":  "unknown field",
		`{"uuid":"GPU-1","dir":"/tmp/x"}` + "\n":      "unknown field",
		`{"uuid":7}` + "\n":                           "read request",
		"quit\n":                                      "read request",
		strings.Repeat(" ", 2*maxRequest) + "{}\n":    "read request",
		`{"uuid":"` + strings.Repeat("x", 200) + `"}`: "choose a shorter directory",
		`{"uuid":"GPU-1","multiUser":"yes please"}\n`: "read request",
	} {
		if got := ask(t, socket, request); !strings.Contains(got.Error, says) {
			t.Errorf("%.60q: %q, want %q", request, got.Error, says)
		}
	}
	entries, err := os.ReadDir(n.dir)
	must.OK(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"host.sock", "state.json"}, names); diff != "" {
		t.Errorf("a refused request left something: %s", diff)
	}
	// It serves on.
	if got := ask(t, socket, `{"uuid":"`+n.uuid+`"}`+"\n"); got.Error != "" || !isMPS(n.pid()) {
		t.Errorf("%q, daemon %d", got.Error, n.pid())
	}
	if got := ask(t, socket, `{"uuid":"`+n.uuid+`"}`+"\n"); !strings.Contains(got.Error, "already running") {
		t.Errorf("a second daemon: %q", got.Error)
	}
}

func TestHostIsForItsOwnUserAlone(t *testing.T) {
	n := newNode(t)
	socket, _ := n.host()
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v; want mode 0600", info.Mode(), err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	must.OK(t, os.Chmod(n.dir, 0o755))
	must.OK(t, os.Chmod(socket, 0o666))
	if got := asAnother(t, func() string {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		answer, err := io.ReadAll(conn)
		return fmt.Sprint(string(answer), err)
	}); !strings.Contains(got, "user 65534 may not start MPS") {
		t.Errorf("another user was told %q", got)
	}
	if n.pid() != 0 {
		t.Error("another user started a daemon")
	}
}

// asAnother runs a function with the effective user ID of nobody. That belongs to the thread.
func asAnother(t *testing.T, do func() string) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid uintptr) {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); errno != 0 {
			t.Fatal(errno)
		}
	}
	become(65534)
	defer become(0)
	return do()
}

func TestOneHostOnANode(t *testing.T) {
	n := newNode(t)
	socket, pid := n.host()
	h := Host{Options: Options{Dir: filepath.Join(n.dir, "mps")}}
	if err := h.Run(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "one MPS host") {
		t.Errorf("a second host: %v", err)
	}
	// A host that was killed leaves its socket; the next one takes the place.
	must.OK(t, syscall.Kill(pid, syscall.SIGKILL))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	eventually(t, "the first host is gone", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	go func() { ended <- h.Run(ctx, socket) }()
	eventually(t, "the second host listens", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	// Run does not remove a file that is no socket.
	must.OK(t, os.WriteFile(socket, nil, 0o600))
	if err := h.Run(t.Context(), socket); err == nil {
		t.Error("a file was replaced by a socket")
	}
}
