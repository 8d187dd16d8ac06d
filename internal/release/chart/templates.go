package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// templates returns the templates and the files that they read.
func (m *manifests) templates() (map[string]string, error) {
	t := &template{}
	if err := m.differ.apply(t); err != nil {
		return nil, err
	}
	files := map[string]string{}
	parts := map[string][]string{}
	for _, o := range m.base {
		name := fileOf(o)
		text, err := m.object(t, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.id(), err)
		}
		parts[name] = append(parts[name], text)
	}
	for name, texts := range parts {
		text := strings.Join(texts, "---\n")
		if condition := conditions[name]; condition != "" {
			text = "{{- if " + condition + " }}\n" + text + "{{- end }}\n"
		}
		files["templates/"+name+".yaml"] = text
	}
	for _, value := range slices.Sorted(maps.Keys(m.added)) {
		text, err := m.addition(t, value)
		if err != nil {
			return nil, err
		}
		files["templates/components-"+strings.ToLower(value[strings.LastIndex(value, ".")+1:])+".yaml"] = text
	}
	monitors, err := m.monitors(t)
	if err != nil {
		return nil, err
	}
	files["templates/monitors.yaml"] = monitors
	for program, text := range m.configs {
		files["files/"+program+".yaml"] = text
	}
	return files, nil
}

// conditions are those under which a file has objects.
var conditions = map[string]string{
	"crds": ".Values.crds.install", "policies": ".Values.policies.enabled",
	"controller": ".Values.controller.enabled", "activator": ".Values.activator.enabled",
}

// fileOf is the name of the template with the object.
func fileOf(o object) string {
	switch {
	case o.kind() == "CustomResourceDefinition":
		return "crds"
	case program(o) == "":
		return "policies"
	}
	return program(o)
}

// mutating is the API of MutatingAdmissionPolicies, which not every API server serves that Tandem works with.
const mutating = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// byController are the components whose work the controller does.
var byController = []string{".Values.components.nodeMemory", ".Values.components.placeable"}

// addition is the template with what a component adds.
func (m *manifests) addition(t *template, value string) (string, error) {
	texts := make([]string, 0, len(m.added[value]))
	check := ""
	if slices.Contains(byController, value) {
		check = fmt.Sprintf("{{- if not .Values.controller.enabled }}\n{{- fail %q }}\n{{- end }}\n",
			strings.TrimPrefix(value, ".Values.")+": the controller does this, and controller.enabled is false: leave the controller on, or set this to false")
	}
	for _, o := range m.added[value] {
		if o.kind() == "MutatingAdmissionPolicy" {
			check = fmt.Sprintf("{{- if not (.Capabilities.APIVersions.Has %q) }}\n{{- fail %q }}\n{{- end }}\n", mutating,
				strings.TrimPrefix(value, ".Values.")+": this API server does not serve "+mutating+", which takes Kubernetes 1.36 or later: set it to false")
		}
		text, err := m.object(t, o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", o.id(), err)
		}
		texts = append(texts, text)
	}
	return "{{- if " + value + " }}\n" + check + strings.Join(texts, "---\n") + "{{- end }}\n", nil
}

// object puts the marks into one object and writes it.
func (m *manifests) object(t *template, o object) (string, error) {
	replaceNamespace(o, func() string { return t.value("{{ .Release.Namespace }}") })
	switch {
	case o.kind() == "CustomResourceDefinition":
		keep(o)
	case o.kind() == "ConfigMap":
		m.config(t, o)
	case o.podSpec() != nil:
		workloadMarks(t, o)
	}
	text, err := t.write(map[string]any(o))
	if err != nil {
		return "", err
	}
	feature, err := featureOf(o)
	if err != nil || feature == "" {
		return text, err
	}
	return fmt.Sprintf("{{- if has %q .Values.controller.features }}\n%s{{- end }}\n", feature, text), nil
}

// keep has Helm leave a CRD where it is when the release is uninstalled: with the CRD all objects of its kind would go.
func keep(o object) {
	annotations, _ := o.metadata()["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations["helm.sh/resource-policy"] = "keep"
	o.metadata()["annotations"] = annotations
}

// featureOf is the feature of the controller whose role this is; "" for what all features need, and for all else.
func featureOf(o object) (string, error) {
	rest, ok := strings.CutPrefix(o.name(), "tandem-controller-")
	if !ok || o.podSpec() != nil {
		return "", nil
	}
	switch word, _, _ := strings.Cut(rest, "-"); word {
	case "elastic", "resize":
		return "elastic", nil
	case "inference", "notebooks":
		return word, nil
	case "placeable", "node": // components, each with a value of its own
		return "", nil
	}
	return "", fmt.Errorf("find the feature of %s: its name has none of %v", o.id(), features)
}

// config has the ConfigMap hold the text of a file, into which the values are merged. Its name ends in a hash of the text, so that
// another configuration restarts the program.
func (m *manifests) config(t *template, o object) {
	of := program(o)
	data := o["data"].(map[string]any)
	m.configs[of] = data["config.yaml"].(string)
	o.metadata()["name"] = t.value(hashed(of, configMapName(o.name())))
	delete(data, "config.yaml")
	data[t.lines("config.yaml: |\n{{- include \"tandem."+of+"Config\" . | trim | nindent {deeper} }}")] = ""
}

func hashed(program, name string) string {
	return fmt.Sprintf(`%s-{{ include "tandem.%sConfig" . | sha256sum | trunc 10 }}`, name, program)
}

// workloadMarks puts what users change into a Deployment or a DaemonSet.
func workloadMarks(t *template, o object) {
	name := program(o)
	values, spec := ".Values."+name, o.podSpec()
	for _, c := range o.containers() {
		c["image"] = t.value(fmt.Sprintf(`{{ include "tandem.image" (list . %q) }}`, imageName(c["image"].(string))))
		c["imagePullPolicy"] = t.value("{{ .Values.images.pullPolicy }}")
		if c["resources"] != nil {
			c["resources"] = t.value(whole(values + ".resources"))
		}
		args, _ := c["args"].([]any)
		for i, arg := range args {
			switch flag, _, _ := strings.Cut(arg.(string), "="); {
			case flag == "--features":
				args[i] = t.value(`--features={{ join "," .Values.controller.features }}`)
			case flag == "--size" && name == "mps":
				args[i] = t.value(`--size={{ .Values.mps.sharedMemory }}`)
			}
		}
	}
	if name == "agent" {
		hostFolders(t, spec)
		at(map[string]any(o), "spec", "updateStrategy", "rollingUpdate").(map[string]any)["maxUnavailable"] = t.value("{{ .Values.agent.maxUnavailable }}")
	}
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		if m, ok := at(v, "configMap").(map[string]any); ok {
			config := configMapName(m["name"].(string))
			of := strings.TrimSuffix(strings.TrimPrefix(config, "tandem-"), "-config") // the controller reads the scheduler's too
			m["name"] = t.value(hashed(of, config))
		}
	}
	spec[t.lines(with("imagePullSecrets", ".Values.images.pullSecrets"))] = ""
	nodes := values
	if o.kind() == "DaemonSet" {
		nodes = ".Values.agent" // what a node runs, both pods of it
		spec[t.lines("{{- with .Values.agent.runtimeClassName }}\nruntimeClassName: {{ . | quote }}\n{{- end }}")] = ""
	} else {
		at(map[string]any(o), "spec").(map[string]any)["replicas"] = t.value("{{ " + values + ".replicas }}")
	}
	delete(spec, "priorityClassName")
	spec[t.lines("{{- with "+nodes+".priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}")] = ""
	for _, key := range []string{"nodeSelector", "tolerations"} {
		delete(spec, key)
		spec[t.lines(with(key, nodes+"."+key))] = ""
	}
}

// hostFolders has the agent see more folders of the host, below /host as those of deploy/.
func hostFolders(t *template, spec map[string]any) {
	const each = "{{- range $i, $path := .Values.agent.hostFolders }}\n- name: host-folder-{{ $i }}\n"
	container := at(spec, "containers", 0).(map[string]any)
	container["volumeMounts"] = append(container["volumeMounts"].([]any),
		t.lines(each+"  mountPath: {{ printf \"/host%s\" $path | quote }}\n  readOnly: true\n{{- end }}"))
	spec["volumes"] = append(spec["volumes"].([]any),
		t.lines(each+"  hostPath:\n    path: {{ $path | quote }}\n    type: Directory\n{{- end }}"))
}

// imageName is that of deploy/ without its tag.
func imageName(image string) string {
	name, _, _ := strings.Cut(image, ":")
	return name
}

// monitors is the template with what deploy/monitoring has for the Prometheus operator.
func (m *manifests) monitors(t *template) (string, error) {
	var texts []string
	for _, name := range []string{"prometheusrule.yaml", "podmonitors.yaml"} {
		raw, err := os.ReadFile(filepath.Join(m.root, "deploy", "monitoring", name))
		if err != nil {
			return "", err
		}
		objects, err := parse(raw)
		if err != nil {
			return "", err
		}
		for _, o := range objects {
			if strings.HasSuffix(o.kind(), "Monitor") || o.kind() == "PrometheusRule" {
				known, _ := o.metadata()["labels"].(map[string]any)
				if known == nil {
					known = map[string]any{}
				}
				known[t.lines("{{- with .Values.monitors.labels }}\n{{- toYaml . | nindent {here} }}\n{{- end }}")] = ""
				o.metadata()["labels"] = known
			}
			text, err := m.object(t, o)
			if err != nil {
				return "", err
			}
			texts = append(texts, text)
		}
	}
	return "{{- if .Values.monitors.enabled }}\n" + strings.Join(texts, "---\n") + "{{- end }}\n", nil
}
