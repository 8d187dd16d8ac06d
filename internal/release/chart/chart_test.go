package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	agent "github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/test/must"
)

// With the values that it has, the chart installs what deploy/ does, but for the namespace, which Helm has.
func TestChartIsDeploy(t *testing.T) {
	compare(t, deployed(t), objects(t, chartOf(t), "", systemNamespace))
}

// A value that switches a component on does what the component does.
func TestComponents(t *testing.T) {
	chart := chartOf(t)
	for _, c := range components {
		name := c.value[strings.LastIndex(c.value, ".")+1:]
		t.Run(name, func(t *testing.T) {
			compare(t, deployed(t, c.folder), objects(t, chart, "components: {"+name+": true}\n", systemNamespace))
		})
	}
}

// If the API server does not serve what sets the scheduler's name, the chart refuses the value by its name, before anything is
// installed.
func TestSchedulerNameNeedsItsAPI(t *testing.T) {
	_, err := run(t, chartOf(t), "components: {schedulerName: true}\n", "template", "tandem")
	if err == nil || !strings.Contains(err.Error(), "components.schedulerName: this API server does not serve "+mutating) {
		t.Errorf("error %v", err)
	}
}

// A component that the controller works for is refused by its name where the controller is left out.
func TestComponentsNeedTheController(t *testing.T) {
	for _, c := range components {
		name := strings.TrimPrefix(c.value, ".Values.components.")
		_, err := run(t, chartOf(t), "components: {"+name+": true}\ncontroller: {enabled: false}\n", "template", "tandem", "--api-versions", mutating)
		refused := err != nil && strings.Contains(err.Error(), "components."+name+": the controller does this, and controller.enabled is false")
		if want := slices.Contains([]string{"nodeMemory", "placeable"}, name); refused != want || !want && err != nil {
			t.Errorf("%s without the controller: error %v, refused should be %v", name, err, want)
		}
	}
}

// The chart says which release it is and which Kubernetes it needs, which Helm checks, and has the registry of the release as a value.
func TestChartNamesItsRelease(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "tandem")
	must.OK(t, (Chart{Root: repository(t), Version: version, Registry: "registry.example.com/team"}).Write(folder))
	raw, err := os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	must.OK(t, err)
	var is struct{ Name, Version, AppVersion string }
	if err := yaml.Unmarshal(raw, &is); err != nil || is.Name != "tandem" || is.Version != "0.1.0" || is.AppVersion != "v0.1.0" {
		t.Errorf("Chart.yaml says %+v, error %v", is, err)
	}
	o := objects(t, folder, "", systemNamespace)["Deployment tandem-scheduler"]
	if image := o.containers()[0]["image"]; image != "registry.example.com/team/tandem-scheduler:v0.1.0" {
		t.Errorf("the scheduler runs %v", image)
	}
	if _, err := run(t, folder, "", "template", "tandem", "--kube-version", "1.33.0"); err == nil || !strings.Contains(err.Error(), "1.34") {
		t.Errorf("with Kubernetes 1.33: error %v, want one that names the least version", err)
	}
}

// A change of a component that the chart cannot say is an error that names the place.
func TestComponentsOnlyAdd(t *testing.T) {
	base := func() map[string]any {
		return map[string]any{"spec": map[string]any{"replicas": 1, "args": []any{"a"}, "labels": map[string]any{"a": "b"}}}
	}
	for name, c := range map[string]struct {
		change func(spec map[string]any)
		want   string
	}{
		"a key less":         {func(spec map[string]any) { delete(spec, "replicas") }, "spec: read the component of .Values.x: it takes replicas away"},
		"text for a list":    {func(spec map[string]any) { spec["args"] = "a" }, "spec: args: read the component of .Values.x: it sets a, which is no list"},
		"text for an object": {func(spec map[string]any) { spec["labels"] = "a" }, "spec: labels: read the component of .Values.x: it sets a, which is no object"},
		"a further item":     {func(spec map[string]any) { spec["args"] = []any{"a", "b"} }, ""},
		"another value":      {func(spec map[string]any) { spec["replicas"] = 2 }, ""},
	} {
		changed := base()
		c.change(changed["spec"].(map[string]any))
		err := (&differ{}).compare(base(), changed, ".Values.x")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// Two components that add capabilities both have theirs.
func TestCapabilitiesAddUp(t *testing.T) {
	o := objects(t, chartOf(t), "components: {gpuAdmin: true, shmSweep: true}\n", systemNamespace)["DaemonSet tandem-agent"]
	got := at(o.podSpec(), "containers", 0, "securityContext", "capabilities", "add")
	if diff := gocmp.Diff([]any{"SYS_ADMIN", "DAC_OVERRIDE", "LEASE"}, got); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
}

// The rules for Prometheus are those of deploy/monitoring, braces included.
func TestMonitors(t *testing.T) {
	got := objects(t, chartOf(t), "monitors: {enabled: true}\n", systemNamespace)
	for _, name := range []string{"prometheusrule.yaml", "podmonitors.yaml"} {
		raw, err := os.ReadFile(filepath.Join(repository(t), "deploy", "monitoring", name))
		must.OK(t, err)
		for id, want := range byID(t, raw) {
			have := got[id]
			if have == nil {
				t.Errorf("the chart has no %s", id)
				continue
			}
			if l, ok := have.metadata()["labels"]; ok && l == nil {
				delete(have.metadata(), "labels")
			}
			if diff := gocmp.Diff(want, have); diff != "" {
				t.Errorf("%s: deploy/ (-), chart (+):\n%s", id, diff)
			}
		}
	}
}

// Nothing stays in the namespace of deploy/ when the release has another one. The scheduler's configuration names it, but a flag
// of the Deployment is stronger.
func TestNamespace(t *testing.T) {
	all := objects(t, chartOf(t), "components: {podsFromAPIServer: true}\nmonitors: {enabled: true}\n", "gpu-system")
	for id, o := range all {
		raw, err := yaml.Marshal(o)
		must.OK(t, err)
		text := strings.ReplaceAll(string(raw), "resourceNamespace: tandem-system", "")
		for line := range strings.Lines(text) {
			if strings.Contains(line, "namespace: tandem-system") {
				t.Errorf("%s: %s", id, line)
			}
		}
	}
}

// No hooks and no webhooks; CRDs stay when a release goes, and everything else goes with it.
func TestWhatHelmDoes(t *testing.T) {
	raw, err := run(t, chartOf(t), "components: {saneRequests: true}\nmonitors: {enabled: true}\n", "template", "tandem")
	must.OK(t, err)
	list, err := parse(raw)
	must.OK(t, err)
	for _, o := range list {
		annotations, _ := o.metadata()["annotations"].(map[string]any)
		if strings.Contains(o.kind(), "Webhook") || annotations["helm.sh/hook"] != nil {
			t.Errorf("%s is a webhook or a hook", o.id())
		}
		kept := annotations["helm.sh/resource-policy"] == "keep"
		if kept != (o.kind() == "CustomResourceDefinition") {
			t.Errorf("%s is kept: %t", o.id(), kept)
		}
	}
	raw, err = run(t, chartOf(t), "crds: {install: false}\n", "template", "tandem")
	if err != nil || bytes.Contains(raw, []byte("CustomResourceDefinition\n")) {
		t.Errorf("CRDs are rendered where they are not to be installed; error %v", err)
	}
}

// A value that is not legal is refused by its name.
func TestWrongValues(t *testing.T) {
	chart := chartOf(t)
	for values, want := range map[string]string{
		"image: {tag: v1}":                                          "image",
		"images: {tags: v1}":                                        "tags",
		"images: {pullPolicy: Sometimes}":                           "/images/pullPolicy",
		"images: {registry: 'https://registry.example.com'}":        "/images/registry",
		"images: {pullSecrets: [registry]}":                         "/images/pullSecrets/0",
		"scheduler: {replicas: two}":                                "/scheduler/replicas",
		"scheduler: {resources: {request: {cpu: 1}}}":               "request",
		"scheduler: {arguments: {GPUShares: {}}}":                   "GPUShares",
		"scheduler: {arguments: {GPUShare: {polcy: fgd}}}":          "polcy",
		"scheduler: {arguments: {GPUGang: {drainAfter: 1}}}":        "/scheduler/arguments/GPUGang/drainAfter",
		"scheduler: {arguments: {GPUPreempt: {prices: {gang: 1h}}}": "gang",
		"controller: {features: [elastics]}":                        "/controller/features/0",
		"agent: {configuration: {slot: {}}}":                        "slot",
		"agent: {configuration: {slots: {models: {A100: many}}}}":   "/agent/configuration/slots/models/A100",
		"scheduler: {arguments: {GPUShare: {policy: foo}}}":         "/scheduler/arguments/GPUShare/policy",
		"scheduler: {arguments: {GPUGang: {maxDomains: 1001}}}":     "/scheduler/arguments/GPUGang/maxDomains",
		"scheduler: {arguments: {GPUPreempt: {mode: enabled}}}":     "/scheduler/arguments/GPUPreempt/mode",
		"agent: {configuration: {slots: {default: 0}}}":             "/agent/configuration/slots/default",
		"agent: {configuration: {slots: {models: {A100: 1001}}}}":   "/agent/configuration/slots/models/A100",
		"agent: {configuration: {driver: {edits: some}}}":           "/agent/configuration/driver/edits",
		"mps: {sharedMemory: much}":                                 "/mps/sharedMemory",
		"components: {gpuadmin: true}":                              "gpuadmin",
		"policies: {enabled: 'yes'}":                                "/policies/enabled",
	} {
		if strings.Count(values, "{") != strings.Count(values, "}") {
			values += "}"
		}
		_, err := run(t, chart, values, "template", "tandem")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that names %s", values, err, want)
		}
	}
}

// The ends of what is legal are taken.
func TestLegalValues(t *testing.T) {
	chart := chartOf(t)
	for _, values := range []string{
		"scheduler: {arguments: {GPUShare: {policy: packed, scarceBelowPercent: 0, seed: -5, weights: {fragmentation: 1000}}}}",
		"scheduler: {arguments: {GPUShare: {modelCosts: [{model: Tesla-T4, cost: 0.35}]}}}",
		"scheduler: {arguments: {GPUGang: {maxDomains: 1000, drain: Disabled}, GPUPreempt: {evictionsPerMinute: 0, maxSteps: 1000000}}}",
		"agent: {configuration: {slots: {default: 1, models: {NVIDIA-A100-SXM4-40GB: 1000}}, driver: {edits: library}, mps: {onExit: ''}}}",
	} {
		if _, err := run(t, chart, values, "template", "tandem"); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// The agents read the values that the chart merges into their configuration.
func TestAgentReadsItsConfiguration(t *testing.T) {
	values := "agent: {configuration: {slots: {default: 20, models: {NVIDIA-L4: 4}}, driver: {root: /run/nvidia/driver}}}\n"
	o := objects(t, chartOf(t), values, systemNamespace)["ConfigMap tandem-agent-config"]
	c, err := agent.Parse([]byte(at(map[string]any(o), "data", "config.yaml").(string)))
	must.OK(t, err)
	if c.SlotsOf("NVIDIA L4") != 4 || c.SlotsOf("other") != 20 || c.Driver.Root != "/run/nvidia/driver" || c.MPS.Launcher == "" {
		t.Errorf("the agent reads %+v", c)
	}
}

// Another configuration gives the ConfigMap another name, so that the pods are replaced; the same gives the same.
func TestConfigurationsHaveNames(t *testing.T) {
	chart := chartOf(t)
	named := func(values string) string {
		raw, err := run(t, chart, values, "template", "tandem", "--show-only", "templates/scheduler.yaml")
		must.OK(t, err)
		names := slices.Compact(hash.FindAllString(string(raw), -1))
		if len(names) != 1 {
			t.Fatalf("the ConfigMap and what mounts it are named %v", names)
		}
		return names[0]
	}
	plain := named("")
	if other := named("scheduler: {arguments: {GPUShare: {policy: packed}}}"); other == plain {
		t.Errorf("two configurations are named %s", other)
	}
	if again := named("scheduler: {replicas: 3}"); again != plain {
		t.Errorf("one configuration is named %s and %s", plain, again)
	}
}

// The files of the chart name pages by paths that the repository has, since a link of the guide leads nowhere from there.
func TestChartNamesPages(t *testing.T) {
	root := repository(t)
	for _, name := range []string{"values.yaml", "values.schema.json"} {
		text, err := os.ReadFile(filepath.Join(chartOf(t), name))
		must.OK(t, err)
		pages := regexp.MustCompile(`docs/[a-z/-]+\.md`).FindAllString(string(text), -1)
		if len(pages) < 4 || strings.Contains(string(text), "](") {
			t.Errorf("%s names %d pages, want at least 4 and no link", name, len(pages))
		}
		for _, page := range pages {
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The guide has the table of the values.
func TestGuideHasTheValues(t *testing.T) {
	root := repository(t)
	guide, err := os.ReadFile(filepath.Join(root, "docs", "guides", "install.md"))
	must.OK(t, err)
	table, err := Table(root)
	must.OK(t, err)
	for line := range strings.Lines(table) {
		if !strings.Contains(string(guide), line) {
			t.Errorf("docs/guides/install.md lacks a row, which go run ./internal/release/manifests -values prints:\n%s", line)
		}
	}
}
