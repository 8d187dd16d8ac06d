package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/gangs"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
	"github.com/tandem-gpu/tandem/test/must"
)

// training is the small workloads under testdata, in the layout of Pollux.
func gangArgs(more ...string) []string {
	return append([]string{
		"gangs", "--workload", "testdata/gangs_jobs1.csv", "--workload", "testdata/gangs_jobs2.csv", "--measured", "testdata/gangs_measured",
		"--kind", "t4", "--nodes", "3", "--seeds", "1-3",
	}, more...)
}

func TestGangs(t *testing.T) {
	golden.Text(t, "help_gangs.txt", succeed(t, "gangs", "--help"))
	golden.Text(t, "gangs.txt", succeed(t, gangArgs("--policy", "kubernetes,gang,dragon,tiresias")...))
	golden.Text(t, "gangs.json", succeed(t, gangArgs("--policy", "kubernetes,dragon", "--load", "0.5,2", "--interval", "30s", "--restart", "0s", "-o", "json")...))
	out := succeed(t, gangArgs("-o", "json")...)
	for _, policy := range gangs.Policies() {
		if !strings.Contains(out, fmt.Sprintf("\"policy\": %q", policy)) {
			t.Errorf("no row of %s", policy)
		}
		if !strings.Contains(succeed(t, "gangs", "--help"), "\n  "+policy+" ") {
			t.Errorf("the help does not explain %s", policy)
		}
	}
	if diff := cmp.Diff(out, succeed(t, gangArgs("-o", "json")...)); diff != "" {
		t.Errorf("the same once more (-first +second):\n%s", diff)
	}
}

// TestGangFiles: a folder stands for its files and those of its folders; other kinds of files in it do not count.
func TestGangFiles(t *testing.T) {
	want := succeed(t, gangArgs("--policy", "tandem")...)
	args := gangArgs("--policy", "tandem")
	at := 0
	for i := range args {
		if args[i] == "testdata/gangs_measured" {
			at = i
		}
	}
	files, err := csvFiles([]string{"testdata/gangs_measured"})
	if err != nil || len(files) != 8 {
		t.Fatalf("%v, %v", files, err)
	}
	args = append(args[:at-1], args[at+1:]...)
	for _, file := range files {
		args = append(args, "--measured", file)
	}
	if diff := cmp.Diff(want, succeed(t, args...)); diff != "" {
		t.Errorf("file by file (-folder +files):\n%s", diff)
	}
	dir := t.TempDir()
	for _, name := range []string{"a.csv", "b/c.csv.gz", "b/notes.md", "d.csv.bak"} {
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, nil, 0o644))
	}
	got, err := csvFiles([]string{dir, "x.csv"})
	if err == nil {
		t.Errorf("a file that is not there: %v", got)
	}
	if got, err = csvFiles([]string{dir}); err != nil || !cmp.Equal(got, []string{filepath.Join(dir, "a.csv"), filepath.Join(dir, "b/c.csv.gz")}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestGangsBadInput(t *testing.T) {
	const jobs = "name,time,application,num_replicas,batch_size\n"
	large := file(t, "large.csv", jobs+"oak-0,0,oak,13,64\n")
	batch := file(t, "batch.csv", jobs+"oak-0,0,oak,2,4\n")
	yews := file(t, "yews.csv", jobs+"yew-0,0,yew,2,8\n")
	broken := file(t, "broken.csv", jobs+"oak-0,0,oak,0,8\n")
	nameless := file(t, "nameless.csv", "placement,local_bsz,step_time\n1,8,1\n")
	empty := t.TempDir()
	of := func(workload string) []string {
		return []string{"gangs", "--workload", workload, "--measured", "testdata/gangs_measured", "--kind", "t4", "--nodes", "3", "--seeds", "1"}
	}
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", gangArgs("more.csv"), []string{`"more.csv"`, "flags only"}},
		{"no workload", []string{"gangs", "--measured", "testdata/gangs_measured"}, []string{"--workload is missing"}},
		{"no measurements", []string{"gangs", "--workload", yews}, []string{"--measured is missing"}},
		{"missing workload", of("none.csv"), []string{"--workload", "none.csv", "no such file"}},
		{"missing measurements", append(of(yews), "--measured", "none"), []string{"--measured", "none", "no such file"}},
		{"a folder without measurements", append(of(yews), "--measured", empty), []string{"--measured", empty, "ends in .csv"}},
		{"measurements twice", append(of(yews), "--measured", "testdata/gangs_measured/oak-t4.csv"), []string{"--measured", "oak-t4.csv is given twice"}},
		{"measurements without a name", append(of(yews), "--measured", nameless), []string{nameless, "its name says no application"}},
		{"other measurements", append(of(yews), "--measured", "testdata/interference_pairs.csv"), []string{"interference_pairs.csv", "neither step times nor epochs"}},
		{"broken workload", of(broken), []string{"--workload", broken + " line 2 column num_replicas", `"0"`}},
		{"a workload that is none", of("testdata/gangs_measured/oak-t4.csv"), []string{"oak-t4.csv: pollux-placements", "want pollux-jobs"}},
		{"nothing that was measured", of(yews), []string{yews, "no job of an application that was measured on t4"}},
		{"a job that is too large", of(large), []string{large + " line 2", "13 workers on 12 GPUs"}},
		{"a batch that is too small", of(batch), []string{batch + " line 2", "batch_size 4", "8 to 64"}},
		{"unknown kind", gangArgs("--kind", "a100"), []string{`no step times on nodes of kind "a100"`}},
		{"unknown policy", gangArgs("--policy", "tetris"), []string{"--policy", `"tetris"`, "tandem-priority", "all"}},
		{"policy twice", gangArgs("--policy", "gang,gang"), []string{"--policy", "gang appears twice"}},
		{"broken seeds", gangArgs("--seeds", "9-7"), []string{"--seeds", `"9-7"`}},
		{"no load", gangArgs("--load", "0"), []string{"--load", `"0"`, "above 0 and up to 10"}},
		{"too much load", gangArgs("--load", "1,10.5"), []string{"--load", `"10.5"`}},
		{"a load that is no number", gangArgs("--load", "NaN"), []string{"--load", `"NaN"`}},
		{"load twice", gangArgs("--load", "1,1.0"), []string{"--load", "1 appears twice"}},
		{"no nodes", gangArgs("--nodes", "0"), []string{"0 nodes", "1 to 1000"}},
		{"too many GPUs", gangArgs("--gpus", "65"), []string{"65 GPUs", "1 to 64"}},
		{"too short an interval", gangArgs("--interval", "10ms"), []string{"10ms", "1s to 1h"}},
		{"too long a restart", gangArgs("--restart", "2h"), []string{"2h0m0s", "0s to 1h"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := evaluate(tc.args...)
			if code != command.Broken || out != "" || strings.Count(errs, "\n") != 1 {
				t.Errorf("ends with %d, prints %q, says %q", code, out, errs)
			}
			for _, want := range tc.says {
				if !strings.Contains(errs, want) {
					t.Errorf("stderr %q does not say %q", errs, want)
				}
			}
		})
	}
}
