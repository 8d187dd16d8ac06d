package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lines are events of two runs: b/inner fails and passes, stays fails twice, and slow is skipped when it is repeated.
const lines = `# a line of the compiler
{"Action":"run","Package":"m/p","Test":"TestA"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"fine\n"}
{"Action":"pass","Package":"m/p","Test":"TestA"}
{"Action":"run","Package":"m/p","Test":"TestB"}
{"Action":"run","Package":"m/p","Test":"TestB/inner play"}
{"Action":"output","Package":"m/p","Test":"TestB/inner play","Output":"too late\n"}
{"Action":"fail","Package":"m/p","Test":"TestB/inner play"}
{"Action":"fail","Package":"m/p","Test":"TestB"}
{"Action":"run","Package":"m/p","Test":"TestStays"}
{"Action":"fail","Package":"m/p","Test":"TestStays"}
{"Action":"run","Package":"m/q","Test":"TestSlow"}
{"Action":"fail","Package":"m/q","Test":"TestSlow"}
{"Action":"run","Package":"m/p","Test":"TestB"}
{"Action":"run","Package":"m/p","Test":"TestB/inner play"}
{"Action":"output","Package":"m/p","Test":"TestB/inner play","Output":"in time\n"}
{"Action":"pass","Package":"m/p","Test":"TestB/inner play"}
{"Action":"pass","Package":"m/p","Test":"TestB"}
{"Action":"run","Package":"m/p","Test":"TestStays"}
{"Action":"fail","Package":"m/p","Test":"TestStays"}
{"Action":"run","Package":"m/q","Test":"TestSlow"}
{"Action":"skip","Package":"m/q","Test":"TestSlow"}
`

func TestFlakes(t *testing.T) {
	dir := t.TempDir()
	events, folder, file := filepath.Join(dir, "events"), filepath.Join(dir, "logs"), filepath.Join(dir, "cache", "flakes")
	if err := os.WriteFile(events, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for round, want := range []int{1, 2} {
		var out bytes.Buffer
		if _, err := run([]string{"add", events, folder, file, "abc"}, &out); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, "FLAKE") != 1 || !strings.HasPrefix(got, "FLAKE m/p.TestB/inner play: ") {
			t.Errorf("it says %q, want the one play that failed and then passed", got)
		}
		code, err := run([]string{"list", file}, &out)
		if err != nil || code != want {
			t.Errorf("after round %d the list ends with %d, %v, want %d", round, code, err, want)
		}
	}
	both, err := os.ReadFile(filepath.Join(folder, "m-p.TestB-inner_play.log"))
	if want := "too late\n--- repeated alone:\nin time\n"; err != nil || string(both) != want {
		t.Errorf("the log is %q, %v, want %q", both, err, want)
	}
}

func TestNoFlakes(t *testing.T) {
	var out bytes.Buffer
	if code, err := run([]string{"list", filepath.Join(t.TempDir(), "none")}, &out); code != 0 || err != nil || out.Len() > 0 {
		t.Errorf("no file of flakes ends with %d, %v, and %q", code, err, out.String())
	}
	for _, args := range [][]string{nil, {"add", "x"}, {"list"}, {"mend", "x"}} {
		if _, err := run(args, &out); err == nil {
			t.Errorf("%q has no error", args)
		}
	}
}
