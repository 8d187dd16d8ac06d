package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBadInput: what cannot be done ends with 2 and one line on stderr that says where it is and what is legal.
func TestBadInput(t *testing.T) {
	pods := file(t, "pods.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1024,-1,500\n")
	empty := file(t, "empty.csv", "")
	scenario := file(t, "scenario.yaml", "name: x\npolicies: [packed]\nqueue: fifo\ncluster:\n  groups:\n  - {name: a, count: 0, cpu: 8, memory: 64Gi, gpus: 2, model: T4, device_memory: 16Gi}\n")
	taken := file(t, "taken", "")
	nodes := "testdata/nodes.csv"
	tests := []struct {
		name string
		args []string
		says []string
	}{
		{"unknown command", []string{"rum"}, []string{`unknown command "rum"`, "fragmentation", "map", "run"}},
		{"unknown flag", []string{"run", "--plt", "x"}, []string{"unknown flag: --plt", "simulator run --help"}},
		{"no scenario", []string{"run"}, []string{"run wants the path of one scenario", "simulator run --help"}},
		{"two scenarios", []string{"run", "a", "b"}, []string{"has 2 arguments"}},
		{"missing scenario", []string{"run", "testdata/none.yaml"}, []string{"testdata/none.yaml", "no such file"}},
		{"broken scenario", []string{"run", scenario}, []string{scenario, "cluster.groups[0].count", `"0"`, "a whole number from 1"}},
		{"unknown form", []string{"run", "testdata/scenario.yaml", "-o", "xml"}, []string{`"xml"`, "--output", "table, json"}},
		{"plots into a file", []string{"run", "testdata/scenario.yaml", "--plot", taken}, []string{"--plot", taken, "not a directory"}},
		{"argument of fragmentation", fragmentation("more.csv"), []string{`"more.csv"`, "flags only"}},
		{"no nodes", []string{"fragmentation", "--pods", pods}, []string{"--nodes", "missing"}},
		{"no pods", []string{"fragmentation", "--nodes", nodes}, []string{"--pods", "missing"}},
		{"missing nodes", []string{"fragmentation", "--nodes", "none.csv", "--pods", pods}, []string{"--nodes", "none.csv", "no such file"}},
		{"broken pods", []string{"fragmentation", "--nodes", nodes, "--pods", pods}, []string{"--pods", pods + " line 2", "num_gpu", `"-1"`, "0 to 64"}},
		{"empty pods", []string{"fragmentation", "--nodes", nodes, "--pods", empty}, []string{"--pods", empty}},
		{"pods as nodes", []string{"fragmentation", "--nodes", pods, "--pods", pods}, []string{"--nodes", pods, "sn"}},
		{"unknown policy", fragmentation("--policy", "tetris"), []string{"--policy", `"tetris"`, "fgd", "tandem", "all"}},
		{"policy twice", fragmentation("--policy", "fgd,fgd"), []string{"--policy", "fgd appears twice"}},
		{"no policy", fragmentation("--policy", ""), []string{"--policy", `unknown policy ""`}},
		{"broken seeds", fragmentation("--seeds", "9-7"), []string{"--seeds", `"9-7"`, "a range like 42-51"}},
		{"no number", fragmentation("--inflate", "much"), []string{"--inflate", `"much"`}},
		{"not a number", fragmentation("--inflate", "NaN"), []string{"--inflate", "NaN", "0.01 to 10"}},
		{"too much", fragmentation("--inflate", "11"), []string{"--inflate", "11", "0.01 to 10"}},
		{"negative", fragmentation("--inflate", "-1.3"), []string{"--inflate", "-1.3", "0.01 to 10"}},
		{"no time", []string{"map", "testdata/scenario.yaml", "--at", "30"}, []string{"--at", `"30"`, "unit"}},
		{"before the start", []string{"map", "testdata/scenario.yaml", "--at", "-1m"}, []string{"--at", "-1m0s", "0s or later"}},
		{"policy that was not played", []string{"map", "testdata/scenario.yaml", "--policy", "fgd"}, []string{"--policy", `"fgd"`, "packed with seed 2"}},
		{"seed that was not played", []string{"map", "testdata/scenario.yaml", "--seed", "77"}, []string{"--seed", `"77"`, "tandem with seed 1"}},
		{"folder as a scenario", []string{"map", filepath.Dir(pods)}, []string{filepath.Dir(pods)}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := simulate(tc.args...)
			if code != exitBroken {
				t.Errorf("ends with %d, want %d", code, exitBroken)
			}
			if strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "simulator: ") {
				t.Errorf("stderr is not one line:\n%s", errs)
			}
			for _, want := range tc.says {
				if !strings.Contains(errs, want) {
					t.Errorf("stderr does not say %q: %s", want, errs)
				}
			}
			if out != "" {
				t.Errorf("stdout of a command that did nothing:\n%s", out)
			}
		})
	}
}
