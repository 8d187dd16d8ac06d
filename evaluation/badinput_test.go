package main

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

// TestBadInput: a command that cannot be carried out ends with 2 and one line on stderr that says where the mistake is
// and what is legal.
func TestBadInput(t *testing.T) {
	pods := file(t, "pods.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1024,-1,500\n")
	empty := file(t, "empty.csv", "")
	taken := file(t, "taken", "")
	nodes := "testdata/nodes.csv"
	tests := []struct {
		name string
		args []string
		says []string
	}{
		{"unknown command", []string{"run"}, []string{`unknown command "run"`, "draw", "fragmentation", "weights"}},
		{"unknown flag", []string{"draw", "--plt", "x"}, []string{"unknown flag: --plt", "evaluation draw --help"}},
		{"no scenario", []string{"draw", "--plot", "out"}, []string{"draw wants the path of one scenario", "evaluation draw --help"}},
		{"no folder", []string{"draw", played}, []string{"--plot is missing"}},
		{"missing scenario", []string{"draw", "testdata/none.yaml", "--plot", "out"}, []string{"testdata/none.yaml", "no such file"}},
		{"plots into a file", []string{"draw", played, "--plot", taken}, []string{"--plot", taken, "not a directory"}},
		{"fragmentation into a file", fragmentation("--plot", taken), []string{"--plot", taken, "not a directory"}},
		{"unknown form", fragmentation("-o", "xml"), []string{`"xml"`, "--output", "table, json"}},
		{"argument of fragmentation", fragmentation("more.csv"), []string{`"more.csv"`, "flags only"}},
		{"unknown sort of shapes", []string{"shapes", "--sort", "fill"}, []string{`--sort: unknown sort "fill"`, "all, fills, flows"}},
		{"a shape that is not there", []string{"shapes", "--shapes", "1000001"}, []string{"--shapes: number 1000001", "0 to 1000000"}},
		{"no number of a shape", []string{"shapes", "--shapes", "x"}, []string{`--shapes: "x"`, "0 to 1000000", "200-399"}},
		{"no shape of the sort", []string{"shapes", "--shapes", "1", "--sort", "fills"}, []string{"--shapes: 1 has no fills"}},
		{"shapes by an unknown policy", []string{"shapes", "--policy", "tandom"}, []string{"--policy", "tandom"}},
		{"argument of shapes", []string{"shapes", "3"}, []string{`"3"`, "flags only"}},
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
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := evaluate(tc.args...)
			if code != command.Broken {
				t.Errorf("ends with %d, want %d", code, command.Broken)
			}
			if strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "evaluation: ") {
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
