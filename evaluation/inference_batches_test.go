package main

import (
	"testing"

	"github.com/tandem-gpu/tandem/test/golden"
)

// batches returns a file with what a model reaches on a whole GPU and on a part of one.
func batches(t *testing.T) string {
	t.Helper()
	return file(t, "batches.csv", "model,gpc,batch,procs,throughput_img_s,latency_s\n"+
		"made-up,7,1,1,100,0.010\nmade-up,7,1,2,90,0.011\nmade-up,7,2,1,160,0.012\nmade-up,7,2,2,80,0.025\nmade-up,7,4,1,0,0\n"+
		"made-up,1,1,1,40,0.025\nmade-up,1,1,2,30,0.033\nother,7,1,1,50,0.020\nother,7,1,2,50,0.020\n")
}

func TestInferenceBatches(t *testing.T) {
	golden.Text(t, "help_inference_batches.txt", succeed(t, "inference-batches", "--help"))
	golden.Text(t, "inference_batches.txt", succeed(t, "inference-batches", "--profile", batches(t)))
	golden.Text(t, "inference_batches.json", succeed(t, "inference-batches", "--profile", batches(t), "-o", "json"))
}

func TestInferenceBatchesBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", []string{"--profile", batches(t), "more.csv"}, []string{`"more.csv"`, "flags only"}},
		{"no profile", nil, []string{"--profile is missing"}},
		{"missing profile", []string{"--profile", "none.csv"}, []string{"--profile", "none.csv", "no such file"}},
		{"another file", []string{"--profile", shares(t)}, []string{"--profile", "does not say what models reach on MIG instances"}},
		{"one process", []string{"--profile", batches(t), "--processes", "1"}, []string{"--processes", "1 is no whole number from 2 to 60"}},
		{"half a process", []string{"--profile", batches(t), "--processes", "2.5"}, []string{"--processes", "2.5"}},
		{"no numbers", []string{"--profile", batches(t), "--processes", ""}, []string{"--processes", `"" has no whole numbers`}},
		{"many processes", []string{"--profile", batches(t), "--processes", "61"}, []string{"--processes", `"61"`}},
		{"unmeasured", []string{"--profile", batches(t), "--processes", "5"}, []string{"--profile and --processes", "no model was measured on a whole GPU"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refuse(t, append([]string{"inference-batches"}, tc.args...), tc.says)
		})
	}
}
