package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestConfig(t *testing.T) {
	c, err := Parse([]byte(`
apiVersion: agent.tandem-gpu.io/v1alpha1
kind: AgentConfiguration
slots:
  default: 8
  models:
    NVIDIA-A100-SXM4-40GB: 20
    Tesla T4: 4
`))
	must.OK(t, err)
	for model, want := range map[string]int{
		"NVIDIA A100-SXM4-40GB": 20, "NVIDIA-A100-SXM4-40GB": 20, "Tesla T4": 4, "Tesla-T4": 4, "NVIDIA H100": 8,
	} {
		if got := c.SlotsOf(model); got != want {
			t.Errorf("slots(%q) = %d, want %d", model, got, want)
		}
	}
	if got := (Config{}).SlotsOf("anything"); got != 10 {
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
		"apiVersion: agent.tandem-gpu.io/v2": {"apiVersion", APIVersion},
		"kind: AgentConfig":                  {"kind", Kind},
		"slots: [":                           {"yaml"},
		"kind: A\nslots: {default: 0}":       {"kind", "slots.default"},
	}
	for raw, says := range cases {
		_, err := Parse([]byte(raw))
		for _, text := range says {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want an error that says %q", raw, err, text)
			}
		}
	}
}

func TestLoadConfigNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if _, err := Load(path); err == nil {
		t.Error("an absent file: no error")
	}
	must.OK(t, os.WriteFile(path, []byte("slots: {default: 0}"), 0o600))
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a bad file: %v, want an error that names it", err)
	}
}

func TestConfigSettings(t *testing.T) {
	yes := true
	for name, c := range map[string]Config{"of the zero value": {}, "of an empty file": parsed(t, ""), "written out": parsed(t, `
health: {interval: 5s, canaryInterval: 30s, canaryTimeout: 5s, hold: 15s, residents: drain, drainAfter: 30s}
mps: {exclusiveProcess: false, onExit: keep, multiUser: true, launcher: ""}
termination: {margin: 3s}
telemetry: {interval: 10s, publishInterval: 60s}
driver: {root: "", edits: auto}
`)} {
		if h := c.Health; h.LookEvery() != 5*time.Second || h.ProbeEvery() != 30*time.Second || h.ProbeTimeout() != 5*time.Second ||
			h.HoldTime() != 15*time.Second || h.DrainTime() != 30*time.Second || c.Telemetry.PublishEvery() != time.Minute {
			t.Errorf("times %s: %+v, want the defaults", name, c)
		}
		if !c.Health.Drains() || c.MPS.QuitsOnExit() || !c.MPS.ManyUsers() || c.MPS.ExclusiveProcess || c.Driver.WantedEdits() != EditsAuto ||
			c.Termination.EndMargin() != 3*time.Second || c.Telemetry.SampleEvery() != 10*time.Second {
			t.Errorf("settings %s: %+v", name, c)
		}
	}
	no := false
	c := parsed(t, `
health: {interval: 2s, canaryInterval: 1m, canaryTimeout: 3s, hold: 1m30s, residents: leave, drainAfter: 0s}
mps: {exclusiveProcess: true, onExit: quit, multiUser: false, launcher: /run/tandem/mps/host.sock}
termination: {margin: 5s}
telemetry: {interval: 30s, publishInterval: 2m}
driver: {root: /run/nvidia/driver, edits: devices}
`)
	want := Config{
		Health: HealthConfig{Interval: "2s", CanaryInterval: "1m", CanaryTimeout: "3s", Hold: "1m30s", Residents: residentsLeave, DrainAfter: "0s"},
		MPS:    MPSConfig{ExclusiveProcess: yes, OnExit: onExitQuit, MultiUser: &no, Launcher: "/run/tandem/mps/host.sock"}, Termination: TerminationConfig{Margin: "5s"},
		Telemetry: TelemetryConfig{Interval: "30s", PublishInterval: "2m"}, Driver: DriverConfig{Root: "/run/nvidia/driver", Edits: EditsDevices},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h := c.Health
	if h.LookEvery() != 2*time.Second || h.ProbeEvery() != time.Minute || h.ProbeTimeout() != 3*time.Second || h.HoldTime() != 90*time.Second ||
		h.Drains() || h.DrainTime() != 0 || c.MPS.ManyUsers() || !c.MPS.QuitsOnExit() || c.Telemetry.PublishEvery() != 2*time.Minute {
		t.Errorf("settings %+v", c)
	}
}

func parsed(t *testing.T, raw string) Config {
	t.Helper()
	c, err := Parse([]byte(raw))
	must.OK(t, err)
	return c
}

func TestConfigRefusesIllegalSettings(t *testing.T) {
	for raw, says := range map[string][]string{
		"health: {interval: 0s}":                         {"health.interval", "1s to 1m0s"},
		"health: {interval: 5}":                          {`health.interval: "5"`, `"30s"`},
		"health: {interval: 5, hodl: 1s}":                {`health.interval: "5"`, "health.hodl"},
		"health: {interval: soon}":                       {`health.interval: "soon"`, `"30s"`},
		"health: {canaryInterval: 4s}":                   {"health.canaryInterval", "5s to 10m"},
		"health: {canaryTimeout: 2m}":                    {"health.canaryTimeout", "1s to 1m"},
		"health: {canaryTimeout: 40s}":                   {"health.canaryTimeout: 40s", "at most health.canaryInterval, 30s"},
		"health: {hold: 11m}":                            {"health.hold", "1s to 10m"},
		"health: {residents: kill}":                      {`health.residents: "kill"`, "drain, leave"},
		"health: {drainAfter: -1s}":                      {"health.drainAfter", "0s to 1h"},
		"health: {drain: true}":                          {`unknown field "health.drain"`},
		"mps: {onExit: stop}":                            {`mps.onExit: "stop"`, "keep, quit"},
		"mps: {multiUser: sometimes}":                    {"multiUser"},
		"mps: {launcher: host.sock}":                     {"mps.launcher", "absolute path"},
		"termination: {margin: 0s}":                      {"termination.margin", "1s to 1m"},
		"telemetry: {interval: 100ms}":                   {"telemetry.interval", "1s to 10m"},
		"telemetry: {publishInterval: 2h}":               {"telemetry.publishInterval", "10s to 1h"},
		"telemetry: {reportedRates: some}":               {"telemetry.reportedRates", "all, annotations, none"},
		"telemetry: {interval: 2m}":                      {"telemetry.publishInterval: 1m0s", "at least telemetry.interval, 2m0s"},
		"driver: {edits: all}":                           {`driver.edits: "all"`, "auto, library, devices"},
		"driver: {root: usr}":                            {"driver.root", "absolute path"},
		"health: {residents: x}\ndriver: {edits: all}":   {"health.residents", "driver.edits"},
		"termination: {margin: 2h}\nslots: {default: 0}": {"termination.margin", "slots.default"},
		"health: {hold: 1s, hold: 2s}":                   {"hold"},
	} {
		_, err := Parse([]byte(raw))
		for _, text := range says {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want an error that says %q", raw, err, text)
			}
		}
	}
}
