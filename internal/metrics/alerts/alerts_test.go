package alerts

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// step is the time between two values of the series of examples, and between two looks of Prometheus at the rules.
const step = time.Minute

// healthy is how long healthy series last at least; those of an alert that waits longer last ten minutes more than it waits.
const healthy = time.Hour

// Each alert fires at the time that its example says, and not a step before; with healthy series it never fires.
func TestAlertsFire(t *testing.T) {
	alerts, tests := byName(t), []object{}
	for _, e := range examples() {
		a, known := alerts[e.alert]
		if !known {
			t.Fatalf("an example is of %s, which is no alert", e.alert)
		}
		delete(alerts, e.alert)
		quiet := func(at time.Duration) object {
			return object{"eval_time": minutes(at), "alertname": a.Name, "exp_alerts": []any{}}
		}
		firing := object{"eval_time": minutes(e.fires), "alertname": a.Name, "exp_alerts": []any{a.expected(e.labels)}}
		tests = append(tests,
			object{"name": a.Name, "interval": minutes(step), "input_series": inputs(t, e.sick), "alert_rule_test": []any{quiet(e.fires - step), firing}},
			object{"name": a.Name + ", healthy", "interval": minutes(step), "input_series": inputs(t, e.well), "alert_rule_test": always(quiet, max(healthy, a.For+10*step))})
	}
	for name := range alerts {
		t.Errorf("no example shows when %s fires", name)
	}
	dir := t.TempDir()
	writeRules(t, filepath.Join(dir, "rules.yaml"), All())
	raw, err := yaml.Marshal(object{"rule_files": []string{"rules.yaml"}, "evaluation_interval": minutes(step), "tests": tests})
	must.OK(t, err)
	must.OK(t, os.WriteFile(filepath.Join(dir, "tests.yaml"), raw, 0o600))
	promtool(t, "test", "rules", filepath.Join(dir, "tests.yaml"))
}

// always asks at each step until a time.
func always(quiet func(time.Duration) object, until time.Duration) []any {
	var all []any
	for at := time.Duration(0); at <= until; at += step {
		all = append(all, quiet(at))
	}
	return all
}

// byName returns all alerts. No two have one name.
func byName(t *testing.T) map[string]*Alert {
	t.Helper()
	alerts := map[string]*Alert{}
	for _, g := range All() {
		for i := range g.Alerts {
			a := &g.Alerts[i]
			if err := a.Check(); err != nil {
				t.Error(err)
			}
			if alerts[a.Name] != nil || a.Summary == "" || a.Do == "" || a.For%step != 0 {
				t.Errorf("%s comes twice, lacks a summary or what to do, or waits for no whole minutes: %+v", a.Name, a)
			}
			alerts[a.Name] = a
		}
	}
	return alerts
}

// expected is the alert as it fires with labels.
func (a *Alert) expected(labels map[string]string) object {
	summary := placeholder.ReplaceAllStringFunc(a.Summary, func(found string) string {
		return labels[placeholder.FindStringSubmatch(found)[1]]
	})
	return object{
		"exp_labels":      and(labels, "severity", string(a.Severity)),
		"exp_annotations": object{"summary": summary, "description": a.Do, "runbook_url": a.Runbook()},
	}
}

// inputs are series in the form of promtool. A label that the family does not have is a mistake.
func inputs(t *testing.T, list []series) []any {
	t.Helper()
	all := make([]any, 0, len(list))
	for _, s := range list {
		known := append([]string{query.Job, query.Instance, query.Node}, s.family.Labels...)
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(s.labels)) {
			if !slices.Contains(known, name) {
				t.Fatalf("an example has %s with the label %s; it has %v", s.family.Name, name, known)
			}
			pairs = append(pairs, name+"="+strconv.Quote(s.labels[name]))
		}
		all = append(all, object{"series": fmt.Sprintf("%s{%s}", s.family.Name, strings.Join(pairs, ",")), "values": s.values})
	}
	return all
}

func writeRules(t *testing.T, path string, groups []Group) {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, Write(&b, groups))
	must.OK(t, os.WriteFile(path, b.Bytes(), 0o600))
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	binary, err := sandbox.Tool(t.Context(), "promtool")
	must.OK(t, err)
	if output, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, output)
	}
}

// Each alert has a section in the page of runbooks, in the order of the table, and each section an alert.
func TestRunbooks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "runbooks.md"))
	must.OK(t, err)
	var sections, alerts []string
	for _, found := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		sections = append(sections, found[1])
	}
	for _, g := range All() {
		for i := range g.Alerts {
			alerts = append(alerts, g.Alerts[i].Name)
		}
	}
	if !slices.Equal(alerts, sections) {
		t.Errorf("sections of docs/runbooks.md: %v\nalerts: %v", sections, alerts)
	}
}

// A label that the expression does not have, and a severity that is none, are mistakes, and nothing is written.
func TestMistakes(t *testing.T) {
	up := query.Of(sources.Stock("up")).Now().Sum(query.Node)
	for want, a := range map[string]Alert{
		"alert A: the summary names the label pod, and the expression has [node]": {Expr: up, Severity: Warning, Summary: "{{ $labels.node }} {{ $labels.pod }}"},
		`alert A: the severity is "page", and may be critical or warning`:         {Expr: up, Severity: "page"},
		`nothing has the label "pod" by which to sum`:                             {Expr: query.Of(sources.Stock("up")).Now().Sum("pod"), Severity: Warning},
	} {
		a.Name = "A"
		groups := []Group{{"g", []Alert{a}}}
		for _, write := range []func(io.Writer, []Group) error{Write, WriteObject} {
			if err := write(io.Discard, groups); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}
