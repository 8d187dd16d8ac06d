package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for flag, want := range map[string]string{
		"--scheduler-name=":        "--scheduler-name:  is not legal, legal is the schedulerName of pods",
		"--share-annotation=a b":   "--share-annotation: a b is not legal, legal is the key of an annotation",
		"--policy=best":            "--policy: best is not legal, legal is one of bestfit, clustering, dotprod, fgd, packed, packing, random, spread, tandem",
		"--node-interval=999ms":    "--node-interval: 999ms is not legal, legal is 1s to 1h",
		"--node-interval=61m":      "--node-interval: 1h1m0s is not legal, legal is 1s to 1h",
		"--keep=0":                 "--keep: 0s is not legal, legal is above 0s",
		"--gang-gather=-1s":        "--gang-gather: -1s is not legal, legal is 0s or more",
		"--max-pods=0":             "--max-pods: 0 is not legal, legal is 1 or more",
		"--examples=-1":            "--examples: -1 is not legal, legal is 0 or more",
		"--output=xml":             "--output: xml is not legal, legal is one of text, json",
		"--secure-port=65536":      "--secure-port: 65536 is not legal, legal is 0 to 65535",
		"--secure-port=0":          "",
		"--share-annotation=a.b/c": "",
		"--bind-address=127.0.0.1": "",
		"--scheduler-name=volcano": "",
	} {
		c := command()
		c.SetArgs([]string{flag, "--kubeconfig=/nowhere/kubeconfig"})
		err := c.ExecuteContext(t.Context())
		if err == nil || want != "" && err.Error() != want || want == "" && !strings.HasPrefix(err.Error(), "--kubeconfig: ") {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

// TestConfig: the flags make settings that shadow mode accepts.
func TestConfig(t *testing.T) {
	s := &settings{policy: "tandem", keep: 1, maxPods: 1}
	if _, err := s.config(); err != nil {
		t.Error(err)
	}
}
