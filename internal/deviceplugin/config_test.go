package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	c, err := ParseConfig([]byte(`
apiVersion: agent.tandem-gpu.io/v1alpha1
kind: AgentConfiguration
slots:
  default: 8
  models:
    NVIDIA-A100-SXM4-40GB: 20
    Tesla T4: 4
`))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]int{
		"NVIDIA A100-SXM4-40GB": 20, "NVIDIA-A100-SXM4-40GB": 20, "Tesla T4": 4, "Tesla-T4": 4, "NVIDIA H100": 8,
	} {
		if got := c.slots(model); got != want {
			t.Errorf("slots(%q) = %d, want %d", model, got, want)
		}
	}
	if got := (Config{}).slots("anything"); got != 10 {
		t.Errorf("slots without a file = %d, want 10", got)
	}
}

func TestConfigRefusesWhatItDoesNotKnow(t *testing.T) {
	cases := map[string][]string{
		"slotz: {}":                          {`unknown field "slotz"`},
		"slots: {standard: 4}":               {`unknown field "slots.standard"`},
		"slots: {default: 0}":                {"slots.default: 0", "from 1 to 1000"},
		"slots: {default: 1001}":             {"slots.default: 1001", "from 1 to 1000"},
		"slots: {default: many}":             {"slots.default"},
		"slots: {default: 2.5}":              {"slots.default"},
		"slots: {default: 4, default: 5}":    {"default"},
		"slots: {models: {T4: -1}}":          {`slots.models["T4"]: -1`, "from 1 to 1000"},
		"slots: {models: {'': 1}}":           {"empty"},
		"slots: {models: {A B: 1, A-B: 2}}":  {"the same model"},
		"apiVersion: agent.tandem-gpu.io/v2": {"apiVersion", ConfigAPIVersion},
		"kind: AgentConfig":                  {"kind", ConfigKind},
		"slots: [":                           {"yaml"},
		"kind: A\nslots: {default: 0}":       {"kind", "slots.default"},
	}
	for raw, says := range cases {
		_, err := ParseConfig([]byte(raw))
		for _, text := range says {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want an error that says %q", raw, err, text)
			}
		}
	}
}

func TestLoadConfigNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if _, err := LoadConfig(path); err == nil {
		t.Error("an absent file: no error")
	}
	if err := os.WriteFile(path, []byte("slots: {default: 0}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a bad file: %v, want an error that names it", err)
	}
}
