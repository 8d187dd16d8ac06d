package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// rightsize is the small tables under testdata. Their set 1 is a model that runs on any instance beside one that needs at
// least three slices; set 2 has only the first.
func rightsize(more ...string) []string {
	args := []string{
		"rightsize", "--profile", "testdata/rightsize_profile.csv", "--latency", "testdata/rightsize_latency.csv",
		"--rates", "testdata/rightsize_rates.csv",
	}
	return append(args, more...)
}

const (
	deployment1 = "testdata/rightsize_deployment1.csv"
	deployment3 = "testdata/rightsize_deployment3.csv"
)

func TestRightsize(t *testing.T) {
	golden.Text(t, "help_rightsize.txt", succeed(t, "rightsize", "--help"))
	golden.Text(t, "rightsize.txt", succeed(t, rightsize()...))
	out := succeed(t, rightsize("--set", "2,1", "--deployment", "1="+deployment1, "-o", "json")...)
	golden.Text(t, "rightsize.json", out)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if diff := cmp.Diff(out, succeed(t, rightsize("--set", "2,1", "--deployment", "1="+deployment1, "-o", "json")...)); diff != "" {
		t.Errorf("on one processor (-want +got):\n%s", diff)
	}
}

// TestRightsizeOfOneSet: files without SET= are of the sets in their order; a higher part of the SLO needs no more GPUs.
func TestRightsizeOfOneSet(t *testing.T) {
	named := succeed(t, rightsize("--set", "1", "--deployment", "1="+deployment1)...)
	if diff := cmp.Diff(named, succeed(t, rightsize("--set", "1", "--deployment", deployment1)...)); diff != "" {
		t.Errorf("without the number of the set (-want +got):\n%s", diff)
	}
	odd := filepath.Join(t.TempDir(), "a=b.csv")
	must.OK(t, os.Link(deployment1, odd))
	if diff := cmp.Diff(named, succeed(t, rightsize("--set", "1", "--deployment", odd)...)); diff != "" {
		t.Errorf("with a sign in its name (-want +got):\n%s", diff)
	}
	if out := succeed(t, rightsize("--set", "3", "--latency-part", "0.5")...); !strings.Contains(out, " 25.0 ") {
		t.Errorf("half of 50 ms is not the limit:\n%s", out)
	}
}

// TestRightsizeViolated: the command tells what a deployment violates, and ends with 1.
func TestRightsizeViolated(t *testing.T) {
	args := rightsize("--set", "1,3", "--deployment", deployment1+","+deployment3)
	code, out, errs := evaluate(args...)
	if code != command.Failed || errs != "evaluation: 4 violations: assertions do not hold\n" {
		t.Errorf("ends with %d, says %q", code, errs)
	}
	golden.Text(t, "rightsize_violated.txt", out)
	code, out, errs = evaluate(append(args, "-o", "json")...)
	if code != command.Failed || strings.Count(errs, "violated: set 3, published, ") != 4 || !json.Valid([]byte(out)) {
		t.Errorf("ends with %d, says %q, prints %s", code, errs, out)
	}
	// No batch of slow takes less than 200 ms, so a fifth of its second is just enough, and less is not.
	code, _, _ = evaluate(rightsize("--set", "1", "--latency-part", "0.2")...)
	if code != 0 {
		t.Errorf("a fifth of the SLO: ends with %d", code)
	}
	code, out, _ = evaluate(rightsize("--set", "1", "--latency-part", "0.199")...)
	if code != command.Failed || !strings.Contains(out, "violated: set 1, tandem, slow: the fastest batch takes 200ms, above 199ms\n") {
		t.Errorf("less: ends with %d:\n%s", code, out)
	}
}

func TestRightsizeBadInput(t *testing.T) {
	broken := file(t, "broken.csv", "model,gpc,batch,procs,throughput_img_s,latency_s\nm,5,1,1,1,1\n")
	empty := file(t, "empty.csv", "")
	short := file(t, "short.csv", "1,1\n")
	zero := file(t, "zero.csv", "0,1\n1,1\n1,1\n")
	huge := file(t, "huge.csv", "N/A,900000\n")
	slow := file(t, "slow.csv", "N/A,1000\n")
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", rightsize("more.csv"), []string{`"more.csv"`, "flags only"}},
		{"no profile", []string{"rightsize", "--latency", "a", "--rates", "b"}, []string{"--profile is missing"}},
		{"no latency", []string{"rightsize", "--profile", "a", "--rates", "b"}, []string{"--latency is missing"}},
		{"no rates", []string{"rightsize", "--latency", "a", "--profile", "b"}, []string{"--rates is missing"}},
		{"missing profile", rightsize("--profile", "none.csv"), []string{"--profile", "none.csv", "no such file"}},
		{"missing rates", rightsize("--rates", "none.csv"), []string{"--rates", "none.csv", "no such file"}},
		{"broken profile", rightsize("--profile", broken), []string{"--profile", broken + " line 2 column gpc", `"5"`, "1 2 3 4 7"}},
		{"another trace", rightsize("--profile", "testdata/pods.csv"), []string{"--profile", "testdata/pods.csv", "MIG instances"}},
		{"empty latency", rightsize("--latency", empty), []string{"--latency", empty, "an empty file"}},
		{"fewer rates", rightsize("--rates", short), []string{"--rates", short, "1 row", "3 as testdata/rightsize_latency.csv has"}},
		{"a rate of zero", rightsize("--rates", zero), []string{"--rates", zero + " line 1 column fast", `"0"`, "or N/A"}},
		{"a set too many", rightsize("--set", "4"), []string{"--set", `"4"`, "1 to 3"}},
		{"a set of zero", rightsize("--set", "0"), []string{"--set", `"0"`, "1 to 3"}},
		{"no set", rightsize("--set", ""), []string{"--set", `""`, "1 to 3"}},
		{"a set twice", rightsize("--set", "2,2"), []string{"--set", "2 appears twice"}},
		{"no part", rightsize("--latency-part", "0"), []string{"--latency-part", "0.001 to 1"}},
		{"a part above 1", rightsize("--latency-part", "1.1"), []string{"--latency-part", "1.1", "0.001 to 1"}},
		{"NaN", rightsize("--latency-part", "NaN"), []string{"--latency-part", "NaN", "0.001 to 1"}},
		{"of which set", rightsize("--deployment", deployment1), []string{"--deployment", deployment1, "1 files for 3 sets", "5=FILE"}},
		{"of another set", rightsize("--set", "1,2", "--deployment", "3="+deployment3), []string{"--deployment", "set 3", "not among"}},
		{"two of a set", rightsize("--deployment", "1="+deployment1, "--deployment", "1="+deployment1), []string{"--deployment", "set 1 has two"}},
		{"missing deployment", rightsize("--deployment", "1=none.csv"), []string{"--deployment", "none.csv", "no such file"}},
		{"no deployment", rightsize("--deployment", "1=testdata/pods.csv"), []string{"--deployment", "testdata/pods.csv", "no instances"}},
		{"too many devices", rightsize("--rates", huge, "--latency", slow), []string{"set 1", "devices or more are needed, at most 10000 are legal"}},
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

// TestPublishedRightsize: ParvaGPU's sets need no more GPUs than its own deployments, which keep what was asked as well. The
// fewest that any deployment can have are 2, 3, 5 and 12.
func TestPublishedRightsize(t *testing.T) {
	data := published.Data(t)
	in := func(name string) string { return filepath.Join(data, "parvagpu", name) }
	args := []string{
		"rightsize", "--profile", in("a100_mig_mps_profile.csv"), "--latency", in("SLO_latency.csv"), "--rates", in("SLO_req_rate.csv"),
		"--set", "1,2,3,5", "-o", "json",
	}
	for _, set := range []int{1, 2, 3, 5} {
		args = append(args, "--deployment", fmt.Sprintf("%d=%s", set, in(fmt.Sprintf("SLO%d_ParvaGPU_deploy.csv", set))))
	}
	var r results.Rightsize
	must.OK(t, json.Unmarshal([]byte(succeed(t, args...)), &r))
	want := map[int][3]int{1: {2, 2, 6}, 2: {3, 3, 11}, 3: {5, 5, 11}, 5: {12, 13, 11}}
	for _, s := range r.Results {
		if got := [3]int{s.GPUs, *s.PublishedGPUs, len(s.Models)}; got != want[s.Set] || s.GPUs != s.LowerBound || !s.Optimal {
			t.Errorf("set %d: GPUs, published GPUs and models %v, want %v; bound %d", s.Set, got, want[s.Set], s.LowerBound)
		}
		for _, m := range s.Models {
			if m.Latency > m.Limit || m.Limit >= m.SLO/2 || m.Throughput < m.Rate || len(m.Instances) == 0 {
				t.Errorf("set %d: %+v", s.Set, m)
			}
		}
	}
	if len(r.Results) != len(want) {
		t.Errorf("%d sets, want %d", len(r.Results), len(want))
	}
}
