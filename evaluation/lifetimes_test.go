package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commands read a trace and write a table; they end with exit code 2 and the flag's name if they cannot.
func TestLifetimesCommands(t *testing.T) {
	rows := "timestamp,duration,num_gpus,cluster\n"
	for _, day := range []string{"01", "02", "03", "04", "05", "06", "07", "08"} {
		rows += "2017-10-" + day + " 00:00:00,5000,1,ann\n2017-10-" + day + " 01:00:00,100,1,bob\n"
	}
	file := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"lifetimes", "--trace", file}, 0, "linear regression"},
		{[]string{"shortest", "--trace", file, "--gpus", "1", "--load", "1,2"}, 0, "by median: gain %"},
		{[]string{"lifetimes"}, 2, "flag --trace is missing"},
		{[]string{"shortest"}, 2, "flag --trace is missing"},
		{[]string{"shortest", "--trace", file, "--load", "x"}, 2, "flag --load"},
		{[]string{"shortest", "--trace", file, "--gpus", "0"}, 2, "0 GPUs, legal is 1 to"},
		{[]string{"lifetimes", "--trace", file, "--strength", "0"}, 2, "strength 0, legal is more than 0"},
		{[]string{"lifetimes", "--trace", file + "x"}, 2, "flag --trace"},
	} {
		var out, errs bytes.Buffer
		if code := execute(c.args, &out, &errs); code != c.code || !strings.Contains(out.String()+errs.String(), c.want) {
			t.Errorf("%v: code %d, %q, %q; want code %d and %q", c.args, code, out.String(), errs.String(), c.code, c.want)
		}
	}
}
