package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
)

// predicting is the small tables under testdata, in the layout of Lucid.
func predicting(more ...string) []string {
	return append([]string{
		"interference", "--pairs", "testdata/interference_pairs.csv", "--profiles", "testdata/interference_profiles.csv",
	}, more...)
}

func TestInterference(t *testing.T) {
	golden.Text(t, "help_interference.txt", succeed(t, "interference", "--help"))
	golden.Text(t, "interference.txt", succeed(t, predicting("--model", "none,constant,hinge")...))
	held := []string{"--hold-out", "all", "--observe", "0,1,2", "--seeds", "1-3", "-o", "json"}
	golden.Text(t, "interference.json", succeed(t, predicting(append(held, "--model", "constant,linear-hinge")...)...))
	held = predicting(held...)
	out := succeed(t, held...)
	for _, model := range []string{"constant", "default", "hinge", "linear-hinge", "none", "rank1", "table", "util-sum"} {
		if !strings.Contains(out, fmt.Sprintf("\"model\": %q", model)) {
			t.Errorf("no row of %s", model)
		}
	}
	if diff := cmp.Diff(out, succeed(t, held...)); diff != "" {
		t.Errorf("the same once more (-first +second):\n%s", diff)
	}
}

// TestInterferenceByGPU: the table of Gavel has two GPUs and no profiles; a file that does not follow a flag is one of pairs.
func TestInterferenceByGPU(t *testing.T) {
	args := []string{"--model", "constant", "--observe", "0,2", "--hold-out", "Oak,Yew", "--seeds", "1,2", "--observed", "held-out"}
	out := succeed(t, append([]string{"interference", "--pairs", "testdata/interference_gavel.csv"}, args...)...)
	golden.Text(t, "interference_gavel.txt", out)
	both := succeed(t, append(predicting("testdata/interference_gavel.csv"), args...)...)
	if !strings.Contains(both, "gavel-pairs on slow: 14 pairs, 1 more do not fit in memory, 1 more of other measurements") ||
		!strings.Contains(both, "lucid-pairs on rtx3090: 40 pairs") {
		t.Errorf("pairs are not counted:\n%s", both)
	}
}

// TestInterferenceOfParts: a table in two files is the table.
func TestInterferenceOfParts(t *testing.T) {
	all, err := os.ReadFile("testdata/interference_pairs.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.SplitAfter(string(all), "\n")
	first := file(t, "first.csv", strings.Join(rows[:20], ""))
	second := file(t, "second.csv", rows[0]+strings.Join(rows[20:], ""))
	args := []string{"--hold-out", "Alder,Elm", "--observe", "0,2", "-o", "json", "--profiles", "testdata/interference_profiles.csv"}
	parts := succeed(t, append([]string{"interference", "--pairs", first, "--pairs", second}, args...)...)
	if diff := cmp.Diff(succeed(t, append([]string{"interference", "--pairs", "testdata/interference_pairs.csv"}, args...)...), parts); diff != "" {
		t.Errorf("in two files (-one +two):\n%s", diff)
	}
}

func TestInterferenceBadInput(t *testing.T) {
	pair := ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2\n"
	broken := file(t, "broken.csv", pair+"0,Alder,made-up,1,32,0,NaN,Elm,made-up,1,64,0,1\n")
	stranger := file(t, "stranger.csv", pair+"0,Alder,made-up,1,32,0,.9,Hazel,made-up,1,64,0,1\n")
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"no pairs", []string{"interference"}, []string{"--pairs is missing"}},
		{"missing pairs", []string{"interference", "--pairs", "none.csv"}, []string{"--pairs", "none.csv", "no such file"}},
		{"broken pairs", []string{"interference", "--pairs", broken}, []string{"--pairs", broken + " line 2 column speed1", `"NaN"`, "0 to 10"}},
		{"another trace", []string{"interference", "--pairs", "testdata/pods.csv"}, []string{"testdata/pods.csv", "no pairs"}},
		{"pairs twice", predicting("testdata/interference_pairs.csv"), []string{"--pairs", "given twice"}},
		{"pairs as profiles", predicting("--profiles", "testdata/interference_pairs.csv"), []string{"testdata/interference_pairs.csv", "no profiles"}},
		{"a profile is missing", []string{"interference", "--pairs", stranger, "--profiles", "testdata/interference_profiles.csv"},
			[]string{stranger + " line 2", `"Hazel made-up batch 64"`, "rtx3090"}},
		{"unknown measurement", []string{"interference", "--pairs", "testdata/interference_gavel.csv", "--set", "physical"}, []string{`"physical"`, "oracle, simulation"}},
		{"unknown family", predicting("--hold-out", "Alder,Hazel"), []string{"--hold-out", `"Hazel"`, "Alder, Birch, Cedar, Elm, Fir"}},
		{"a family that is left out", predicting("--hold-out", "VGG11"), []string{"--hold-out", `"VGG11"`, "solo speed", "Alder"}},
		{"unknown model", predicting("--model", "oracle"), []string{"--model", `"oracle"`, "linear-hinge", "all"}},
		{"a model twice", predicting("--model", "table,table"), []string{"--model", "table appears twice"}},
		{"no model", predicting("--model", ""), []string{"--model", `unknown model ""`}},
		{"negative co-runs", predicting("--observe", "0,-1"), []string{"--observe", `"-1"`, "0 to 1000"}},
		{"too many co-runs", predicting("--observe", "1001"), []string{"--observe", "0 to 1000"}},
		{"co-runs twice", predicting("--observe", "2,2"), []string{"--observe", "2 appears twice"}},
		{"co-runs of nobody", predicting("--observed", "none"), []string{"--observed", `"none"`, "all, held-out and history"}},
		{"a history of nothing", predicting("--observed", "history"), []string{"--observed", "history", "--hold-out"}},
		{"broken seeds", predicting("--seeds", "9-7"), []string{"--seeds", `"9-7"`}},
		{"a promise below one", predicting("--max-slowdown", "0.9"), []string{"--max-slowdown", `"0.9"`, "from 1"}},
		{"a promise that is no number", predicting("--max-slowdown", "NaN"), []string{"--max-slowdown", `"NaN"`}},
		{"unknown form", predicting("-o", "yaml"), []string{"--output", "table, json"}},
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
