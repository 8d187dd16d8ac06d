package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// worker is a process that uses the GPU.
type worker struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan reply
	stderr  bytes.Buffer
	ended   chan struct{}
	ready   reply
	kind    string
	percent int
}

// errNoReply is what a worker says that says nothing in time.
var errNoReply = errors.New("no reply in time")

// patience is how long a worker may take to make a context, or beyond its time to run. The stand-in touches all memory that a real
// driver only maps, which took over 30 seconds on a loaded machine.
const patience = 2 * time.Minute

// environ is this process's environment without the variables that say where CUDA runs.
func environ(extra ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CUDA_") {
			env = append(env, e)
		}
	}
	return append(env, extra...)
}

// launch starts a worker and does not wait until it is ready. The words of wrap stand before its command line.
func (s *suite) launch(kind string, env, wrap []string) (*worker, error) {
	line := append(append([]string{}, wrap...), s.self, "worker", "--", kind)
	if strings.HasPrefix(kind, modelPrefix) {
		line = append(append([]string{}, wrap...), "python3", s.models, strings.TrimPrefix(kind, modelPrefix))
	}
	w := &worker{cmd: exec.Command(line[0], line[1:]...), replies: make(chan reply, 4), ended: make(chan struct{}), kind: kind}
	w.cmd.Env = environ(env...)
	w.cmd.Stderr = &w.stderr
	// When this process ends, however it ends, its workers end too.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	s.adopt(w)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var r reply
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				w.replies <- r
			}
		}
		_ = w.cmd.Wait()
		close(w.ended)
		close(w.replies)
	}()
	return w, nil
}

// start starts a worker and waits until it is ready. A worker that the driver refused comes with the error.
func (s *suite) start(kind string, env ...string) (*worker, error) {
	return s.startIn(nil, kind, env...)
}

// startIn is start with words before the command line.
func (s *suite) startIn(wrap []string, kind string, env ...string) (*worker, error) {
	w, err := s.launch(kind, env, wrap)
	if err != nil {
		return nil, err
	}
	return w, w.await(patience)
}

// await waits until the worker is ready.
func (w *worker) await(limit time.Duration) (err error) {
	w.ready, err = w.reply(limit)
	if err != nil {
		return err
	}
	return w.ready.err()
}

func (w *worker) reply(limit time.Duration) (reply, error) {
	select {
	case r, ok := <-w.replies:
		if !ok {
			return reply{}, fmt.Errorf("worker %s ended: %v: %s", w.kind, w.cmd.ProcessState, lastLine(w.stderr.String()))
		}
		return r, nil
	case <-time.After(limit):
		return reply{}, fmt.Errorf("worker %s: %w: %v", w.kind, errNoReply, limit)
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// tell sends an order.
func (w *worker) tell(o order) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = w.in.Write(append(raw, '\n'))
	return err
}

// ask sends an order and waits for the answer. An error of the driver is in the reply, and is no error of the call.
func (w *worker) ask(o order) (reply, error) {
	if err := w.tell(o); err != nil {
		return reply{}, err
	}
	return w.reply(time.Duration(o.Millis)*time.Millisecond + patience)
}

// run works for a while and returns the rate.
func (w *worker) run(d time.Duration) (reply, error) {
	r, err := w.ask(order{Do: "run", Millis: int(d / time.Millisecond)})
	if err != nil {
		return r, err
	}
	return r, r.err()
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// quit makes the worker end in order, and sends SIGKILL where it does not.
func (w *worker) quit() {
	_ = w.tell(order{Do: "quit"})
	_ = w.in.Close()
	select {
	case <-w.ended:
	case <-time.After(5 * time.Second):
		w.kill()
	}
}

// kill sends SIGKILL to the worker, and to what it runs in.
func (w *worker) kill() {
	_ = syscall.Kill(-w.pid(), syscall.SIGKILL)
	select {
	case <-w.ended:
	case <-time.After(10 * time.Second): // in the kernel's hands
	}
}

// together has workers work at the same time and returns what each did.
func together(workers []*worker, d time.Duration) ([]reply, error) {
	replies, errs := make([]reply, len(workers)), make([]error, len(workers))
	var wait sync.WaitGroup
	for i, w := range workers {
		wait.Go(func() { replies[i], errs[i] = w.run(d) })
	}
	wait.Wait()
	return replies, errors.Join(errs...)
}
