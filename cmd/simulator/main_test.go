package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// simulate runs the command as a user does.
func simulate(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = execute(args, &o, &e)
	return code, o.String(), e.String()
}

// succeed runs the command and returns what it prints; it says nothing else.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := simulate(args...)
	if code != 0 || errs != "" {
		t.Fatalf("simulator %s ends with %d:\n%s", strings.Join(args, " "), code, errs)
	}
	return out
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// file writes a file of a test and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelp(t *testing.T) {
	golden(t, "help.txt", succeed(t))
	if diff := cmp.Diff(succeed(t), succeed(t, "--help")); diff != "" {
		t.Errorf("with --help (-without +with):\n%s", diff)
	}
	for _, name := range []string{"run", "map", "fragmentation"} {
		golden(t, "help_"+name+".txt", succeed(t, name, "--help"))
	}
}

// trace is the small cluster and its pods under testdata.
var trace = []string{"fragmentation", "--nodes", "testdata/nodes.csv", "--pods", "testdata/pods.csv"}

func fragmentation(more ...string) []string { return append(trace[:len(trace):len(trace)], more...) }

func TestFragmentation(t *testing.T) {
	args := fragmentation("--no-timing", "--seeds", "1-3", "--policy", "fgd,packed,random")
	golden(t, "fragmentation.json", succeed(t, append(args, "-o", "json")...))
	golden(t, "fragmentation.txt", succeed(t, args...))
}

// TestFragmentationKeys holds the JSON to its keys: all policies, the loads, and a time per run unless it is not wanted.
func TestFragmentationKeys(t *testing.T) {
	var got struct {
		Results []struct {
			Policy        string                        `json:"policy"`
			Seeds         []int64                       `json:"seeds"`
			Allocated     map[string]map[string]float64 `json:"allocated_percent"`
			Fragmentation map[string]map[string]float64 `json:"fragmentation_percent"`
			SecondsPerRun *float64                      `json:"seconds_per_run"`
		} `json:"results"`
	}
	decoder := json.NewDecoder(strings.NewReader(succeed(t, fragmentation("-o", "json", "--seeds", "7,9")...)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	var policies []string
	for _, r := range got.Results {
		policies = append(policies, r.Policy)
		if diff := cmp.Diff([]int64{7, 9}, r.Seeds); diff != "" {
			t.Errorf("seeds (-want +got):\n%s", diff)
		}
		for _, load := range []string{"80", "100", "130"} {
			if f := r.Allocated[load]; len(f) != 2 || f["mean"] <= 0 || f["mean"] > 100 {
				t.Errorf("%s allocates %v at %s", r.Policy, f, load)
			}
		}
		if _, ok := r.Fragmentation["80"]["sd"]; !ok || len(r.Fragmentation) != 1 {
			t.Errorf("%s fragments %v", r.Policy, r.Fragmentation)
		}
		if r.SecondsPerRun == nil || *r.SecondsPerRun < 0 {
			t.Errorf("%s took %v", r.Policy, r.SecondsPerRun)
		}
	}
	if diff := cmp.Diff([]string{"bestfit", "clustering", "dotprod", "fgd", "packed", "packing", "random", "spread", "tandem"}, policies); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// TestSameBytes: the same seeds give the same bytes, however many runs go at once.
func TestSameBytes(t *testing.T) {
	commands := map[string][]string{
		"fragmentation": fragmentation("--no-timing", "-o", "json"),
		"run":           {"run", "testdata/scenario.yaml", "-o", "json"},
		"map":           {"map", "testdata/scenario.yaml", "--at", "20m", "-o", "json"},
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			var got []string
			for _, processors := range []int{1, 8, 8} {
				runtime.GOMAXPROCS(processors)
				dir := filepath.Join(t.TempDir(), fmt.Sprint(len(got)))
				more := slices.Clone(args)
				if name != "map" {
					more = append(more, "--plot", dir)
				}
				code, out, errs := simulate(more...)
				if code != 0 {
					t.Fatalf("ends with %d:\n%s", code, errs)
				}
				got = append(got, out+pictures(t, dir))
			}
			if got[0] != got[1] || got[1] != got[2] {
				t.Errorf("one processor, eight, eight again differ:\n%s", cmp.Diff(got[0], got[1])+cmp.Diff(got[1], got[2]))
			}
		})
	}
}

// pictures returns the files of a directory, one after the other.
func pictures(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(filepath.Base(p) + "\n" + string(b))
	}
	return all.String()
}

func TestPlots(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		files []string
	}{
		"fragmentation": {fragmentation("--seeds", "1"), []string{"allocation", "fragmentation"}},
		"run":           {[]string{"run", "testdata/scenario.yaml"}, []string{"utilisation", "fragmentation", "wait_cdf", "jct_cdf"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			code, _, errs := simulate(append(tc.args, "--plot", dir)...)
			if code != 0 {
				t.Fatalf("ends with %d:\n%s", code, errs)
			}
			told := ""
			for _, f := range tc.files {
				path := filepath.Join(dir, f)
				told += "wrote " + path + ".svg\nwrote " + path + ".png\n"
				if err := wellFormed(path+".svg", "tandem", "packed"); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(told, errs); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

// wellFormed returns an error unless the file is XML in which the texts stand.
func wellFormed(path string, texts ...string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, text := range texts {
		if !bytes.Contains(b, []byte(">"+text+"<")) {
			return fmt.Errorf("%s: no series %s", path, text)
		}
	}
	return nil
}

func TestRun(t *testing.T) {
	golden(t, "scenario.json", succeed(t, "run", "testdata/scenario.yaml", "-o", "json"))
	golden(t, "scenario.txt", succeed(t, "run", "testdata/scenario.yaml"))
}

func TestMap(t *testing.T) {
	golden(t, "map.json", succeed(t, "map", "testdata/scenario.yaml", "--at", "20m", "-o", "json"))
	golden(t, "map.txt", succeed(t, "map", "testdata/scenario.yaml", "--at", "20m", "--policy", "packed", "--seed", "2"))
}

// TestFailedAssertions: all of them are told, the results are printed all the same, and the exit code is 1.
func TestFailedAssertions(t *testing.T) {
	code, out, errs := simulate("run", "testdata/failing.yaml")
	if code != exitFailed {
		t.Errorf("ends with %d, want %d", code, exitFailed)
	}
	golden(t, "failing.txt", out)
	golden(t, "failing.stderr.txt", errs)
	_, out, errs = simulate("run", "testdata/failing.yaml", "-o", "json") // whose output may go to a file
	golden(t, "failing.json.stderr.txt", errs)
	if !json.Valid([]byte(out)) {
		t.Errorf("stdout is no JSON:\n%s", out)
	}
}

// TestExamples plays all examples: each holds what it asserts, under several policies, and can be drawn.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d examples, want three or more: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			code, out, errs := simulate("run", path, "--plot", t.TempDir())
			if code != 0 || !strings.Contains(out, "assertions hold") {
				t.Errorf("ends with %d:\n%s%s", code, out, errs)
			}
		})
	}
}
