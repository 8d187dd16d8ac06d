package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/golden"
)

// urgent is the small traces under testdata, in the layouts of Philly and of openb.
func urgent(more ...string) []string {
	return append([]string{
		"preemption", "--pods", "testdata/preemption_jobs.csv", "--sample", "3", "--gpus", "2", "--jobs", "70", "--load", "0.8,1.5",
		"--high", "0.3", "--seeds", "1-3",
	}, more...)
}

func classes(more ...string) []string {
	return append([]string{
		"preemption", "--pods", "testdata/preemption_pods.csv", "--nodes", "testdata/nodes.csv", "--sample", "4", "--jobs", "50",
		"--load", "1.5", "--seeds", "1-3",
	}, more...)
}

func TestPreemption(t *testing.T) {
	golden.Text(t, "help_preemption.txt", succeed(t, "preemption", "--help"))
	golden.Text(t, "preemption.txt", succeed(t, urgent()...))
	golden.Text(t, "preemption_classes.txt", succeed(t, classes("--checkpoint", "5m", "--grace", "0s")...))
	out := succeed(t, urgent("--policy", "tandem", "-o", "json")...)
	golden.Text(t, "preemption.json", out)
	if diff := cmp.Diff(out, succeed(t, urgent("--policy", "tandem", "-o", "json")...)); diff != "" {
		t.Errorf("the same once more (-first +second):\n%s", diff)
	}
	for _, policy := range sim.PreemptionPolicies() {
		if !strings.Contains(succeed(t, "preemption", "--help"), "\n  "+policy+" ") {
			t.Errorf("the help does not explain %s", policy)
		}
	}
}

// TestPreemptionLosesLess: where jobs save their work, on the small traces too, tandem evicts somebody, loses less than default,
// and nobody goes in vain; where nobody is evicted urgent jobs wait longer.
func TestPreemptionLosesLess(t *testing.T) {
	for _, args := range [][]string{urgent("--checkpoint", "5m", "-o", "json"), classes("--checkpoint", "5m", "-o", "json")} {
		var out results.Preemption
		if err := json.Unmarshal([]byte(succeed(t, args...)), &out); err != nil {
			t.Fatal(err)
		}
		rows := map[string]results.PreemptionResult{}
		for _, r := range out.Results {
			rows[fmt.Sprintf("%s at %g", r.Policy, r.Load)] = r
		}
		tandem, stock, nobody := rows["tandem at 1.5"], rows["default at 1.5"], rows["none at 1.5"]
		switch {
		case tandem.Preemptions.Mean == 0 || tandem.Victims.Mean < 1:
			t.Errorf("%s: nobody is evicted: %+v", out.Trace, tandem)
		case tandem.Needless+tandem.Void+tandem.Unlawful > 0:
			t.Errorf("%s: evictions in vain: %+v", out.Trace, tandem)
		case tandem.LostHours.Mean >= stock.LostHours.Mean:
			t.Errorf("%s: %v hours are lost, by default %v", out.Trace, tandem.LostHours, stock.LostHours)
		case nobody.WaitP99.Mean <= tandem.WaitP99.Mean:
			t.Errorf("%s: urgent jobs wait for %v without evictions, for %v with them", out.Trace, nobody.WaitP99, tandem.WaitP99)
		}
	}
}

func TestPreemptionRefusesBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no pods", []string{"preemption"}, "flag --pods is missing: it names a CSV file"},
		{"an unknown policy", urgent("--policy", "kindness"), `flag --policy: choose preemption: unknown name "kindness", known are none, default, tandem`},
		{"a policy twice", urgent("--policy", "tandem,tandem"), "flag --policy: tandem appears twice"},
		{"a load of nothing", urgent("--load", "0"), `flag --load: "0" is no number above 0 and up to 10`},
		{"seeds", urgent("--seeds", "x"), "flag --seeds: read seeds"},
		{"a file that is not there", []string{"preemption", "--pods", "nowhere.csv"}, "flag --pods: "},
		{"nodes that are not there", urgent("--nodes", "nowhere.csv"), "flag --nodes: "},
		{"nodes that are none", urgent("--nodes", "testdata/preemption_jobs.csv"), "philly-jobs"},
		{"jobs of another kind", []string{"preemption", "--pods", "testdata/gangs_jobs1.csv"}, "want openb-pods, philly-jobs or dlrm-pods"},
		{"a price of nothing known", urgent("--prices", "step=1h,gang=1h"), `flag --prices: unknown name "gang", known are violation, step, broken, serving and victim`},
		{"a price without a unit", urgent("--prices", "step=1"), `flag --prices: step is "1", legal is a time from 0s to 10000h0m0s`},
		{"a price above all", urgent("--prices", "victim=10001h"), `flag --prices: victim is "10001h", legal is a time from 0s`},
		{"no nodes", urgent("--sample", "0"), "0 nodes, legal is 1 to 5000"},
		{"no GPUs", urgent("--gpus", "0"), "0 GPUs of each node, legal is 1 to 64"},
		{"no jobs", urgent("--jobs", "0"), "0 jobs, legal is 1 to 200000"},
		{"more than all", urgent("--high", "1.1"), "a part of 1.1 of a high priority, legal is 0 to 1"},
		{"no time", urgent("--longest", "0s"), "at most 0s of each job, 30s of grace, checkpoints every 0s"},
		{"grace", urgent("--grace", "-1s"), "-1s of grace"},
		{"checkpoints", urgent("--checkpoint", "-1s"), "checkpoints every -1s"},
		{"an argument", urgent("x"), `preemption takes flags only, has the argument "x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := evaluate(tc.args...)
			if code != command.Broken || out != "" || !strings.Contains(errs, tc.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("code %d, out %q, errs %q; want %q", code, out, errs, tc.want)
			}
		})
	}
}
