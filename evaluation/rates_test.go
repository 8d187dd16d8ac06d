package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
)

// rates is the small table under testdata.
func rates(more ...string) []string {
	args := []string{"rates", "--throughputs", "testdata/rates.csv", "--set", "made-up", "--seeds", "1,2", "--jobs", "20"}
	return append(args, more...)
}

func TestRates(t *testing.T) {
	golden.Text(t, "help_rates.txt", succeed(t, "rates", "--help"))
	golden.Text(t, "rates.txt", succeed(t, rates("--cluster", "k80=8,v100=8")...))
	out := succeed(t, rates("--prices", "k80=1,v100=5", "-o", "json")...)
	golden.Text(t, "rates.json", out)
	if diff := cmp.Diff(out, succeed(t, rates("--prices", "v100=5.000,k80=1", "-o", "json", "--cluster", "v100=36,k80=36")...)); diff != "" {
		t.Errorf("the same in another order (-want +got):\n%s", diff)
	}
}

// TestRatesOfScaling: the table of throughputs by number of workers will do, without sets.
func TestRatesOfScaling(t *testing.T) {
	scaling := file(t, "scaling.csv", "gpu,job,scale_factor,tput_consolidated_steps_s\nk80,conv,1,3\nk80,conv,2,5\nv100,conv,1,30\n")
	out := succeed(t, "rates", "--throughputs", scaling, "--seeds", "1", "--jobs", "5")
	if !strings.Contains(out, "cheapest-share") {
		t.Errorf("no row of cheapest-share:\n%s", out)
	}
}

func TestRatesBadInput(t *testing.T) {
	broken := file(t, "broken.csv", "gpu,job_a,job_b,iso_a,iso_b\nk80,a,b,NaN,1\n")
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", rates("more.csv"), []string{`"more.csv"`, "flags only"}},
		{"no throughputs", []string{"rates"}, []string{"--throughputs is missing"}},
		{"missing throughputs", []string{"rates", "--throughputs", "none.csv"}, []string{"--throughputs", "none.csv", "no such file"}},
		{"broken throughputs", []string{"rates", "--throughputs", broken}, []string{"--throughputs", broken + " line 2 column iso_a", `"NaN"`, "0 to 1000000"}},
		{"another trace", []string{"rates", "--throughputs", "testdata/pods.csv"}, []string{"--throughputs", "testdata/pods.csv", "no rates of jobs"}},
		{"unknown set", rates("--set", "oracle"), []string{"--set", `"oracle"`, `its first is "made-up"`}},
		{"a model that was not measured", rates("--cluster", "t4=1,v100=1", "--prices", "t4=1,v100=2"), []string{"no job was measured on all of t4, v100"}},
		{"no devices", rates("--cluster", "k80=0"), []string{"--cluster", `"k80=0"`, "1 to 10000"}},
		{"huge cluster", rates("--cluster", "k80=10001"), []string{"--cluster", "1 to 10000"}},
		{"a cluster without numbers", rates("--cluster", "k80,v100"), []string{"--cluster", `"k80"`, "v100=36"}},
		{"a model twice", rates("--cluster", "k80=1,k80=2"), []string{"--cluster", "k80 appears twice"}},
		{"a price too few", rates("--prices", "k80=1"), []string{"--prices", `"k80=1"`, "every model"}},
		{"a price too many", rates("--prices", "k80=1,v100=2,t4=1"), []string{"--prices", "t4 is not in the cluster"}},
		{"a price twice", rates("--prices", "k80=1,v100=2,k80=1"), []string{"--prices", "k80 appears twice"}},
		{"a price of zero", rates("--prices", "k80=0,v100=2"), []string{"--prices", `"k80=0"`, "above 0", "v100=2.48"}},
		{"a price that is no number", rates("--prices", "k80=NaN,v100=2"), []string{"--prices", `"k80=NaN"`}},
		{"a huge price", rates("--prices", "k80=1e99,v100=2"), []string{"--prices", `"k80=1e99"`, "1000000"}},
		{"no jobs", rates("--jobs", "0"), []string{"--jobs", "1 to 10000"}},
		{"too many jobs", rates("--jobs", "10001"), []string{"--jobs", "10001", "1 to 10000"}},
		{"unknown policy", rates("--policy", "tetris"), []string{"--policy", `"tetris"`}},
		{"broken seeds", rates("--seeds", "9-7"), []string{"--seeds", `"9-7"`}},
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
