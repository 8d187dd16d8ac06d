package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
)

// colocating is the small tables under testdata, in the layout of Lucid.
func colocating(more ...string) []string {
	return append([]string{
		"colocate", "--pairs", "testdata/interference_pairs.csv", "--profiles", "testdata/interference_profiles.csv",
		"--gpus", "4", "--jobs", "80", "--seeds", "1-3",
	}, more...)
}

func TestColocate(t *testing.T) {
	golden.Text(t, "help_colocate.txt", succeed(t, "colocate", "--help"))
	golden.Text(t, "colocate.txt", succeed(t, colocating("--policy", "fifo,horus-2,horus-3,least-loaded-3,lucid,oracle")...))
	golden.Text(t, "colocate.json", succeed(t, colocating("--policy", "lucid,oracle", "--configurations", "5", "-o", "json")...))
	out := succeed(t, colocating("-o", "json")...)
	for _, policy := range []string{"fifo", "horus-2", "horus-3", "least-loaded-3", "lucid", "linear-hinge-0.8", "oracle", "tandem", "tandem-measured"} {
		if !strings.Contains(out, fmt.Sprintf("\"policy\": %q", policy)) {
			t.Errorf("no row of %s", policy)
		}
	}
	if diff := cmp.Diff(out, succeed(t, colocating("-o", "json")...)); diff != "" {
		t.Errorf("the same once more (-first +second):\n%s", diff)
	}
}

func TestColocateBadInput(t *testing.T) {
	const pairs = ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2,gpu_util,gmem_util,gmem\n"
	const profiles = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label\n"
	unknown := file(t, "unknown.csv", pairs+"0,Oak,made-up,1,32,0,0.9,Oak,made-up,1,32,0,0.9,50,50,4000\n")
	broken := file(t, "broken.csv", pairs+"0,Alder,made-up,1,32,0,NaN,Alder,made-up,1,32,0,0.9,50,50,4000\n")
	oak := file(t, "oak.csv", profiles+"Oak,made-up,32,0,100,50,20,25000,0\n")
	wide := file(t, "wide.csv", profiles+"Oak,made-up,32,0,100,150,20,2000,0\n")
	alone := []string{"colocate", "--pairs", unknown, "--profiles"}
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", colocating("more.csv"), []string{`"more.csv"`, "flags only"}},
		{"no pairs", []string{"colocate", "--profiles", oak}, []string{"--pairs is missing"}},
		{"no profiles", []string{"colocate", "--pairs", unknown}, []string{"--profiles is missing"}},
		{"missing pairs", []string{"colocate", "--pairs", "none.csv", "--profiles", oak}, []string{"--pairs", "none.csv", "no such file"}},
		{"missing profiles", append(alone, "none.csv"), []string{"--profiles", "none.csv", "no such file"}},
		{"broken pairs", []string{"colocate", "--pairs", broken, "--profiles", oak}, []string{"--pairs", broken + " line 2", `"NaN"`}},
		{"profiles as pairs", []string{"colocate", "--pairs", oak, "--profiles", oak}, []string{oak, "no pairs of workloads"}},
		{"pairs as profiles", append(alone, unknown), []string{unknown, "no profiles of workloads"}},
		{"a workload without a profile", append(alone, "testdata/interference_profiles.csv"), []string{unknown + " line 2", `none of workload "Oak made-up batch 32"`}},
		{"a workload that does not fit", append(alone, oak), []string{`"Oak made-up batch 32" holds 26214400000 bytes`, "1 to 25769803776"}},
		{"a utilisation out of range", append(alone, wide), []string{"--profiles", wide + " line 2 column gpu_util", `"150"`, "0 to 100"}},
		{"several GPU models", []string{"colocate", "--pairs", "testdata/interference_gavel.csv", "--profiles", oak}, []string{"gavel-pairs on", "want the pairs of one GPU model"}},
		{"unknown policy", colocating("--policy", "tetris"), []string{"--policy", `"tetris"`, "least-loaded-3", "tandem", "all"}},
		{"policy twice", colocating("--policy", "fifo,fifo"), []string{"--policy", "fifo appears twice"}},
		{"no GPUs", colocating("--gpus", "0"), []string{"--gpus", "1 to 1000"}},
		{"too many GPUs", colocating("--gpus", "1001"), []string{"--gpus", "1 to 1000"}},
		{"no jobs", colocating("--jobs", "0"), []string{"--jobs", "1 to 20000"}},
		{"too many jobs", colocating("--jobs", "20001"), []string{"--jobs", "1 to 20000"}},
		{"fewer than no configurations", colocating("--configurations", "-1"), []string{"--configurations", "-1", "0 or more"}},
		{"too many configurations", colocating("--configurations", "11"), []string{"11 configurations", "the 10 that were measured"}},
		{"broken seeds", colocating("--seeds", "9-7"), []string{"--seeds", `"9-7"`}},
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
