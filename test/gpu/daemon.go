package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const controlProgram = "nvidia-cuda-mps-control"

// daemon is an MPS daemon of the device, run by the agent's own backend.
type daemon struct {
	*mps.V2
	suite *suite
	dir   string
	spec  mps.DeviceSpec
}

// backend returns a backend in a folder. Its canary is the agent's.
func (s *suite) backend(dir string, multiUser bool) *mps.V2 {
	return mps.NewV2(mps.Options{Dir: dir, MultiUser: multiUser, Canary: []string{s.agent, "canary"}})
}

// newDaemon starts a daemon in a folder of its own.
func (s *suite) newDaemon(spec mps.DeviceSpec, multiUser bool) (*daemon, error) {
	dir, err := s.folder("m")
	if err != nil {
		return nil, err
	}
	spec.UUID = s.uuid
	d := &daemon{V2: s.backend(dir, multiUser), suite: s, dir: dir, spec: spec}
	s.mu.Lock()
	s.daemons = append(s.daemons, d)
	s.mu.Unlock()
	return d, d.Ensure(s.ctx, d.spec)
}

func (d *daemon) pipe() string { return filepath.Join(d.dir, d.spec.UUID, "pipe") }

// env makes a program a client with a share: percent 0 and memory "" set no limit.
func (d *daemon) env(percent int, memory string) []string {
	env := []string{mps.PipeVariable + "=" + d.pipe(), mps.LogVariable + "=" + filepath.Join(d.dir, "client-log")}
	if percent > 0 {
		env = append(env, fmt.Sprintf("%s=%d", mps.PercentVariable, percent))
	}
	if memory != "" {
		env = append(env, mps.MemoryVariable+"="+memory)
	}
	return env
}

// share is the environment that the backend gives to a client, with the pipe where it is here.
func (d *daemon) share(percent int, memory vgpu.Bytes) []string {
	env, _ := d.Environment(mps.ClientSpec{UUID: d.spec.UUID, Percent: percent, Memory: memory})
	for i, e := range env {
		if strings.HasPrefix(e, mps.PipeVariable+"=") {
			env[i] = mps.PipeVariable + "=" + d.pipe()
		}
	}
	return env
}

// say gives the daemon a command, as the words of wrap before the program's name, and returns its answer.
func (d *daemon) say(command string, wrap ...string) (string, error) {
	ctx, cancel := context.WithTimeout(d.suite.ctx, 10*time.Second)
	defer cancel()
	line := append(append([]string{}, wrap...), controlProgram)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = environ(mps.PipeVariable + "=" + d.pipe())
	cmd.Stdin = strings.NewReader(command + "\n")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%q: no answer within 10 s", command)
	}
	return strings.TrimSpace(string(out)), err
}

// pids returns the daemon's process and its servers.
func (d *daemon) pids() (control int, servers []int, err error) {
	seen, err := d.Look(d.suite.ctx, d.spec.UUID)
	if err != nil {
		return 0, nil, err
	}
	for _, s := range seen.Servers {
		servers = append(servers, s.PID)
	}
	return seen.PID, servers, nil
}

// stop ends the daemon, by force where it does not end by itself.
func (d *daemon) stop() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.suite.ctx), 30*time.Second)
	defer cancel()
	if err := d.Stop(ctx, d.spec.UUID); err == nil {
		return
	}
	// Recycle sends SIGKILL to what hangs; the new daemon has no clients and stops.
	if err := d.Recycle(ctx, d.spec); err != nil {
		fmt.Fprintln(d.suite.out, "gpu-test: end an MPS daemon:", err)
	}
	if err := d.Stop(ctx, d.spec.UUID); err != nil {
		fmt.Fprintln(d.suite.out, "gpu-test: end an MPS daemon:", err)
	}
}

// log returns the last lines of the server's log.
func (d *daemon) log(lines int) string {
	raw, err := os.ReadFile(filepath.Join(d.dir, d.spec.UUID, "log", "server.log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}

// drop removes an ended daemon.
func (d *daemon) drop() {
	d.stop()
	d.suite.mu.Lock()
	defer d.suite.mu.Unlock()
	for i, o := range d.suite.daemons {
		if o == d {
			d.suite.daemons = append(d.suite.daemons[:i], d.suite.daemons[i+1:]...)
			return
		}
	}
}

func killed(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
