package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// busyCommand is the argument with which the program starts itself as a busy loop; its own process ID follows.
const busyCommand = "busy-loop"

// loops are processes that each keep a processor busy. The loops end with stop, and by themselves when their parent is
// gone.
type loops []*exec.Cmd

// startLoops starts so many loops. After a failure the result has those that have started.
func startLoops(count int) (loops, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the busy loops: %w", err)
	}
	started := make(loops, 0, count)
	for range count {
		cmd := exec.Command(self, busyCommand, strconv.Itoa(os.Getpid()))
		if err := cmd.Start(); err != nil {
			return started, fmt.Errorf("start busy loop %d of %d: %w", len(started)+1, count, err)
		}
		started = append(started, cmd)
	}
	return started, nil
}

// stop ends the loops, each by its own process ID.
func (l loops) stop() {
	for _, cmd := range l {
		_ = cmd.Process.Kill() // the process may be gone already
		_ = cmd.Wait()         // the error is that of the SIGKILL
	}
}

// busy counts as long as its parent is the process of the given ID.
func busy(parent string) {
	for strconv.Itoa(os.Getppid()) == parent {
		for count := 0; count < 1<<24; count++ {
		}
	}
}
