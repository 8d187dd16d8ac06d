package main

import (
	"bytes"
	"context"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/gpu/load"
	"github.com/tandem-gpu/tandem/test/gpu/record"
	"github.com/tandem-gpu/tandem/test/must"
)

// pages are where the tables of each GPU that the suite ran on are, by the folder of its data.
var pages = map[string]string{
	"data/nvidia-h100-80gb-hbm3": "../../docs/experiments/gpu.md",
	"data/nvidia-h200":           "../../docs/experiments/gpu-h200.md",
}

var update = flag.Bool("update", false, "write the tables into the pages of docs/experiments, and the pairs and profiles of the data")

// TestSelfCheck runs the suite on the stand-ins for the driver, CUDA and MPS: every figure that was taken on a GPU is taken, and
// none fails. The figures of the stand-ins are no measurements.
func TestSelfCheck(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // only a hang takes so long
	defer cancel()
	dir := openFolder(t)
	must.OK(t, fakegpu.Build(ctx, filepath.Join(dir, "fakes")))
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "gpu"), ".").CombinedOutput(); err != nil {
		t.Fatalf("build the suite: %v: %s", err, out)
	}
	state, err := fakegpu.Node("gpu", "H100", 1)
	must.OK(t, err)
	must.OK(t, state.Write(filepath.Join(dir, "state.json")))
	must.OK(t, os.MkdirAll(filepath.Join(dir, "dev"), 0o755))
	for _, name := range []string{"nvidia0", "nvidiactl", "nvidia-uvm"} {
		must.OK(t, os.Symlink("/dev/null", filepath.Join(dir, "dev", name)))
	}
	parts := []string{"nvml", "sm", "memory", "isolation"}
	if os.Geteuid() == 0 {
		parts = append(parts, "control", "agent")
	} else {
		t.Log("the parts control and agent use mount namespaces, which need root: they are left out")
	}
	report := filepath.Join(dir, "report.json")
	args := append([]string{
		"run", "--out=" + report, "--agent=" + sandbox.ProgramForTest(t, "agent"), "--dev-root=" + dir, "--models=models.py", "--window=10ms",
		"--repeat=1", "--budget=20m",
	}, parts...)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "gpu"), args...)
	cmd.Env = append(os.Environ(), fakegpu.Env(filepath.Join(dir, "fakes"), filepath.Join(dir, "state.json"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	got, err := record.Open(report)
	must.OK(t, err)
	want, err := record.Open("data/nvidia-h100-80gb-hbm3/report.json")
	must.OK(t, err)
	for name := range want.Figures {
		part, _, _ := strings.Cut(name, "/")
		if part == "features" && !strings.Contains(name, modelPrefix) {
			part = "isolation"
		}
		if !slices.Contains(parts, part) {
			continue
		}
		if f, ok := got.Figures[name]; !ok || f.Error != "" {
			t.Errorf("figure %s: there %v, error %q", name, ok, f.Error)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// openFolder makes a folder that other users can read: a part of the suite runs programs as them.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpu")
	must.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must.OK(t, os.Chmod(dir, 0o755))
	return dir
}

func TestDataSetsAreCurrent(t *testing.T) {
	folders, err := filepath.Glob("data/*")
	must.OK(t, err)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(pages)), folders); diff != "" {
		t.Errorf("each folder of data has a page (-with a page +in data):\n%s", diff)
	}
	for folder, page := range pages {
		t.Run(filepath.Base(folder), func(t *testing.T) { dataSetIsCurrent(t, folder, page) })
	}
}

func dataSetIsCurrent(t *testing.T, folder, page string) {
	r, err := record.Open(filepath.Join(folder, "report.json"))
	must.OK(t, err)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"pairs.csv":    func(b *bytes.Buffer) error { return writePairs(b, r) },
		"profiles.csv": func(b *bytes.Buffer) error { return writeProfiles(b, r) },
	} {
		var b bytes.Buffer
		must.OK(t, write(&b))
		same(t, filepath.Join(folder, name), b.String())
	}
	var tables bytes.Buffer
	must.OK(t, writeTables(&tables, r))
	text, err := os.ReadFile(page)
	must.OK(t, err)
	const begin, end = "<!-- tables: go test ./test/gpu -run DataSet -args -update -->\n", "<!-- end of tables -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the tables", page)
	}
	same(t, page, before+begin+tables.String()+end+after)
}

func same(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	if *update {
		must.OK(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	t.Errorf("%s is not what the report gives; go test ./test/gpu -run DataSet -args -update writes it (-want +got):\n%s", path, cmp.Diff(want, string(got)))
}

func TestCombinations(t *testing.T) {
	kinds := []string{"a", "b", "c"}
	for _, c := range []struct {
		percents []int
		want     int
	}{{[]int{50, 50}, 6}, {[]int{30, 70}, 9}, {[]int{33, 33, 33}, 10}, {[]int{0}, 3}} {
		got := combinations(kinds, c.percents)
		seen := map[string]bool{}
		for _, g := range got {
			if c.percents[0] == c.percents[len(c.percents)-1] && !slices.IsSorted(g) {
				t.Errorf("%v: %v is another order of the same group", c.percents, g)
			}
			seen[strings.Join(g, "+")] = true
		}
		if len(seen) != c.want || len(got) != c.want {
			t.Errorf("%v: %d groups, %d of them different, want %d", c.percents, len(got), len(seen), c.want)
		}
	}
}

func TestCoRunsFindTheirSpeedAlone(t *testing.T) {
	value := func(v float64) record.Figure { return record.Figure{Values: []float64{v}} }
	r := &record.Report{Figures: map[string]record.Figure{
		"isolation/mps-30-70/alone/compute@30/1": value(10), "isolation/mps-30-70/alone/training@70/1": value(20),
		"isolation/mps-30-70/compute+training/1": value(9), "isolation/mps-30-70/compute+training/2": value(5),
		"isolation/mps-30-70/compute+training/2/p99": value(7),
		"isolation/time-slicing/alone/compute/1":     value(40), "isolation/time-slicing-3/compute+compute+compute/3": value(10),
		"models/mps-50-50/model:decode+model:decode/1": value(3), // nobody measured it alone
	}}
	var got []float64
	for _, c := range coRuns(r) {
		got = append(got, c.speed())
	}
	if diff := cmp.Diff([]float64{.9, .25, .25}, got); diff != "" {
		t.Error(diff)
	}
}

// The kernels' names are those that the loads ask for; a GPU is needed to compile them.
func TestKinds(t *testing.T) {
	for _, kind := range load.Kinds() {
		if load.Units(kind) == "" {
			t.Errorf("%s has no unit", kind)
		}
	}
	for _, kind := range modelKinds() {
		if modelUnits(kind) == "" {
			t.Errorf("%s has no unit", kind)
		}
		text, err := os.ReadFile("models.py")
		must.OK(t, err)
		if !bytes.Contains(text, []byte(`"`+short(kind)+`":`)) {
			t.Errorf("models.py has no %s", kind)
		}
	}
}
