package chart

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	agent "github.com/tandem-gpu/tandem/internal/agent/config"
	config "github.com/tandem-gpu/tandem/pkg/api/config/v1"
)

// value is one that users may change.
type value struct {
	// path has the keys, joined by dots.
	path string
	// standard is what deploy/ has.
	standard any
	schema   schema
	// help says what it changes, in one or two sentences.
	help string
}

// standards are the values that deploy/ has, by program.
type standards map[string]workload

// workload is what a program of deploy/ runs with.
type workload struct {
	replicas, resources, nodeSelector, tolerations any
	priorityClass                                  string
	// maxUnavailable is that of a DaemonSet whose pods an upgrade replaces.
	maxUnavailable any
}

// Schemas that several values have.
var (
	boolean     = schema{"type": "boolean"}
	text        = schema{"type": "string"}
	list        = schema{"type": "array", "items": schema{"type": "object"}}
	labels      = schema{"type": "object", "additionalProperties": schema{"type": "string"}}
	amounts     = schema{"type": "object", "additionalProperties": schema{"type": []any{"string", "number"}}}
	resources   = schema{"type": "object", "additionalProperties": false, "properties": schema{"requests": amounts, "limits": amounts}}
	replicas    = schema{"type": "integer", "minimum": 0}
	unavailable = schema{"type": []any{"integer", "string"}, "minimum": 1, "pattern": "^([1-9][0-9]?|100)%$"}
	pullSecrets = schema{"type": "array", "items": schema{
		"type": "object", "additionalProperties": false, "required": []any{"name"}, "properties": schema{"name": text},
	}}
)

// features of the controller, as its flag --features has them.
var features = []any{"elastic", "inference", "notebooks"}

// values lists all values, in the order of the file.
func values(registry string, is standards) []value {
	all := []value{
		{"images.registry", registry, schema{"type": "string", "pattern": `^([a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*)?$`},
			"A prefix for the names of the images, such as `registry.example.com/team`, without a slash at the end. If the release was built with `REGISTRY`, that is the default."},
		{"images.tag", "", schema{"type": "string", "pattern": `^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$`}, "The tag of the images. Empty means the chart's `appVersion`."},
		{"images.pullPolicy", "IfNotPresent", schema{"enum": []any{"Always", "IfNotPresent", "Never"}}, "When the kubelets pull the images: `Always`, `IfNotPresent` or `Never`."},
		{"images.pullSecrets", []any{}, pullSecrets, "Secrets of the namespace with which images are pulled: `[{name: NAME}]`."},
		{"crds.install", true, boolean, "Helm installs and upgrades the CRDs, and keeps them when the release is uninstalled. With `false` you apply `crds.yaml` of the release yourself, before each upgrade."},
		{"policies.enabled", true, boolean, "The admission policies. Without them users can write assignments and take GPUs past the scheduler ([security](security.md))."},
	}
	all = append(all, deployment("scheduler", is)...)
	all = append(all, value{"scheduler.arguments", map[string]any{}, arguments(),
		"Arguments of the plugins `GPUGang`, `GPUShare`, `GPUPreempt` and `NodeResourcesFit`, merged into the KubeSchedulerConfiguration ([reference](../reference/arguments.md)). Lists replace lists."})
	all = append(all, enabled("controller", "The controller of elastic jobs, inference fleets and notebooks."))
	all = append(all, deployment("controller", is)...)
	all = append(all, value{"controller.features", features, schema{"type": "array", "minItems": 1, "uniqueItems": true, "items": schema{"enum": features}},
		"The features of the controller. A feature that is left out has no role either."})
	all = append(all, enabled("activator", "The proxy that wakes parked notebooks."))
	all = append(all, deployment("activator", is)...)
	all = append(all,
		value{"agent.nodeSelector", is["agent"].nodeSelector, labels, "The GPU nodes, for the agent and for MPS."},
		value{"agent.tolerations", is["agent"].tolerations, list, "Tolerations of the pods of the agent and MPS."},
		value{"agent.runtimeClassName", "", text, "The RuntimeClass that names NVIDIA's runtime, where that is not the nodes' default."},
		value{"agent.priorityClassName", is["agent"].priorityClass, text, "The priority class of the agent and of MPS."},
		value{"agent.resources", is["agent"].resources, resources, "Requests and limits of the agent."},
		value{"agent.maxUnavailable", is["agent"].maxUnavailable, unavailable, "How many nodes may be without a ready agent while an upgrade replaces agents, as a number or a percentage. Nodes that are down count."},
		value{"agent.configuration", map[string]any{}, bounded(reflect.TypeFor[agent.Config](), asksAgent),
			"Settings of the agent, merged into its configuration: `slots.default` and `slots.models` are the slots per GPU model, `driver.root` is where the driver is. `deploy/agent/config.yaml` explains each."},
		value{"agent.hostFolders", []any{}, schema{"type": "array", "uniqueItems": true, "items": schema{"type": "string", "pattern": "^/[^:]+$"}},
			"Folders of the host that the agent sees too, read-only: that of `driver.root`, where it is not below `/usr`."},
		value{"mps.resources", is["mps"].resources, resources, "Requests of MPS. A limit on memory would end the work of all tenants of a node, so there is none."},
		value{"mps.sharedMemory", "10%", schema{"type": "string", "pattern": `^([0-9]+%|[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?)$`}, "The size of the tmpfs that MPS and its clients share: a part of the node's memory, or an amount such as `8Gi`."},
		value{"components.podsFromAPIServer", false, boolean, "Lets agents read pods from the API server, for kubelets before 1.37. Each agent's token can read all pods then."},
		value{"components.gpuAdmin", false, boolean, "Gives the agent `CAP_SYS_ADMIN`, for exclusive mode and for watching MIG instances."},
		value{"components.deviceMounts", false, boolean, "For nodes whose container toolkit takes devices from mounts and not from the environment."},
		value{"components.shmSweep", false, boolean, "Lets the agent remove shared memory of users other than root while tenants run."},
		value{"components.nodeMemory", false, boolean, "The controller writes the memory of GPUs into Nodes, for autoscalers ([autoscaling](autoscaling.md)). It gets the right to patch the status of Nodes."},
		value{"components.placeable", false, boolean, "The controller answers Kueue's AdmissionChecks whether a Workload fits on devices now ([Kueue](kueue.md))."},
		value{"components.networkPolicies", false, boolean, "Lets Prometheus in the namespace monitoring alone reach the metrics of agents, controller and activator."},
		value{"components.saneRequests", false, boolean, "Refuses absurd requests of any resource in any pod of the cluster."},
		value{"components.schedulerName", false, boolean, "Sets `schedulerName` for pods with vGPUs in the namespaces labelled `tandem-gpu.io/scheduler-name=inject`. Needs Kubernetes 1.36."},
		value{"monitors.enabled", false, boolean, "PodMonitors and a PrometheusRule for the Prometheus operator, whose CRDs must be there ([monitoring](monitoring.md))."},
		value{"monitors.labels", map[string]any{}, labels, "Labels by which your Prometheus selects monitors and rules, such as `release: prometheus`."},
	)
	return all
}

func enabled(program, what string) value {
	return value{program + ".enabled", true, boolean, what + " `false` leaves it out, with its account and roles."}
}

// deployment are the values that each Deployment has.
func deployment(program string, is standards) []value {
	w := is[program]
	return []value{
		{program + ".replicas", w.replicas, replicas, "Pods of the " + program + "."},
		{program + ".resources", w.resources, resources, "Requests and limits of the " + program + "."},
		{program + ".priorityClassName", w.priorityClass, text, "The priority class of the " + program + "; empty means none."},
		{program + ".nodeSelector", w.nodeSelector, labels, "The nodes for the " + program + "; labels that you give are added to these."},
		{program + ".tolerations", []any{}, list, "Tolerations of the pods of the " + program + "."},
	}
}

// arguments is the schema of the plugins' arguments. Those of the in-tree plugin are the scheduler's to check.
func arguments() schema {
	return schema{"type": "object", "additionalProperties": false, "properties": schema{
		"GPUGang":    bounded(reflect.TypeFor[config.GPUGangArgs](), asksGang),
		"GPUShare":   bounded(reflect.TypeFor[config.GPUShareArgs](), asksShare),
		"GPUPreempt": bounded(reflect.TypeFor[config.GPUPreemptArgs](), asksPreempt), "NodeResourcesFit": schema{"type": "object"},
	}}
}

// schemaText is values.schema.json. A misspelt value is refused by its name.
func schemaText(all []value) ([]byte, error) {
	root := schema{"type": "object", "additionalProperties": false, "properties": schema{
		// Helm puts this one there for charts that have this one below them.
		"global": schema{"type": "object"},
	}}
	for _, v := range all {
		node := root
		keys := strings.Split(v.path, ".")
		for _, key := range keys[:len(keys)-1] {
			properties := node["properties"].(schema)
			if properties[key] == nil {
				properties[key] = schema{"type": "object", "additionalProperties": false, "properties": schema{}}
			}
			node = properties[key].(schema)
		}
		leaf := schema{"description": plain(v.help)}
		for key, is := range v.schema {
			leaf[key] = is
		}
		node["properties"].(schema)[keys[len(keys)-1]] = leaf
	}
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	raw, err := json.MarshalIndent(root, "", "  ")
	return append(raw, '\n'), err
}

// link is one of Markdown. The guide with the table of the values is the page that it starts from.
var link = regexp.MustCompile(`\[[^]]*\]\(([^)]*)\)`)

// plain is a text for files of the chart: it names pages by their paths in the repository.
func plain(help string) string {
	return link.ReplaceAllStringFunc(strings.ReplaceAll(help, "`", ""), func(found string) string {
		return path.Join("docs/guides", link.FindStringSubmatch(found)[1])
	})
}

// valuesText is values.yaml, with what each value changes above it.
func valuesText(all []value) (string, error) {
	var b strings.Builder
	b.WriteString("# What an installation may change. These are the values of deploy/; values.schema.json has what is legal.\n")
	last := ""
	for _, v := range all {
		group, key, _ := strings.Cut(v.path, ".")
		if group != last {
			fmt.Fprintf(&b, "\n%s:\n", group)
			last = group
		}
		raw, err := yaml.Marshal(map[string]any{key: v.standard})
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s\n", indent("# "+plain(v.help)+"\n"+string(raw), "  "))
	}
	return b.String(), nil
}

// Table returns the values as a table of Markdown, for the guide.
func Table(root string) (string, error) {
	_, all, err := load(root, "")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| value | default | what it changes |\n|---|---|---|\n")
	for _, v := range all {
		standard, err := json.Marshal(v.standard)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.path, standard, v.help)
	}
	return b.String(), nil
}
