package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/metrics/dashboards"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

var deployed = filepath.Join("..", "..", "..", "deploy", "monitoring")

// The files in deploy/monitoring are what the tables say.
func TestFilesAreUpToDate(t *testing.T) {
	want, err := files()
	must.OK(t, err)
	for name, content := range want {
		got, err := os.ReadFile(filepath.Join(deployed, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, content) {
			t.Errorf("%s is not what the tables say: run make generate", name)
		}
	}
	found, err := filepath.Glob(filepath.Join(deployed, "dashboards", "*"))
	must.OK(t, err)
	if len(found) != len(dashboards.All()) {
		t.Errorf("dashboards in the folder: %v", found)
	}
}

// The folder that is written has all files, and none of a dashboard that is gone.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "dashboards", "old.json")
	must.OK(t, os.MkdirAll(filepath.Dir(old), 0o755))
	must.OK(t, os.WriteFile(old, nil, 0o600))
	must.OK(t, run(dir))
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the dashboard of before is still there: %v", err)
	}
	for _, name := range []string{"rules.yaml", "prometheusrule.yaml", "dashboards/cluster.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// promtool takes the configuration, the rules, and each expression of each panel.
func TestPromtool(t *testing.T) {
	promtool(t, "check", "config", "--syntax-only", filepath.Join(deployed, "prometheus.yaml"))
	promtool(t, "check", "rules", filepath.Join(deployed, "rules.yaml"))
	var rules []any
	for _, d := range dashboards.All() {
		for i, p := range d.Panels {
			for k, q := range p.Queries {
				rules = append(rules, map[string]any{
					"record": fmt.Sprintf("%s:panel%d:%d", d.Name, i, k), "expr": strings.ReplaceAll(q.Expr.String(), query.RateInterval, "1m"),
				})
			}
		}
	}
	raw, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "panels.yaml")
	must.OK(t, os.WriteFile(path, raw, 0o600))
	promtool(t, "check", "rules", path)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	binary, err := sandbox.Tool(t.Context(), "promtool")
	must.OK(t, err)
	if output, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// Prometheus scrapes by the jobs that dashboards and alerts name, and finds the ports of the programs by the names that they have in the
// manifests.
func TestScrapes(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(deployed, "prometheus.yaml"))
	must.OK(t, err)
	var config struct {
		ScrapeConfigs []struct {
			JobName string `json:"job_name"`
			Relabel []struct {
				Regex       string `json:"regex"`
				TargetLabel string `json:"target_label"`
			} `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	must.OK(t, yaml.Unmarshal(raw, &config))
	var jobs []string
	for _, s := range config.ScrapeConfigs {
		jobs = append(jobs, s.JobName)
		name, port, _ := strings.Cut(s.Relabel[0].Regex, ";")
		if !hasPort(t, strings.TrimPrefix(name, "tandem-"), name, port) {
			t.Errorf("job %s scrapes the port %q of pods named %s, which the manifests do not have", s.JobName, port, name)
		}
		labelled := slices.ContainsFunc(s.Relabel, func(r struct {
			Regex       string `json:"regex"`
			TargetLabel string `json:"target_label"`
		}) bool {
			return r.TargetLabel == query.Node
		})
		if labelled != (s.JobName == sources.JobAgent) {
			t.Errorf("job %s: the label %s is set: %v", s.JobName, query.Node, labelled)
		}
	}
	slices.Sort(jobs)
	if !slices.Equal(jobs, sources.Jobs()) {
		t.Errorf("Prometheus has the jobs %v, dashboards and alerts go by %v", jobs, sources.Jobs())
	}
}

// hasPort reports whether a workload of a folder of deploy/ has pods of that name with that port.
func hasPort(t *testing.T, folder, name, port string) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(deployed, "..", folder, "d*.yaml")) // deployment or daemonset
	if err != nil || len(found) != 1 {
		t.Fatalf("workload of %s: %v, %v", folder, found, err)
	}
	raw, err := os.ReadFile(found[0])
	must.OK(t, err)
	text := string(raw)
	return strings.Contains(text, "app.kubernetes.io/name: "+name+"\n") && strings.Contains(text, "- name: "+port+"\n          containerPort:")
}
