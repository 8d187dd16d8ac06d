package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Processes starts programs that end with this process, and stops them in the reverse order of their start.
//
// The kernel sends SIGKILL to a program (PR_SET_PDEATHSIG) when the thread that started it ends. So one thread, which
// lives as long as the set, starts all. Each program leads a process group of its own: Ctrl-C in the terminal reaches
// only this process, which then stops the others in order.
type Processes struct {
	dir     string
	mu      sync.Mutex
	running []*Process
	start   chan func()
}

// Process is one running program.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done
}

// NewProcesses returns an empty set. Output of each program goes to <dir>/<name>.log.
func NewProcesses(dir string) *Processes { return &Processes{dir: dir} }

// Start starts cmd under a name that is unique in the set. Start sets the output, where cmd has none, and SysProcAttr.
func (p *Processes) Start(name string, cmd *exec.Cmd) (*Process, error) {
	process := &Process{name: name, log: filepath.Join(p.dir, name+".log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.OpenFile(process.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = log, log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.start == nil {
		p.start = make(chan func())
		go starter(p.start)
	}
	started := make(chan error)
	p.start <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		process.err = cmd.Wait()
		close(process.done)
	}()
	p.running = append(p.running, process)
	return process, nil
}

// starter runs the functions of the channel on one thread, which ends with the channel.
func starter(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

// Stop ends every program, the latest first, each with the given grace between SIGTERM and SIGKILL.
func (p *Processes) Stop(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, process := range slices.Backward(p.running) {
		process.Stop(grace)
	}
	p.running = nil
	if p.start != nil {
		close(p.start)
		p.start = nil
	}
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that closes when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the program ended, nil for status 0. The value is valid after Done.
func (p *Process) Err() error { return p.err }

// Log returns the path of the file that holds the program's output.
func (p *Process) Log() string { return p.log }

// Tail returns the last n lines of the output.
func (p *Process) Tail(n int) string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return tail(log, n)
}

// Stop ends the program: SIGTERM, then SIGKILL for its process group after the grace, at once when that is 0. Stop
// returns when the program has ended, also when it had ended before.
func (p *Process) Stop(grace time.Duration) {
	select {
	case <-p.done: // another process group may have its number by now
		return
	default:
	}
	if grace > 0 {
		p.signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return
		case <-timer.C:
		}
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *Process) signal(s syscall.Signal) {
	target := p.PID()
	if s == syscall.SIGKILL {
		target = -target // what the program started in its own group goes with it
	}
	if err := syscall.Kill(target, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		fmt.Fprintf(os.Stderr, "stop %s (process %d): %v\n", p.name, p.PID(), err)
	}
}

// failed returns an error with the end of the log if the program has ended, nil while it runs.
func (p *Process) failed() error {
	select {
	case <-p.done:
		reason := p.err
		if reason == nil {
			reason = errors.New("exit status 0")
		}
		return fmt.Errorf("run %s: %w; the end of %s:\n%s", p.name, reason, p.log, p.Tail(25))
	default:
		return nil
	}
}
