package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

// TestBadInput: a command that cannot be carried out ends with 2 and one line on stderr that says where the mistake is
// and what is legal.
func TestBadInput(t *testing.T) {
	scenario := file(t, "scenario.yaml", "name: x\npolicies: [packed]\nqueue: fifo\ncluster:\n  groups:\n  - {name: a, count: 0, cpu: 8, memory: 64Gi, gpus: 2, model: T4, device_memory: 16Gi}\n")
	misspelt := file(t, "misspelt.yaml", "name: x\npolicies: [packed]\ncluster:\n  groups:\n  - {name: a, cout: 1, cpu: 8, memory: 64Gi, gpus: 2, model: T4, device_memory: 16Gi}\n")
	tests := []struct {
		name string
		args []string
		says []string
	}{
		{"unknown command", []string{"rum"}, []string{`unknown command "rum"`, "known are jobs, map, run, snapshot", "go run ./evaluation"}},
		{"unknown flag", []string{"run", "--plt", "x"}, []string{"unknown flag: --plt", "simulator run --help"}},
		{"no scenario", []string{"run"}, []string{"run wants the path of one scenario", "simulator run --help"}},
		{"two scenarios", []string{"run", "a", "b"}, []string{"has 2 arguments"}},
		{"missing scenario", []string{"run", "testdata/none.yaml"}, []string{"testdata/none.yaml", "no such file"}},
		{"broken scenario", []string{"run", scenario}, []string{scenario, "cluster.groups[0].count", `"0"`, "a whole number from 1"}},
		{"unknown form", []string{"run", "testdata/scenario.yaml", "-o", "xml"}, []string{`"xml"`, "--output", "table, json"}},
		{"plots", []string{"run", "a.yaml", "--plot", "out"}, []string{"--plot", "go run ./evaluation draw a.yaml --plot out"}},
		{"no time", []string{"map", "testdata/scenario.yaml", "--at", "30"}, []string{"--at", `"30"`, "unit"}},
		{"snapshot before the start", []string{"snapshot", "testdata/scenario.yaml", "--at", "-1m"}, []string{"--at", "-1m0s", "0s or later"}},
		{"before the start", []string{"map", "testdata/scenario.yaml", "--at", "-1m"}, []string{"--at", "-1m0s", "0s or later"}},
		{"policy that was not played", []string{"map", "testdata/scenario.yaml", "--policy", "fgd"}, []string{"--policy", `"fgd"`, "packed with seed 2"}},
		{"seed that was not played", []string{"map", "testdata/scenario.yaml", "--seed", "77"}, []string{"--seed", `"77"`, "tandem with seed 1"}},
		{"map for other machines", []string{"run", "testdata/scenario.yaml", "--serve", "0.0.0.0:0"}, []string{"--serve", `"0.0.0.0:0"`, "127.0.0.1:8080", "--serve-anyone"}},
		{"map without a port", []string{"run", "testdata/scenario.yaml", "--serve", "localhost"}, []string{"--serve", `"localhost"`, "127.0.0.1:8080"}},
		{"map of a policy that was not played", []string{"run", "testdata/scenario.yaml", "--serve", "127.0.0.1:0", "--policy", "fgd"}, []string{"--policy", `"fgd"`, "packed with seed 2"}},
		{"policy that the scenario does not have", []string{"run", "testdata/scenario.yaml", "--policy", "fgd"}, []string{"--policy", `"fgd"`, "packed with seed 2"}},
		{"anyone without a map", []string{"run", "testdata/scenario.yaml", "--serve-anyone"}, []string{"--serve-anyone", "--serve"}},
		{"unknown field", []string{"run", misspelt}, []string{"field cluster.groups[0].cout: found an unknown field in line 5, want count, which is the nearest, or one of count, cpu"}},
		{"folder as a scenario", []string{"map", filepath.Dir(scenario)}, []string{filepath.Dir(scenario)}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := simulate(tc.args...)
			if code != command.Broken {
				t.Errorf("ends with %d, want %d", code, command.Broken)
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
