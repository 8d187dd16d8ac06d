package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/alerts"
	"github.com/tandem-gpu/tandem/internal/metrics/dashboards"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// prometheus is one that scrapes the programs of the demo.
type prometheus struct {
	url string
	// seen are the lines of panels that had a number, and the families that are served.
	seen map[string]bool
}

type object = map[string]any

// startPrometheus starts it in a directory of its own, and waits until it reaches all programs.
func startPrometheus(ctx context.Context, t *testing.T, c *cluster) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := c.configure(ctx, t, dir)
	binary, err := sandbox.Tool(ctx, "prometheus")
	must.OK(t, err)
	ports, err := sandbox.FreePorts(1)
	must.OK(t, err)
	address := fmt.Sprintf("%s:%d", loopback, ports[0])
	if _, err := c.plane.Processes().Start("prometheus", exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{"http://" + address, map[string]bool{}}
	p.await(ctx, t, "Prometheus reaches all programs", func(ctx context.Context) (string, error) {
		values, err := p.query(ctx, "up == 1")
		if all := len(c.nodes) + len(sources.Jobs()) - 1; len(values) < all {
			return fmt.Sprintf("it reaches %d of %d", len(values), all), err
		}
		return "", nil
	})
	return p
}

// configure writes a configuration with the jobs and the rules of deploy/monitoring into a directory, and returns its file. The
// configuration lists what Prometheus scrapes, as the programs of the demo are in no pods.
func (c *cluster) configure(ctx context.Context, t *testing.T, dir string) string {
	t.Helper()
	deployed := filepath.Join(c.root, "deploy", "monitoring")
	config := object{}
	raw, err := os.ReadFile(filepath.Join(deployed, "prometheus.yaml"))
	must.OK(t, err)
	must.OK(t, yaml.Unmarshal(raw, &config))
	for _, each := range config["scrape_configs"].([]any) {
		job := each.(object)
		delete(job, "kubernetes_sd_configs")
		delete(job, "relabel_configs")
		job["static_configs"] = c.targets(job["job_name"].(string))
		if login, needed := job["authorization"].(object); needed {
			login["credentials_file"] = c.token(ctx, t, deployed, dir)
		}
	}
	config["rule_files"] = []string{filepath.Join(deployed, "rules.yaml")}
	config["global"] = object{"scrape_interval": "1s", "evaluation_interval": "1s"}
	if raw, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "prometheus.yaml")
	must.OK(t, os.WriteFile(path, raw, 0o600))
	return path
}

// targets are the programs that a job scrapes.
func (c *cluster) targets(job string) []any {
	at := map[string]string{sources.JobScheduler: c.schedulerMetrics, sources.JobController: c.controllerMetrics, sources.JobActivator: c.activatorMetrics}
	if job != sources.JobAgent {
		return []any{object{"targets": []string{at[job]}}}
	}
	all := make([]any, 0, len(c.nodes))
	for _, n := range c.nodes {
		all = append(all, object{"targets": []string{n.metrics}, "labels": object{query.Node: n.name}})
	}
	return all
}

// token makes the account of Prometheus with the roles of deploy/monitoring, and returns the file with its token.
func (c *cluster) token(ctx context.Context, t *testing.T, deployed, dir string) string {
	t.Helper()
	roles, err := os.ReadFile(filepath.Join(deployed, "rbac.yaml"))
	must.OK(t, err)
	const account = `
{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: prometheus, namespace: monitoring}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tandem-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tandem-metrics}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
`
	for _, manifest := range []string{string(roles), account} {
		must.OK(t, c.plane.Apply(ctx, []byte(manifest)))
	}
	kubeconfig, err := c.plane.ServiceAccount(ctx, "monitoring", "prometheus")
	must.OK(t, err)
	login, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must.OK(t, err)
	path := filepath.Join(dir, "token")
	must.OK(t, os.WriteFile(path, []byte(login.BearerToken), 0o600))
	return path
}

// await asks once a second until nothing is missing.
func (p *prometheus) await(ctx context.Context, t *testing.T, what string, missing func(context.Context) (string, error)) {
	t.Helper()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		rest, err := missing(ctx)
		if err == nil && rest == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %s, %v", what, rest, err)
		case <-second.C:
		}
	}
}

// get reads an answer of the API of Prometheus.
func (p *prometheus) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Error string
		Data  any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// query returns the values of an expression that are numbers.
func (p *prometheus) query(ctx context.Context, expression string) ([]float64, error) {
	var data struct{ Result []struct{ Value []any } }
	if err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expression), &data); err != nil {
		return nil, err
	}
	var values []float64
	for _, r := range data.Result {
		if v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64); err == nil && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values, nil
}

// active returns the alerts that fire or are about to.
func (p *prometheus) active(ctx context.Context) ([]string, error) {
	var data struct {
		Alerts []struct{ Labels map[string]string }
	}
	if err := p.get(ctx, "/api/v1/alerts", &data); err != nil {
		return nil, err
	}
	var names []string
	for _, a := range data.Alerts {
		names = append(names, a.Labels["alertname"])
	}
	return names, nil
}

// quiet returns the alerts that are active, once all rules were evaluated.
func (p *prometheus) quiet(ctx context.Context) (string, error) {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get(ctx, "/api/v1/rules", &data); err != nil {
		return "", err
	}
	rules := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if rules++; r.Health != "ok" {
				return fmt.Sprintf("%s is %s: %s", r.Name, r.Health, r.LastError), nil
			}
		}
	}
	want := 0
	for _, g := range alerts.All() {
		want += len(g.Alerts)
	}
	if rules != want {
		return fmt.Sprintf("%d of %d rules are loaded", rules, want), nil
	}
	active, err := p.active(ctx)
	return strings.Join(active, ", "), err
}

// expression is that of a panel as Grafana sends it, for all values of the variables.
func expression(e query.Expr) string {
	text := strings.ReplaceAll(e.String(), query.RateInterval, "5m")
	for _, variable := range []string{query.Node, "namespace"} {
		text = strings.ReplaceAll(text, "\"$"+variable+"\"", `".*"`)
	}
	return text
}

// empty returns the lines of panels that had no number yet. The reason of a sick device is there until the device is well again.
func (p *prometheus) empty(ctx context.Context) (string, error) {
	var all []string
	for _, d := range dashboards.All() {
		for _, panel := range d.Panels {
			for _, q := range panel.Queries {
				name := strings.TrimSuffix(d.Name+": "+panel.Title+": "+q.Legend, ": ")
				if p.seen[name] {
					continue
				}
				values, err := p.query(ctx, expression(q.Expr))
				if err != nil {
					return "", err
				}
				if len(values) == 0 {
					all = append(all, name)
				}
				p.seen[name] = len(values) > 0
			}
		}
	}
	return strings.Join(all, "; "), nil
}

// unserved returns the families that alerts read and no program serves, and those that are served with other labels or as another type.
func (p *prometheus) unserved(ctx context.Context) (string, error) {
	var all []string
	for _, g := range alerts.All() {
		for i := range g.Alerts {
			for _, f := range g.Alerts[i].Expr.Families() {
				if p.seen[f.Name] || slices.Contains(all, f.Name) {
					continue
				}
				served, err := p.serves(ctx, f)
				if err != nil {
					return "", err
				}
				if p.seen[f.Name] = served; !served {
					all = append(all, f.Name)
				}
			}
		}
	}
	return strings.Join(all, "; "), nil
}

// serves reports whether some program serves a family with its labels.
func (p *prometheus) serves(ctx context.Context, f metrics.Family) (bool, error) {
	text := f.Name
	if f.Type == metrics.Histogram {
		text += "_bucket"
	}
	// A label that no series has is the empty string for Prometheus, as a matcher; then nothing matches.
	var labels []string
	for _, l := range f.Labels {
		labels = append(labels, l+`!=""`)
	}
	values, err := p.query(ctx, "count("+text+"{"+strings.Join(labels, ",")+"})")
	return len(values) > 0, err
}
