package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/test/gpu/record"
)

// suite is a run of the parts on one GPU.
type suite struct {
	ctx    context.Context
	out    io.Writer
	report *record.Report
	// self is this program, models the one in Python, agent the agent's.
	self, models, agent string
	// devRoot is the folder that has dev/nvidia0 in it.
	devRoot string
	// dir is a short folder for sockets.
	dir string
	// window is how long one measurement of throughput takes, repeat the number of most measurements.
	window time.Duration
	repeat int
	// end is the time after which no figure begins any more.
	end time.Time
	// cut says that a figure is missing for want of time.
	cut bool
	// uuid of the device.
	uuid string

	mu      sync.Mutex
	workers []*worker
	daemons []*daemon
}

// errCut says that the time was up.
var errCut = errors.New("the time of this run is up")

func (s *suite) adopt(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = append(s.workers, w)
}

// clean ends all workers and daemons of the suite.
func (s *suite) clean() {
	s.mu.Lock()
	workers, daemons := s.workers, s.daemons
	s.workers, s.daemons = nil, nil
	s.mu.Unlock()
	var wait sync.WaitGroup
	for _, w := range workers {
		select {
		case <-w.ended:
		default:
			wait.Go(w.quit)
		}
	}
	wait.Wait()
	for _, d := range daemons {
		d.stop()
	}
}

// due reports whether a figure is still missing, and there is time for it.
func (s *suite) due(name string) bool {
	if s.report.Has(name) {
		return false
	}
	if time.Now().After(s.end) || s.ctx.Err() != nil {
		s.cut = true
		return false
	}
	return true
}

// anyDue is due for several figures at once.
func (s *suite) anyDue(names ...string) bool {
	for _, n := range names {
		if s.due(n) {
			return true
		}
	}
	return false
}

// keep writes a figure down and prints it.
func (s *suite) keep(name string, f record.Figure) {
	if err := s.report.Set(name, f); err != nil {
		fmt.Fprintln(s.out, "gpu-test:", err)
	}
	switch {
	case f.Error != "":
		fmt.Fprintf(s.out, "%-58s failed: %s\n", name, f.Error)
	case len(f.Facts) > 0:
		fmt.Fprintf(s.out, "%-58s %s\n", name, strings.Join(f.Facts, "; "))
	default:
		least, greatest := f.Range()
		fmt.Fprintf(s.out, "%-58s %.4g %s (%.4g to %.4g, n=%d)\n", name, f.Median(), f.Unit, least, greatest, len(f.Values))
	}
}

// measure takes a figure n times.
func (s *suite) measure(name, what, unit string, n int, take func() (float64, error)) {
	if !s.due(name) {
		return
	}
	f := record.Figure{What: what, Unit: unit}
	for range n {
		v, err := take()
		if err != nil {
			f.Error = err.Error()
			break
		}
		f.Values = append(f.Values, v)
	}
	s.keep(name, f)
}

// see writes down n observations. The caller turns an error that is an observation into a fact.
func (s *suite) see(name, what string, n int, look func() (string, error)) {
	if !s.due(name) {
		return
	}
	f := record.Figure{What: what}
	for range n {
		fact, err := look()
		if err != nil {
			f.Error = err.Error()
			break
		}
		f.Facts = append(f.Facts, fact)
	}
	s.keep(name, f)
}

// usualWindow is the window that the other times go by.
const usualWindow = 500 * time.Millisecond

// of returns a time as a part of the usual one: a self-check with a short window is short in all.
func (s *suite) of(d time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(s.window) / float64(usualWindow))
}

// millis of a duration.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// failed says in words what a worker met.
func failed(r reply, err error) string {
	switch {
	case errors.Is(err, errNoReply):
		return "hangs"
	case err != nil && r.Error == "":
		return err.Error()
	case r.Error != "":
		return r.Error
	}
	return "works"
}

// folder makes a fresh folder.
func (s *suite) folder(name string) (string, error) {
	d, err := os.MkdirTemp(s.dir, name)
	if err != nil {
		return "", err
	}
	return filepath.Clean(d), os.Chmod(d, 0o755)
}
