package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// suite is the state of a package whose tests run, or ran.
type suite struct {
	name  string
	began time.Time
	// seed of the order of the tests, for a shuffled run.
	seed string
	// own are the lines of the package itself, all those of its tests too.
	own, all []string
	tests    []*test
	byName   map[string]*test
	failed   bool
}

// test is a test, or a subtest, that began.
type test struct {
	name  string
	lines []string
	state string // the action that ended it
}

func newSuite(name string, began time.Time) *suite {
	return &suite{name: name, began: began, byName: map[string]*test{}}
}

// see takes an event of the package.
func (s *suite) see(e event) {
	if e.Action == "output" {
		s.all = append(s.all, e.Output)
	}
	if e.Test == "" {
		if e.Action == "output" {
			s.own = append(s.own, e.Output)
			if seed, ok := strings.CutPrefix(e.Output, "-test.shuffle "); ok {
				s.seed = strings.TrimSpace(seed)
			}
		}
		return
	}
	t := s.byName[e.Test]
	if t == nil {
		t = &test{name: e.Test}
		s.byName[e.Test], s.tests = t, append(s.tests, t)
	}
	switch e.Action {
	case "output":
		t.lines = append(t.lines, e.Output)
	case "pass", "skip":
		t.state, t.lines = e.Action, nil
	case "fail":
		t.state = e.Action
	}
}

// running returns the name of the test that began last of those that have not ended.
func (s *suite) running() string {
	for _, t := range slices.Backward(s.tests) {
		if t.state == "" {
			return t.name
		}
	}
	return ""
}

// guilty returns the tests to show of a package that failed, each after the test that it is part of. These are the
// failed tests, and those that never ended and have some output.
func (s *suite) guilty() []*test {
	var all []*test
	for _, root := range s.tests {
		if strings.Contains(root.name, "/") {
			continue
		}
		for _, t := range s.tests {
			if t != root && !strings.HasPrefix(t.name, root.name+"/") {
				continue
			}
			if lines, _ := t.said(); t.state == "fail" || t.state == "" && len(lines) > 0 {
				all = append(all, t)
			}
		}
	}
	return all
}

// failures returns the names of the tests that failed, without those that only contain one of them. A package that failed
// without a test has the name "".
func (s *suite) failures() []string {
	var names []string
	guilty := s.guilty()
	for _, t := range guilty {
		inner := func(o *test) bool { return strings.HasPrefix(o.name, t.name+"/") }
		if !slices.ContainsFunc(guilty, inner) {
			names = append(names, t.name)
		}
	}
	if names == nil {
		names = []string{""}
	}
	return names
}

// said returns the test's own lines, without those of klog, and how many of klog there were.
func (t *test) said() (lines []string, klog int) { return without(t.lines) }

func without(all []string) (lines []string, klog int) {
	for _, line := range all {
		switch {
		case klogLine.MatchString(line):
			klog++
		case !isFraming(line):
			lines = append(lines, line)
		}
	}
	return lines, klog
}

// print writes what go test prints of a package, without what its tests logged by klog, and how many such lines there were.
func (s *suite) print(w io.Writer) (klog int) {
	own, count := without(s.own)
	klog += count
	if !s.failed {
		for _, line := range own {
			if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
				fmt.Fprint(w, line)
			}
		}
		return 0
	}
	for _, t := range s.guilty() {
		lines, count := t.said()
		klog += count
		isEnd := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "--- FAIL: "+t.name+" ") }
		end := "--- FAIL: " + t.name + " (it did not end)\n" // unless it says otherwise itself
		if at := slices.IndexFunc(lines, isEnd); at >= 0 {
			end = lines[at]
			lines = slices.Delete(lines, at, at+1)
		}
		fmt.Fprint(w, end, strings.Join(lines, ""))
	}
	fmt.Fprint(w, strings.Join(own, ""))
	return klog
}
