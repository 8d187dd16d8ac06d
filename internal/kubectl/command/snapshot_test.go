package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/kubectl/command"
)

// empty is a snapshot of no nodes.
const empty = `{"apiVersion":"snapshot.tandem-gpu.io/v1","kind":"Snapshot","minor":0,"source":"scheduler","at":"2026-01-01T00:00:00Z",
"redacted":false,"nodes":[],"gangs":[],"preemptions":[],"pending":[],"pendingLeftOut":0,"elasticTargets":[],"inferenceFleets":[]}`

// run runs a command, with a text on standard input, and returns its exit code and what it wrote.
func run(in string, args ...string) (code int, out, errs string) {
	var o, e strings.Builder
	code = command.Execute(args, command.Streams{In: strings.NewReader(in), Out: &o, Errs: &e, Env: func(string) string { return "" }})
	return code, o.String(), e.String()
}

// The snapshot goes through as it is, or as YAML, and into a file that nobody else can read.
func TestSnapshot(t *testing.T) {
	if code, out, errs := run(empty, "snapshot", "--snapshot", "-"); code != 0 || out != empty || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, out, errs := run(empty, "snapshot", "--snapshot", "-", "-o", "yaml"); code != 0 || !strings.Contains(out, "apiVersion: snapshot.tandem-gpu.io/v1\n") || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	file := filepath.Join(t.TempDir(), "now.json")
	if code, out, errs := run(empty, "snapshot", "--snapshot", "-", "-f", file); code != 0 || out != "" || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if code, out, _ := run("", "snapshot", "--snapshot", file); code != 0 || out != empty {
		t.Errorf("%d %q", code, out)
	}
}

// An anonymous snapshot is one that the commands read, with other names.
func TestAnonymousSnapshot(t *testing.T) {
	named := strings.Replace(empty, `"nodes":[]`, `"nodes":[{"name":"dgx-7","freeMilliCPU":1,"freeMemoryBytes":2,"devices":[],"pods":[],"holds":[]}]`, 1)
	for _, form := range [][]string{nil, {"-o", "yaml"}} {
		code, out, errs := run(named, append([]string{"snapshot", "--snapshot", "-", "--anonymous"}, form...)...)
		if code != 0 || errs != "" || strings.Contains(out, "dgx-7") || !strings.Contains(out, "node-1") {
			t.Errorf("%v: exit code %d, %q, %q", form, code, out, errs)
		}
	}
	_, out, _ := run(named, "snapshot", "--snapshot", "-", "--anonymous")
	if code, out, errs := run(out, "map", "--snapshot", "-"); code != 0 || errs != "" {
		t.Errorf("the map of it ends with %d: %q %q", code, out, errs)
	}
}

// Exit codes tell bad usage from what could not be done, and the line on stderr says which flag or file it is.
func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		name string
		in   string
		args []string
		code int
		says string
	}{
		{"unknown command", "", []string{"mpa"}, command.Misused, `unknown command "mpa"`},
		{"unknown flag", "", []string{"snapshot", "--file", "x"}, command.Misused, "--file"},
		{"argument too much", "", []string{"snapshot", "x"}, command.Misused, `has the argument "x"`},
		{"unknown form", "", []string{"snapshot", "-o", "xml"}, command.Misused, "json, yaml, wide"},
		{"form that a snapshot has not", "", []string{"snapshot", "-o", "wide"}, command.Misused, "json and yaml"},
		{"unknown colour", empty, []string{"snapshot", "--snapshot", "-", "--color", "red"}, command.Misused, "auto, always, never"},
		{"unverified scheduler", "", []string{"snapshot", "--scheduler-address", "https://127.0.0.1:1"}, command.Misused, "--scheduler-ca"},
		{"no time", empty, []string{"simulate", "--snapshot", "-", "--for", "0s"}, command.Misused, "--for: 0s, legal is more than 0s"},
		{"less than no GPUs", empty, []string{"simulate", "--snapshot", "-", "--limit", "-1"}, command.Misused, "--limit: -1"},
		{"two sources", empty, []string{"simulate", "--snapshot", "-", "--from-cluster"}, command.Misused, "two sources"},
		{"no configuration", empty, []string{"simulate", "--snapshot", "-", "--config", "/nonexistent/c.yaml"}, command.Failed, "/nonexistent/c.yaml"},
		{"no configuration of the scheduler", empty, []string{"simulate", "--snapshot", "-", "--present", "/nonexistent/c.yaml"}, command.Failed, "--present"},
		{"no pods to add", empty, []string{"simulate", "--snapshot", "-", "--add", "/nonexistent/p.yaml"}, command.Failed, "/nonexistent/p.yaml"},
		{"no nodes to play", empty, []string{"simulate", "--snapshot", "-"}, command.Failed, "the cluster has no nodes"},
		{"a gang without a name", empty, []string{"why", "gang/", "--snapshot", "-"}, command.Misused, `"gang/" names nothing: legal are POD, pod/NAME, gang/NAME and job/NAME`},
		{"no file", "", []string{"snapshot", "--snapshot", "/nonexistent/x.json"}, command.Failed, "/nonexistent/x.json"},
		{"no snapshot", "{}", []string{"snapshot", "--snapshot", "-"}, command.Failed, "apiVersion"},
		{"no kubeconfig", "", []string{"snapshot", "--kubeconfig", "/nonexistent/config"}, command.Failed, "/nonexistent/config"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := run(test.in, test.args...)
			if code != test.code || out != "" || !strings.Contains(errs, test.says) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, want %d; wrote %q and %q", code, test.code, out, errs)
			}
		})
	}
}
