package main

import (
	"os"
	"sync"
	"syscall"

	"k8s.io/klog/v2"
)

// ending ends the scheduler from within, as a signal would: the scheduler gives its lease back, and the kubelet starts
// it anew.
type ending struct {
	mu    sync.Mutex
	ended bool
	err   error
}

// end ends the scheduler, with success where err is nil. Only the first call counts.
func (e *ending) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	e.ended, e.err = true, err
	if err != nil {
		klog.ErrorS(err, "Ending: the scheduler cannot go on")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		klog.ErrorS(err, "Ending by a signal failed")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// exitCode returns the exit code of the process: 0 or 1 where ending ended it, else the given code.
func (e *ending) exitCode(code int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.ended:
		return code
	case e.err != nil:
		return 1
	}
	return 0
}
