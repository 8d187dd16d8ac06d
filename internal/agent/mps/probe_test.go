package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/must"
)

// withCanary is an agent on the node whose canary is a shell script.
func (n *node) withCanary(script string, timeout time.Duration) *V2 {
	return NewV2(Options{
		Dir: filepath.Join(n.dir, "mps"), Timeout: time.Minute, CanaryTimeout: timeout, Canary: []string{"sh", "-c", script},
	})
}

func TestProbeReadsTheVerdict(t *testing.T) {
	n := newNode(t)
	n.ensure()
	for name, test := range map[string]struct {
		script string
		want   error
		says   string
	}{
		"well":        {"echo connected; read -r word; [ \"$word\" = begin ] && echo well", nil, ""},
		"full":        {"echo full cuInit: CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", nil, ""},
		"no CUDA":     {"echo no-cuda libcuda.so.1: not found; exit 1", ErrNoCUDA, "libcuda.so.1: not found"},
		"fault":       {"echo connected; read -r word; echo fault cuMemAlloc: CUDA_ERROR_LAUNCH_FAILED; exit 1", ErrFault, "CUDA_ERROR_LAUNCH_FAILED"},
		"failed":      {"echo failed cuInit: CUDA_ERROR_UNKNOWN", nil, "canary: cuInit: CUDA_ERROR_UNKNOWN"},
		"no verdict":  {"echo panic: oh >&2; exit 2", nil, "without a verdict: exit status 2: panic: oh"},
		"half a line": {"printf well; exit 1", nil, "without a verdict"},
		"nonsense":    {"echo very well", nil, "without a verdict"},
	} {
		t.Run(name, func(t *testing.T) {
			err := n.withCanary(test.script, time.Minute).Probe(t.Context(), n.spec())
			if test.want == nil && test.says == "" && err != nil || test.want != nil && !errors.Is(err, test.want) ||
				test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%v, want %v %q", err, test.want, test.says)
			}
		})
	}
}

// late is a context whose time is up when the test says so, so that no test depends on the speed of the machine.
type late struct {
	context.Context
	up chan struct{}
}

func newLate(t *testing.T) late { return late{Context: t.Context(), up: make(chan struct{})} }

func (l late) Done() <-chan struct{} { return l.up }

func (l late) Err() error {
	select {
	case <-l.up:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// probe runs a probe whose time is up once the canary has made a file.
func (n *node) probe(m *V2, file string) error {
	n.t.Helper()
	ctx, done := newLate(n.t), make(chan error, 1)
	go func() { done <- m.Probe(ctx, n.spec()) }()
	eventually(n.t, "the canary has made "+file, func() bool {
		info, err := os.Stat(filepath.Join(n.dir, file))
		return err == nil && info.Size() > 0
	})
	close(ctx.up)
	return <-done
}

func TestProbeOfAServerThatStaysNotReady(t *testing.T) {
	n := newNode(t)
	n.ensure()
	m := n.withCanary("cd "+n.dir+"; [ -e one ] && echo x > two; echo x > one; echo not-ready cuInit: NOT_READY; exit 1", time.Minute)
	if err := n.probe(m, "two"); !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), "NOT_READY") {
		t.Errorf("Probe: %v, want %v", err, ErrFault)
	}
}

// A server that starts, or that is ending a client, refuses newcomers for a moment. That is no fault.
func TestProbeTriesAgainWhereTheServerIsNotReady(t *testing.T) {
	n := newNode(t)
	n.ensure()
	script := "cd " + n.dir + "; echo x >> tries; [ $(wc -l < tries) -ge 3 ] && echo well || echo not-ready yet"
	if err := n.withCanary(script, time.Minute).Probe(t.Context(), n.spec()); err != nil {
		t.Error(err)
	}
}

// A canary that waits for the server when its time is up is the sign of a wedge. It is killed, having no work in flight.
func TestProbeOfAServerThatAcceptsNoClient(t *testing.T) {
	n := newNode(t)
	n.ensure()
	m := n.withCanary("echo $$ > "+n.dir+"/canary; exec sleep 600", time.Minute)
	if err := n.probe(m, "canary"); !errors.Is(err, ErrProbeTimeout) {
		t.Errorf("Probe: %v, want %v", err, ErrProbeTimeout)
	}
	pid := n.canary()
	eventually(t, "the canary has ended", func() bool { return !runs(pid) })
}

func runs(pid int) bool { _, ok := findProcess(pid); return ok }

// free reports whether the next probe may start a canary.
func (n *node) free(m *V2) bool {
	p := &m.device(n.uuid).prober
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck == nil || p.stuck.over()
}

// canary returns the PID that a canary wrote down.
func (n *node) canary() int {
	n.t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.dir, "canary"))
	must.OK(n.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	must.OK(n.t, err)
	return pid
}

// A canary that was let in and is slow says that the device is busy. Its work is in flight, so MPS has to end it before
// it is killed; where MPS cannot, it is left alone, and no other canary joins it.
func TestProbeOfABusyDevice(t *testing.T) {
	const script = `echo $$ > canary; echo connected; read -r word; echo "$word" > began; exec sleep 600`
	for name, test := range map[string]struct {
		clients string
		killed  bool
	}{"listed": {"cat canary", true}, "unknown to MPS": {":", false}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.program(`get_server_list) echo ` + strconv.Itoa(os.Getpid()) + `;; get_server_status*) echo ACTIVE;; get_client_list*) ` + test.clients + `;;
terminate_client*) echo "$line" > terminated;;`)
			// The control program runs where the test does, the canary in the root.
			t.Chdir(n.dir)
			m := n.withCanary("cd "+n.dir+"; "+script, time.Minute)
			if err := n.probe(m, "began"); err != nil {
				t.Errorf("Probe: %v, want none", err)
			}
			pid := n.canary()
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			_, err := os.Stat("began")
			_, terminated := os.Stat("terminated")
			if err != nil || (terminated == nil) != test.killed || !test.killed && !runs(pid) {
				t.Errorf("began: %v, terminated: %v, canary %d runs: %t", err, terminated, pid, runs(pid))
			}
			if test.killed {
				eventually(t, "the canary has ended, and the agent knows", func() bool { return !runs(pid) && n.free(m) })
			}
			_ = os.Remove("began")
			if test.killed {
				err = n.probe(m, "began")
			} else {
				err = m.Probe(t.Context(), n.spec())
			}
			if (err == nil) != test.killed {
				t.Errorf("next Probe: %v", err)
			}
		})
	}
}

func TestProbeWithoutADaemonIsNoSign(t *testing.T) {
	n := newNode(t)
	if err := n.withCanary("echo well", time.Minute).Probe(t.Context(), n.spec()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Probe: %v, want %v", err, ErrNotRunning)
	}
}

func TestProbeOfAServerForOneOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can have a process of another user")
	}
	n := newNode(t)
	cmd := n.selfCommand("")
	cmd.Path, cmd.Args = "/bin/sleep", []string{"sleep", "600"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	n.program(`get_server_list) echo ` + strconv.Itoa(cmd.Process.Pid) + `;; get_server_status*) echo ACTIVE;;`)
	err := n.withCanary("echo well", time.Minute).Probe(t.Context(), n.spec())
	if !errors.Is(err, ErrUnwatched) || errors.Is(err, ErrNoCUDA) || !strings.Contains(err.Error(), "serves user 65534 alone") {
		t.Errorf("Probe: %v, want %v", err, ErrUnwatched)
	}
}

func TestCancelledProbeEndsItsCanary(t *testing.T) {
	n := newNode(t)
	n.ensure()
	ctx, cancel := context.WithCancel(t.Context())
	m := n.withCanary("echo $$ > "+n.dir+"/writing; mv "+n.dir+"/writing "+n.dir+"/canary; exec sleep 600", time.Minute)
	done := make(chan error, 1)
	go func() { done <- m.Probe(ctx, n.spec()) }()
	eventually(t, "the canary runs", func() bool { _, err := os.Stat(filepath.Join(n.dir, "canary")); return err == nil })
	// Other calls for the device do not wait for it.
	if err := m.Ready(t.Context(), n.uuid); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrProbeTimeout) {
		t.Errorf("Probe: %v, want %v", err, context.Canceled)
	}
	pid := n.canary()
	eventually(t, "the canary has ended", func() bool { return !runs(pid) })
}

// The canary is a client of this device's daemon, with the least share, whatever the agent's own environment says.
func TestCanaryHasTheEnvironmentOfAClient(t *testing.T) {
	n := newNode(t)
	n.ensure()
	t.Setenv(PipeVariable, "/elsewhere")
	t.Setenv(MemoryVariable, "0=1M")
	if err := n.withCanary("env | grep ^CUDA_ | sort > "+n.dir+"/env; echo well", time.Minute).Probe(t.Context(), n.spec()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(n.dir, "env"))
	want := strings.Join([]string{
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1", "CUDA_MPS_LOG_DIRECTORY=" + n.control().log,
		"CUDA_MPS_PIPE_DIRECTORY=" + n.control().pipe, "CUDA_VISIBLE_DEVICES=" + n.uuid, "",
	}, "\n")
	if err != nil || string(raw) != want {
		t.Errorf("%q, %v; want %q", raw, err, want)
	}
}

// The canary and the agent speak one protocol.
func TestVerdictsAreReadAsWritten(t *testing.T) {
	for _, v := range []Verdict{VerdictWell, VerdictFull, VerdictNoCUDA, VerdictNotReady, VerdictFault, VerdictFailed} {
		var said transcript
		must.OK(t, Connected(&said))
		must.OK(t, Tell(&said, v, "two\nlines  of\treason"))
		if connected, got, why := parseVerdict(said.String()); !connected || got != v || why != "two lines of reason" {
			t.Errorf("%s was read as %t %s %q", v, connected, got, why)
		}
	}
	var said transcript
	for range maxTranscript {
		_, _ = said.Write([]byte("xyz"))
	}
	if got := len(said.String()); got != maxTranscript {
		t.Errorf("%d bytes are kept, want %d", got, maxTranscript)
	}
}
