package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Version and kind of the configuration file.
const (
	APIVersion = "agent." + v1alpha1.Domain + "/v1alpha1"
	Kind       = "AgentConfiguration"
)

// maxSlots is the greatest number of slots that the GPUNode schema allows for a device.
const maxSlots = 1000

// Config is the agent's configuration file. A file without a version has this one. Its zero value is the default
// configuration: read settings through their methods, which know the defaults.
type Config struct {
	APIVersion  string            `json:"apiVersion,omitempty"`
	Kind        string            `json:"kind,omitempty"`
	Slots       SlotsConfig       `json:"slots,omitempty"`
	Health      HealthConfig      `json:"health,omitempty"`
	MPS         MPSConfig         `json:"mps,omitempty"`
	Termination TerminationConfig `json:"termination,omitempty"`
	Telemetry   TelemetryConfig   `json:"telemetry,omitempty"`
	Driver      DriverConfig      `json:"driver,omitempty"`
}

// SlotsConfig sets the number of slots of a device.
type SlotsConfig struct {
	// Default is for models that Models does not name; v1alpha1.DefaultSlots when absent.
	Default *int32 `json:"default,omitempty"`
	// Models by product name, with blanks or with dashes for blanks ("NVIDIA-A100-SXM4-40GB").
	Models map[string]int32 `json:"models,omitempty"`
}

// Load reads the file strictly; an empty path gives the defaults.
func Load(path string) (Config, error) {
	if path == "" {
		return Config{}, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(raw)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse decodes a configuration. Unknown or repeated fields and illegal values are errors that name the field.
func Parse(raw []byte) (Config, error) {
	converted, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return Config{}, err
	}
	var c Config
	strict, err := kjson.UnmarshalStrict(converted, &c)
	if err != nil {
		return Config{}, errors.Join(append(strict, err)...)
	}
	return c, errors.Join(append(strict, c.validate())...)
}

func (c Config) validate() error {
	bad := make([]error, 0, 16+2*len(c.Slots.Models))
	if c.APIVersion != "" && c.APIVersion != APIVersion {
		bad = append(bad, fmt.Errorf("apiVersion: %q, must be %q", c.APIVersion, APIVersion))
	}
	if c.Kind != "" && c.Kind != Kind {
		bad = append(bad, fmt.Errorf("kind: %q, must be %q", c.Kind, Kind))
	}
	if c.Slots.Default != nil {
		bad = append(bad, validateSlots("slots.default", *c.Slots.Default))
	}
	bad = append(bad, c.validateSettings()...)
	seen := map[string]string{}
	for _, model := range slices.Sorted(maps.Keys(c.Slots.Models)) {
		field := fmt.Sprintf("slots.models[%q]", model)
		bad = append(bad, validateSlots(field, c.Slots.Models[model]))
		name := ModelName(model)
		if name == "" {
			bad = append(bad, fmt.Errorf("%s: the name of the model is empty", field))
		}
		if other, ok := seen[name]; ok {
			bad = append(bad, fmt.Errorf("%s: the same model as %q", field, other))
		}
		seen[name] = model
	}
	return errors.Join(bad...)
}

func validateSlots(field string, n int32) error {
	if n < 1 || n > maxSlots {
		return fmt.Errorf("%s: %d, must be from 1 to %d", field, n, maxSlots)
	}
	return nil
}

// SlotsOf returns N for a model.
func (c Config) SlotsOf(model string) int {
	for name, n := range c.Slots.Models {
		if ModelName(name) == ModelName(model) {
			return int(n)
		}
	}
	if c.Slots.Default != nil {
		return int(*c.Slots.Default)
	}
	return v1alpha1.DefaultSlots
}

// ModelName is the product name as GPUNode shows it, with dashes for blanks.
func ModelName(product string) string { return strings.Join(strings.Fields(product), "-") }
