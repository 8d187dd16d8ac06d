package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// silence is the longest time without output. Shorter would fill the log of an unattended machine.
	silence = 10 * time.Second
	// named is the number of running packages in a line of progress.
	named = 3
)

// report prints the events of one run of go test.
type report struct {
	out, progress io.Writer
	packages      []string
	// log is a directory for the whole output of packages that failed; empty for none.
	log string

	began, printed time.Time
	running        map[string]*suite
	builds         map[string][]string
	done           int
	bad            []*suite
}

func newReport(out, progress io.Writer, packages []string) *report {
	now := time.Now()
	return &report{
		out: out, progress: progress, packages: packages, began: now, printed: now,
		running: map[string]*suite{}, builds: map[string][]string{},
	}
}

func (r *report) failed() bool { return len(r.bad) > 0 }

// follow prints the events until there are no more.
func (r *report) follow(events <-chan event, tick <-chan time.Time) {
	for {
		select {
		case e, ok := <-events:
			if !ok {
				r.finish()
				return
			}
			r.see(e)
		case <-tick:
			r.remind()
		}
	}
}

func (r *report) see(e event) {
	switch {
	case e.Action == plain:
		r.print(r.out, e.Output)
	case e.Action == "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case e.Package == "":
	case e.Action == "start":
		r.running[e.Package] = newSuite(e.Package, time.Now())
	default:
		r.pass(e)
	}
}

// pass passes an event on to its package, and ends the package where it is its last.
func (r *report) pass(e event) {
	s := r.running[e.Package]
	if s == nil {
		s = newSuite(e.Package, time.Now())
		r.running[e.Package] = s
	}
	s.see(e)
	if e.Test != "" || e.Action != "pass" && e.Action != "skip" && e.Action != "fail" {
		return
	}
	delete(r.running, e.Package)
	r.done++
	s.failed = e.Action == "fail"
	r.print(r.out, strings.Join(r.builds[e.FailedBuild], ""))
	klog := s.print(r.out)
	r.printed = time.Now()
	if s.failed {
		r.bad = append(r.bad, s)
		r.keep(s, klog)
	}
}

// keep writes the whole output of a package that failed to a file and names it.
func (r *report) keep(s *suite, klog int) {
	if r.log == "" || len(s.tests) == 0 {
		return
	}
	path := filepath.Join(r.log, strings.ReplaceAll(r.short(s.name), "/", "-")+".log")
	err := os.MkdirAll(r.log, 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Join(s.all, "")), 0o644)
	}
	if err != nil {
		fmt.Fprintf(r.progress, "runner: the output of %s cannot be kept: %v\n", s.name, err)
		return
	}
	fmt.Fprintf(r.out, "\tall that it printed is in %s, with %d lines of klog\n", path, klog)
}

func (r *report) print(w io.Writer, text string) {
	if text != "" {
		fmt.Fprint(w, text)
		r.printed = time.Now()
	}
}

// finish says how the whole went.
func (r *report) finish() {
	took := time.Since(r.began).Round(time.Second)
	if !r.failed() {
		r.print(r.progress, fmt.Sprintf("test: %d of %d packages passed in %s\n", r.done, len(r.packages), took))
		return
	}
	names := make([]string, len(r.bad))
	for i, s := range r.bad {
		names[i] = r.short(s.name)
	}
	r.print(r.out, "FAIL\n")
	r.print(r.progress, fmt.Sprintf("test: %d of %d packages failed in %s: %s\n", len(r.bad), r.done, took, strings.Join(names, ", ")))
}

// remind prints the progress, after a while without output.
func (r *report) remind() {
	if time.Since(r.printed) < silence {
		return
	}
	line := fmt.Sprintf("test: %d of %d packages done after %s", r.done, len(r.packages), time.Since(r.began).Round(time.Second))
	r.print(r.progress, line+r.now()+"\n")
}

// now names the packages that run, the longest first.
func (r *report) now() string {
	if len(r.running) == 0 {
		return "; the next are being compiled"
	}
	all := make([]*suite, 0, len(r.running))
	for _, s := range r.running {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *suite) int { return cmp.Or(a.began.Compare(b.began), strings.Compare(a.name, b.name)) })
	names := make([]string, 0, named+1)
	for _, s := range all[:min(named, len(all))] {
		name := r.short(s.name) + " for " + time.Since(s.began).Round(time.Second).String()
		if test := s.running(); test != "" {
			name += " (" + test + ")"
		}
		names = append(names, name)
	}
	if more := len(all) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf(", %d running: %s", len(all), strings.Join(names, ", "))
}

// short returns a package's path without what all packages of the module have in common.
func (r *report) short(name string) string {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) == 4 && strings.Contains(parts[0], ".") {
		return parts[3]
	}
	return name
}
