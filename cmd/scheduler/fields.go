package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

// argumentTypes are those of Tandem's plugins.
func argumentTypes() map[string]reflect.Type {
	return map[string]reflect.Type{
		gpushare.Name: reflect.TypeFor[configv1.GPUShareArgs](), gpugang.Name: reflect.TypeFor[configv1.GPUGangArgs](),
		gpupreempt.Name: reflect.TypeFor[configv1.GPUPreemptArgs](),
	}
}

// checkValues returns the fields of a configuration file with unreadable values. Upstream says what is wrong with a
// duration or a quantity, and not in which field it stands. Upstream says all else that is wrong with the file.
func checkValues(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil //nolint:nilerr // upstream says so
	}
	document, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	bad := unreadable(document, reflect.TypeFor[kubeschedulerv1.KubeSchedulerConfiguration](), "")
	var file struct {
		Profiles []struct {
			PluginConfig []struct {
				Name string
				Args json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(document, &file); err != nil {
		return errors.Join(bad...)
	}
	for i, profile := range file.Profiles {
		for j, plugin := range profile.PluginConfig {
			if t, ok := argumentTypes()[plugin.Name]; ok {
				bad = append(bad, unreadable(plugin.Args, t, fmt.Sprintf("profiles[%d].pluginConfig[%d].args", i, j))...)
			}
		}
	}
	return errors.Join(bad...)
}

// unreadable returns an error for each value of a type that reads itself from JSON and cannot read this one.
func unreadable(value json.RawMessage, t reflect.Type, path string) []error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reader, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		if err := reader.UnmarshalJSON(value); err != nil {
			return []error{fmt.Errorf("%s: %s is not legal: %w%s", path, value, err, hint(t))}
		}
		return nil
	}
	var bad []error
	switch t.Kind() {
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(value, &fields) != nil {
			return nil // upstream names the fields of such values
		}
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if child, ok := fields[name]; ok && name != "" && string(child) != "null" {
				bad = append(bad, unreadable(child, t.Field(i).Type, strings.TrimPrefix(path+"."+name, "."))...)
			}
		}
	case reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return nil
		}
		for i, item := range items {
			bad = append(bad, unreadable(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return bad
}

// hint says what helps.
func hint(t reflect.Type) string {
	switch t.Name() {
	case "Duration":
		return "; write numbers with the units h, m and s, for example 24h or 1m30s"
	case "Quantity":
		return "; write a number, with a unit where it needs one, for example 1.5, 500m or 32Gi"
	}
	return ""
}
