// Package chart makes the Helm chart of what deploy/ installs, so that the manifests exist once.
//
// It renders deploy/ and each of deploy/components, puts Helm's expressions at the places that users change, and writes the schema of
// the values. It has no hooks, and nothing of it runs in the cluster.
package chart

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/release/kustomization"
)

// Chart is what to write.
type Chart struct {
	// Root is the repository.
	Root string
	// Version is that of the release, with the v.
	Version string
	// Registry is the default of the value images.registry.
	Registry string
}

// fixed are the files of the chart that are not made of manifests.
//
//go:embed all:templates
var fixed embed.FS

// Write writes the chart into the folder, whose last part should be the chart's name.
func (c Chart) Write(folder string) error {
	files, err := c.files()
	if err != nil {
		return fmt.Errorf("make the chart: %w", err)
	}
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
	}
	return nil
}

// files returns all of the chart.
func (c Chart) files() (map[string]string, error) {
	m, all, err := load(c.Root, c.Registry)
	if err != nil {
		return nil, err
	}
	files, err := m.templates()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"_helpers.tpl", "NOTES.txt", "README.md"} {
		content, err := fixed.ReadFile("templates/" + name)
		if err != nil {
			return nil, err
		}
		at := "templates/" + name
		if name == "README.md" {
			at = name
		}
		files[at] = string(content)
	}
	if files["values.yaml"], err = valuesText(all); err != nil {
		return nil, err
	}
	raw, err := schemaText(all)
	if err != nil {
		return nil, err
	}
	files["values.schema.json"] = string(raw)
	raw, err = yaml.Marshal(map[string]any{
		"apiVersion": "v2", "name": "tandem", "version": strings.TrimPrefix(c.Version, "v"), "appVersion": c.Version, "type": "application",
		"description": "GPU sharing for Kubernetes: scheduler, agents and controller", "home": "https://github.com/tandem-gpu/tandem",
		"kubeVersion": ">=1.34.0-0", "annotations": map[string]any{"artifacthub.io/license": "Apache-2.0"},
	})
	files["Chart.yaml"] = string(raw)
	return files, err
}

// manifests are the objects of deploy/, with what the components add and change.
type manifests struct {
	base []object
	// added are the objects that a component adds, by the value that switches it on.
	added map[string][]object
	// configs are the texts of the ConfigMaps, by the program that has them.
	configs map[string]string
	differ  differ
	root    string
}

// load renders deploy/ with and without each component.
func load(root, registry string) (*manifests, []value, error) {
	base, err := rendered(root, kustomization.Overlay{Resources: []string{""}})
	if err != nil {
		return nil, nil, err
	}
	m := &manifests{base: base, added: map[string][]object{}, configs: map[string]string{}, root: root}
	for _, c := range components {
		if err := m.component(c); err != nil {
			return nil, nil, err
		}
	}
	is := standards{}
	for _, o := range base {
		if o.podSpec() != nil {
			is[program(o)] = standardOf(o)
		}
	}
	return m, values(registry, is), nil
}

// rendered are the objects of an overlay, but for the namespace: Helm has the namespace of its release.
func rendered(root string, overlay kustomization.Overlay) ([]object, error) {
	overlay.Root = root
	raw, err := overlay.Build()
	if err != nil {
		return nil, err
	}
	objects, err := parse(raw)
	return slices.DeleteFunc(objects, func(o object) bool { return o.kind() == "Namespace" }), err
}

// component finds what a component adds and changes.
func (m *manifests) component(c component) error {
	changed, err := rendered(m.root, kustomization.Overlay{Resources: []string{""}, Components: []string{"components/" + c.folder}})
	if err != nil {
		return err
	}
	for _, o := range changed {
		i := slices.IndexFunc(m.base, func(other object) bool { return other.id() == o.id() })
		if i < 0 {
			m.added[c.value] = append(m.added[c.value], o)
			continue
		}
		if err := m.differ.compare(m.base[i], o, c.value); err != nil {
			return fmt.Errorf("%s: %w", o.id(), err)
		}
	}
	return nil
}

// program is the one that an object belongs to; "" for those of no program, the CRDs and the policies.
func program(o object) string {
	if strings.Contains(o.kind(), "AdmissionPolicy") || o.kind() == "CustomResourceDefinition" {
		return ""
	}
	for _, name := range []string{"scheduler", "controller", "activator", "agent", "mps"} {
		if o.name() == "tandem-"+name || strings.HasPrefix(o.name(), "tandem-"+name+"-") {
			return name
		}
	}
	switch o.name() {
	case "tandem-elastictargets-hold", "tandem-elastictargets-view", "tandem-inferencefleets-view", "tandem-inferencefleets-edit":
		return "controller"
	}
	return "scheduler" // roles for users: what they may read and write of Tandem without the controller too
}

// standardOf reads what a program runs with.
func standardOf(o object) workload {
	spec := o.podSpec()
	containers := o.containers()
	class, _ := spec["priorityClassName"].(string)
	return workload{
		replicas: at(map[string]any(o), "spec", "replicas"), resources: containers[len(containers)-1]["resources"],
		nodeSelector: spec["nodeSelector"], tolerations: spec["tolerations"], priorityClass: class,
		maxUnavailable: at(map[string]any(o), "spec", "updateStrategy", "rollingUpdate", "maxUnavailable"),
	}
}
