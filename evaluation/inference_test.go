package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/golden"
)

// minutes returns a file with a load of so many minutes, with a jump in each quarter of an hour.
func minutes(t *testing.T, count int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("minute,tweets\n")
	for m := range count {
		tweets := 600
		if m%15 == 5 {
			tweets = 1800
		}
		fmt.Fprintf(&b, "%d,%d\n", m, tweets)
	}
	return file(t, "load.csv", b.String())
}

// shares returns a file with what a model reaches on shares of a GPU.
func shares(t *testing.T) string {
	t.Helper()
	return file(t, "shares.csv", "model,batch,mps_pct,latency_ms,throughput_img_s,l2_util_pct,dram_util_pct\n"+
		"made-up,1,20,50,20,,\nmade-up,1,40,28,36,,\nmade-up,1,100,15,67,,\nmade-up,2,20,90,22,,\n")
}

// serve compares policies in little time.
func serve(t *testing.T, more ...string) []string {
	t.Helper()
	args := []string{
		"inference", "--profile", shares(t), "--workload", "made-up batch 1", "--load", minutes(t, 60), "--warm-up", "15", "--shares", "20,100", "--scale", "2",
		"--promise", "5", "--misses", "0.001", "--utilisation", "0.3", "--rate", "0.3", "--static", "2,4",
	}
	return append(args, more...)
}

func TestInference(t *testing.T) {
	golden.Text(t, "help_inference.txt", succeed(t, "inference", "--help"))
	out := succeed(t, serve(t)...)
	golden.Text(t, "inference.txt", out)
	golden.Text(t, "inference.json", succeed(t, serve(t, "-o", "json")...))
	same := file(t, "times.csv", "timestamp_anon,value,container_ip\n1,25000,a\n")
	if diff := cmp.Diff(out, succeed(t, serve(t, "--load-times", same)...)); diff != "" {
		t.Errorf("with load times that are as declared (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(out, succeed(t, serve(t, "--shares", "100,20")...)); diff != "" {
		t.Errorf("shares in another order (-want +got):\n%s", diff)
	}
}

func TestInferenceBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"argument", serve(t, "more.csv"), []string{`"more.csv"`, "flags only"}},
		{"no profile", []string{"inference", "--load", minutes(t, 20)}, []string{"--profile is missing"}},
		{"no load", []string{"inference", "--profile", shares(t)}, []string{"--load is missing"}},
		{"missing load", serve(t, "--load", "none.csv"), []string{"--load", "none.csv", "no such file"}},
		{"missing load times", serve(t, "--load-times", "none.csv"), []string{"--load-times", "none.csv", "no such file"}},
		{"a load as load times", serve(t, "--load-times", minutes(t, 5)), []string{"--load-times", "alibaba-load-times"}},
		{"another file", serve(t, "--load", shares(t)), []string{"--load", "those of a known trace: twitter-minutes"}},
		{"a profile without shares", serve(t, "--profile", minutes(t, 5)), []string{"--profile"}},
		{"unknown workload", serve(t, "--workload", "bert"), []string{"--workload", `no latency of "bert" on 20 %`}},
		{"unknown share", serve(t, "--shares", "30"), []string{"--shares", "on 30 %"}},
		{"no share", serve(t, "--shares", ""), []string{"--shares", "no percents from 1 to 100"}},
		{"a share above all", serve(t, "--shares", "120"), []string{"--shares", "no percents from 1 to 100"}},
		{"no promise", serve(t, "--promise", "0"), []string{"--promise", `"0" is no number above 0`}},
		{"a promise that is no number", serve(t, "--promise", "NaN"), []string{"--promise", `"NaN"`}},
		{"misses all", serve(t, "--misses", "1"), []string{"--misses", "at most 0.5"}},
		{"more than all the time", serve(t, "--utilisation", "1.5"), []string{"--utilisation", "at most 1"}},
		{"negative rate", serve(t, "--rate", "-1"), []string{"--rate", `"-1"`}},
		{"no scale", serve(t, "--scale", "0"), []string{"--scale", "above 0"}},
		{"variation", serve(t, "--variation", "2"), []string{"--variation", "0 to 1"}},
		{"load time", serve(t, "--load-time", "2h"), []string{"--load-time", "0s to 1h"}},
		{"from", serve(t, "--from", "-1"), []string{"--from", "0 or more"}},
		{"warm-up", serve(t, "--warm-up", "-1"), []string{"--warm-up", "0 or more"}},
		{"only a warm-up", serve(t, "--warm-up", "60"), []string{"--warm-up", "60 are played, and 60 of them as a warm-up"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refuse(t, tc.args, tc.says)
		})
	}
}
