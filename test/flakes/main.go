// Command flakes names the tests of a run that failed and then passed, when they were repeated alone.
//
// Such a test is a fault with a name, of the test or of the product. For each the command prints a line FLAKE, writes the
// output of both runs into a folder, and adds a line to a file that lasts: the time, the commit and the test. With list the
// command prints that file. It exits with 1 where the file has a test, and with 2 where one of them is there twice: a release
// waits for the first, and the gate of each night for the second.
//
//	flakes add EVENTS FOLDER FILE COMMIT    EVENTS is what `go test -json` printed in both runs
//	flakes list FILE
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "flakes:", err)
		code = 3
	}
	os.Exit(code)
}

func run(args []string, out io.Writer) (int, error) {
	switch {
	case len(args) == 5 && args[0] == "add":
		return 0, add(args[1], args[2], args[3], args[4], out)
	case len(args) == 2 && args[0] == "list":
		return list(args[1], out)
	}
	return 0, errors.New("usage: flakes add EVENTS FOLDER FILE COMMIT | flakes list FILE")
}

// event is one line of `go test -json`.
type event struct{ Action, Package, Test, Output string }

// history is what the runs of one test printed, and how each ended.
type history struct {
	outputs []string
	ends    []string
}

// flaky reports whether the test failed and passed at its last run.
func (h *history) flaky() bool {
	return slices.Contains(h.ends, "fail") && h.ends[len(h.ends)-1] == "pass"
}

// read returns the histories of all tests, by package and test.
func read(events io.Reader) (map[[2]string]*history, error) {
	all := map[[2]string]*history{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Test != "" { // a line that is no event comes from the compiler
			note(all, e)
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func note(all map[[2]string]*history, e event) {
	key := [2]string{e.Package, e.Test}
	h := all[key]
	if h == nil {
		h = &history{}
		all[key] = h
	}
	switch e.Action {
	case "run":
		h.outputs = append(h.outputs, "")
	case "output":
		if len(h.outputs) > 0 {
			h.outputs[len(h.outputs)-1] += e.Output
		}
	case "pass", "fail", "skip":
		h.ends = append(h.ends, e.Action)
	}
}

// flakes returns the flaky tests in order. A test that only contains another one of them is left out.
func flakes(all map[[2]string]*history) [][2]string {
	var names [][2]string
	for key, h := range all {
		if h.flaky() {
			names = append(names, key)
		}
	}
	slices.SortFunc(names, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return slices.DeleteFunc(names, func(outer [2]string) bool {
		return slices.ContainsFunc(names, func(inner [2]string) bool {
			return inner[0] == outer[0] && strings.HasPrefix(inner[1], outer[1]+"/")
		})
	})
}

func add(events, folder, file, commit string, out io.Writer) error {
	in, err := os.Open(events)
	if err != nil {
		return err
	}
	defer in.Close()
	all, err := read(in)
	if err != nil {
		return fmt.Errorf("read %s: %w", events, err)
	}
	found := flakes(all)
	if len(found) == 0 {
		return nil
	}
	for _, dir := range []string{folder, filepath.Dir(file)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	lasting, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, key := range found {
		name := key[0] + "." + key[1]
		log := filepath.Join(folder, strings.NewReplacer("/", "-", " ", "_").Replace(name)+".log")
		if err := os.WriteFile(log, []byte(strings.Join(all[key].outputs, "--- repeated alone:\n")), 0o644); err != nil {
			return errors.Join(err, lasting.Close())
		}
		fmt.Fprintf(lasting, "%s\t%s\t%s\n", time.Now().UTC().Format(time.RFC3339), commit, name)
		fmt.Fprintf(out, "FLAKE %s: it failed, and passed when it was repeated alone; both outputs: %s\n", name, log)
	}
	return lasting.Close()
}

// list prints the tests of the file with how often each flaked.
func list(file string, out io.Writer) (int, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	times := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.SplitN(strings.TrimSpace(line), "\t", 3); len(fields) == 3 {
			times[fields[2]]++
		}
	}
	code := 0
	for _, name := range slices.Sorted(maps.Keys(times)) {
		fmt.Fprintf(out, "FLAKE %s: %d times, by %s\n", name, times[name], file)
		code = max(code, min(times[name], 2))
	}
	return code, nil
}
