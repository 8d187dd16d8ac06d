package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/test/golden"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestJobs: the pods of whole clusters become lists that scenarios can play. All pods are counted: in the list, or left out with a reason.
func TestJobs(t *testing.T) {
	for _, from := range []string{"kubeadm.json", "gke.json", "eks.yaml"} {
		t.Run(from, func(t *testing.T) {
			code, out, errs := simulate("jobs", filepath.Join("testdata", "pods", from))
			if code != 0 {
				t.Errorf("ends with %d: %s", code, errs)
			}
			golden.Text(t, filepath.Join("pods", from+".txt"), out+"\n"+errs)
			list, err := traces.Read(strings.NewReader(out), "jobs.csv")
			must.OK(t, err)
			if list.Format != traces.JobList {
				t.Errorf("it is read as %s", list.Format)
			}
		})
	}
}

// TestJobsWithoutGPUs: pods without GPUs are listed where that is asked for, and still none of those that come with a node.
func TestJobsWithoutGPUs(t *testing.T) {
	_, out, _ := simulate("jobs", "--without-gpus", filepath.Join("testdata", "pods", "kubeadm.json"))
	if want := "kube-system,coredns-668d6bf9bc-4xq7l,2026-01-30T06:00:00Z,,0,0.1,0.0683"; !strings.Contains(out, want) || strings.Contains(out, "kube-proxy") {
		t.Errorf("want %s, and no pods of DaemonSets:\n%s", want, out)
	}
}

// TestTracesGuide: the scenario that the guide prints can be copied and played.
func TestTracesGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/traces.md")
	must.OK(t, err)
	_, text, found := strings.Cut(string(page), "```yaml\n")
	text, _, ended := strings.Cut(text, "```\n")
	if !found || !ended {
		t.Fatal("the page has no scenario")
	}
	jobs, err := os.ReadFile("../../examples/own-trace/jobs.csv")
	must.OK(t, err)
	path := file(t, "copied.yaml", text)
	must.OK(t, os.Mkdir(filepath.Join(filepath.Dir(path), "own-trace"), 0o755))
	must.OK(t, os.WriteFile(filepath.Join(filepath.Dir(path), "own-trace", "jobs.csv"), jobs, 0o644))
	if out := succeed(t, "run", path); !strings.Contains(out, "packed") {
		t.Errorf("the comparison of policies is missing:\n%s", out)
	}
}

// TestJobsRefuses: the command refuses input without pods that a list could have, and half a file.
func TestJobsRefuses(t *testing.T) {
	whole, err := os.ReadFile("testdata/pods/gke.json")
	must.OK(t, err)
	pod := `{"kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"main"}]}}`
	for name, tc := range map[string]struct {
		args []string
		text string
		says string
	}{
		"nothing":      {nil, "", "there are no objects: legal are List, PodList and Pod"},
		"no JSON":      {nil, "name,gpus\nx,1\n", "document 1"},
		"another kind": {nil, `{"kind":"Status","message":"Forbidden"}`, `kind: "Status" without items; legal are List`},
		"cut off":      {nil, string(whole[:len(whole)/2]), "document 1 is no whole JSON or YAML"},
		"no quantity":  {nil, strings.Replace(pod, `"main"`, `"main","resources":{"limits":{"cpu":"many"}}`, 1), "quantities must match"},
		"no GPUs":      {nil, pod, "no pod can be in the list"},
		"slots":        {[]string{"--slots", "0"}, pod, "flag --slots: 0, legal is 1 to 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := simulate(append([]string{"jobs", file(t, "pods.json", tc.text)}, tc.args...)...)
			if code != command.Broken || out != "" || !strings.Contains(errs, tc.says) {
				t.Errorf("ends with %d, want %d and %q:\n%s%s", code, command.Broken, tc.says, out, errs)
			}
		})
	}
}
