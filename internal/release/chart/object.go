package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// object is one of the manifests.
type object map[string]any

// parse reads the objects of a YAML text.
func parse(raw []byte) ([]object, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var objects []object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		var o object
		if err := yaml.Unmarshal(document, &o); err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		if len(o) > 0 {
			o.dropEmptyCapabilities()
			objects = append(objects, o)
		}
	}
}

// dropEmptyCapabilities removes the empty list of added capabilities, which is there for kustomize alone: components append to it. A list to
// which a template adds nothing would be null.
func (o object) dropEmptyCapabilities() {
	containers, _ := at(map[string]any(o), "spec", "template", "spec", "containers").([]any)
	for i := range containers {
		capabilities, _ := at(containers, i, "securityContext", "capabilities").(map[string]any)
		if list, is := capabilities["add"].([]any); is && len(list) == 0 {
			delete(capabilities, "add")
		}
	}
}

func (o object) kind() string { return o["kind"].(string) }

func (o object) metadata() map[string]any { return o["metadata"].(map[string]any) }

func (o object) name() string { return o.metadata()["name"].(string) }

// id tells objects of a cluster apart.
func (o object) id() string { return o.kind() + " " + o.name() }

// at returns what is at a path of keys, and of numbers of items of lists; nil where nothing is.
func at(tree any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := tree.(map[string]any)
			tree = m[s]
		case int:
			l, _ := tree.([]any)
			if s >= len(l) {
				return nil
			}
			tree = l[s]
		}
	}
	return tree
}

// podSpec is that of a Deployment or a DaemonSet.
func (o object) podSpec() map[string]any {
	spec, _ := at(map[string]any(o), "spec", "template", "spec").(map[string]any)
	return spec
}

// containers are all of a pod, those that run before included.
func (o object) containers() []map[string]any {
	var all []map[string]any
	for _, key := range []string{"initContainers", "containers"} {
		list, _ := at(o.podSpec(), key).([]any)
		for _, c := range list {
			all = append(all, c.(map[string]any))
		}
	}
	return all
}

// systemNamespace is where deploy/ puts everything.
const systemNamespace = "tandem-system"

// replaceNamespace puts the expression wherever the object names the namespace of deploy/.
func replaceNamespace(tree any, mark func() string) {
	switch t := tree.(type) {
	case object:
		replaceNamespace(map[string]any(t), mark)
	case map[string]any:
		for key, value := range t {
			if key == "namespace" && value == systemNamespace {
				t[key] = mark()
				continue
			}
			replaceNamespace(value, mark)
		}
	case []any:
		for _, item := range t {
			replaceNamespace(item, mark)
		}
	}
}

// configMapName is the name of a generated ConfigMap without the hash of its contents.
func configMapName(name string) string {
	at := strings.LastIndex(name, "-")
	return name[:at]
}
