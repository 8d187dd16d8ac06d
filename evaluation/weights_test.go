package main

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

const weightProfiles = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label\nResNet18,CIFAR-10,32,0,1763.9,58.6,25,2360,0\n"

func weighArgs(t *testing.T, more ...string) []string {
	profiles := file(t, "profiles.csv", weightProfiles)
	return append([]string{"weights", "--nodes", "testdata/nodes.csv", "--pods", "testdata/pods.csv", "--profiles", profiles}, more...)
}

func TestWeights(t *testing.T) {
	code, out, errs := evaluate(weighArgs(t, "--weights", "0,100", "--seeds", "1", "-o", "json")...)
	if code != 0 || !strings.Contains(out, `"weight": 100`) || !strings.Contains(out, `"lost_percent"`) {
		t.Errorf("ends with %d\n%s%s", code, out, errs)
	}
	code, out, _ = evaluate(weighArgs(t, "--seeds", "1", "--burst")...)
	if code != 0 || strings.Count(out, "\n") != 8 || !strings.HasPrefix(out, "weight %") {
		t.Errorf("ends with %d\n%s", code, out)
	}
}

func TestWeightsBadInput(t *testing.T) {
	pods := file(t, "none.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\n")
	tests := []struct {
		args []string
		says []string
	}{
		{weighArgs(t, "--weights", "0,1001"), []string{"--weights", `"1001"`, "0 to 1000"}},
		{weighArgs(t, "--weights", "5,5"), []string{"--weights", "5 appears twice"}},
		{weighArgs(t, "--weights", "much"), []string{"--weights", `"much"`}},
		{weighArgs(t, "--sample", "0"), []string{"--sample", "1 or more"}},
		{weighArgs(t, "--inflate", "0"), []string{"--inflate", "0.01 to 10"}},
		{[]string{"weights", "--nodes", "testdata/nodes.csv", "--pods", "testdata/pods.csv"}, []string{"--profiles", "missing"}},
		{[]string{"weights", "--nodes", "testdata/nodes.csv", "--pods", "testdata/pods.csv", "--profiles", pods}, []string{"--profiles", "no workloads alone"}},
	}
	for _, test := range tests {
		code, _, errs := evaluate(test.args...)
		if code != command.Broken || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v ends with %d\n%s", test.args, code, errs)
		}
		for _, want := range test.says {
			if !strings.Contains(errs, want) {
				t.Errorf("%v: %q is not in %s", test.args, want, errs)
			}
		}
	}
}
