package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killAfter is how long a process has to end after SIGTERM.
const killAfter = 5 * time.Second

// processes are the members of a group as processes of their own.
type processes struct {
	ctx     context.Context
	cancel  context.CancelFunc
	errs    io.Writer
	running sync.WaitGroup
}

// newProcesses returns no processes yet. Their stderr goes to errs.
func newProcesses(ctx context.Context, errs io.Writer) *processes {
	ps := &processes{errs: errs}
	ps.ctx, ps.cancel = context.WithCancel(ctx)
	return ps
}

// end ends all processes that still run, and waits for them.
func (ps *processes) end() {
	ps.cancel()
	ps.running.Wait()
}

// process is one of them, with the lines of its report so far.
type process[L any] struct {
	cmd *exec.Cmd

	mu    sync.Mutex
	more  *sync.Cond // a line has come, or the process has ended
	lines []L
	read  int // how many await has passed
	ended bool
}

// start starts this program again with other arguments.
func start[L any](ps *processes, args ...string) (*process[L], error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process[L]{cmd: exec.CommandContext(ps.ctx, program, args...)}
	p.more = sync.NewCond(&p.mu)
	p.cmd.Stderr = ps.errs
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = killAfter
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ps.running.Go(func() { p.follow(out) })
	return p, nil
}

// follow keeps the lines until the process ends.
func (p *process[L]) follow(out io.Reader) {
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		var l L
		if json.Unmarshal(scanner.Bytes(), &l) != nil {
			continue // no line of a report
		}
		p.mu.Lock()
		p.lines = append(p.lines, l)
		p.mu.Unlock()
		p.more.Broadcast()
	}
	_ = p.cmd.Wait() // ProcessState has how it ended
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.more.Broadcast()
}

// await returns the next line for which want is true, and passes over those before it.
func (p *process[L]) await(want func(L) bool) (L, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.read < len(p.lines) {
			l := p.lines[p.read]
			p.read++
			if want(l) {
				return l, nil
			}
		}
		if p.ended {
			var none L
			return none, fmt.Errorf("trainer %s has ended: %v", strings.Join(p.cmd.Args[1:], " "), p.cmd.ProcessState)
		}
		p.more.Wait()
	}
}
