package config

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// HealthConfig says how the agent watches devices and what happens to unhealthy ones.
type HealthConfig struct {
	// Interval is the pause between two checks of a device through the driver, "5s" unless set. The agent checks the
	// MPS daemon of a healthy device every third time, since each answer costs the start of nvidia-cuda-mps-control. It
	// checks that of an unhealthy device every time, and after a look that was not good. XID errors do not wait for it:
	// the driver reports them as events. Half the interval costs twice the processor time.
	Interval Duration `json:"interval,omitempty"`
	// CanaryInterval is the pause between two runs of the canary, a small CUDA program that connects as a new client,
	// "30s" unless set. The agent finds a wedged server after at most CanaryInterval and CanaryTimeout.
	CanaryInterval Duration `json:"canaryInterval,omitempty"`
	// CanaryTimeout is how long the canary may take before the device counts as wedged, "5s" unless set.
	CanaryTimeout Duration `json:"canaryTimeout,omitempty"`
	// Hold is how long a device must have been well before it takes work again, "15s" unless set. Each relapse within an
	// hour doubles it, up to ten minutes.
	Hold Duration `json:"hold,omitempty"`
	// Residents says what happens to the containers that share an unhealthy device. "drain" (the default) ends their
	// GPU work after DrainAfter, so that the agent can recover the device. "leave" waits until they have ended by
	// themselves.
	Residents string `json:"residents,omitempty"`
	// DrainAfter is the time that residents have to end by themselves, "30s" unless set.
	DrainAfter Duration `json:"drainAfter,omitempty"`
}

// Values of HealthConfig.Residents.
const (
	residentsDrain = "drain"
	residentsLeave = "leave"
)

// MPSConfig says how the agent runs MPS.
type MPSConfig struct {
	// ExclusiveProcess sets the compute mode EXCLUSIVE_PROCESS while shares of a device run, so that a program that
	// lost its MPS environment fails in place of running without limits. False unless set: a monitoring program with a
	// CUDA context of its own would fail too.
	ExclusiveProcess bool `json:"exclusiveProcess,omitempty"`
	// OnExit says what becomes of the daemons when the agent ends: "keep" (the default), or "quit" for those without
	// clients.
	OnExit string `json:"onExit,omitempty"`
	// MultiUser lets MPS serve clients of all users at once, true unless set. Without it a client of another user waits
	// until those of the first are gone.
	MultiUser *bool `json:"multiUser,omitempty"`
	// Launcher is the socket of `tandem-device-plugin mps-host`, which starts daemons that outlive the agent's
	// container. Empty: the agent starts them itself.
	Launcher string `json:"launcher,omitempty"`
}

// Values of MPSConfig.OnExit.
const (
	onExitKeep = "keep"
	onExitQuit = "quit"
)

// TerminationConfig says how the agent ends the GPU work of terminating pods.
type TerminationConfig struct {
	// Margin is the time by which the agent ends the clients of a terminating pod before the kubelet's SIGKILL, "3s"
	// unless set. Shorter risks that the SIGKILL comes first and breaks the server for all; longer takes time from the
	// pod's grace period.
	Margin Duration `json:"margin,omitempty"`
}

// TelemetryConfig says how often the agent measures and publishes use.
type TelemetryConfig struct {
	// Interval is the pause between two measurements of each device, "10s" unless set.
	Interval Duration `json:"interval,omitempty"`
	// PublishInterval is the least time between two writes of the GPUNode for the sake of use alone, "60s" unless set.
	PublishInterval Duration `json:"publishInterval,omitempty"`
	// ReportedRates selects the reports of pods about their own rate that the agent reads once in each Interval: "all"
	// (the default); "annotations", which connects to no pod; or "none".
	ReportedRates string `json:"reportedRates,omitempty"`
}

// Values of TelemetryConfig.ReportedRates.
const (
	reportsAll         = "all"
	ReportsAnnotations = "annotations"
	ReportsNone        = "none"
)

// DriverConfig says what containers get of the driver.
type DriverConfig struct {
	// Root is the host's folder of the driver: "/" on most hosts, "/run/nvidia/driver" with NVIDIA's driver container.
	// The agent looks for it below --host-root. Empty: the folder of --dev-root.
	Root string `json:"root,omitempty"`
	// Edits: "library" gives containers device files, libraries and hooks as NVIDIA's nvcdi finds them under Root.
	// "devices" gives device files alone, for images or runtimes that bring the libraries. "auto" (the default) is
	// "library" where Root has the libraries, else "devices".
	Edits string `json:"edits,omitempty"`
}

// Values of DriverConfig.Edits.
const (
	EditsAuto    = "auto"
	EditsLibrary = "library"
	EditsDevices = "devices"
)

// Defaults and bounds of the durations; the comments of the fields say what larger and smaller ones do.
const (
	defaultHealthInterval  = 5 * time.Second
	defaultCanaryInterval  = 30 * time.Second
	defaultCanaryTimeout   = 5 * time.Second
	defaultHold            = 15 * time.Second
	defaultDrainAfter      = 30 * time.Second
	defaultMargin          = 3 * time.Second
	defaultTelemetry       = 10 * time.Second
	defaultPublishInterval = time.Minute
)

// LookEvery is the time between two looks at a device.
func (h HealthConfig) LookEvery() time.Duration { return h.Interval.or(defaultHealthInterval) }

// ProbeEvery is the time between two runs of the canary.
func (h HealthConfig) ProbeEvery() time.Duration { return h.CanaryInterval.or(defaultCanaryInterval) }

// ProbeTimeout is how long the canary may take.
func (h HealthConfig) ProbeTimeout() time.Duration { return h.CanaryTimeout.or(defaultCanaryTimeout) }

// HoldTime is how long a device must have been well before it takes work again.
func (h HealthConfig) HoldTime() time.Duration { return h.Hold.or(defaultHold) }

// Drains reports whether the agent ends the GPU work of the residents of an unhealthy device.
func (h HealthConfig) Drains() bool { return h.Residents != residentsLeave }

// DrainTime is how long the residents of an unhealthy device have to end by themselves.
func (h HealthConfig) DrainTime() time.Duration { return h.DrainAfter.or(defaultDrainAfter) }

// QuitsOnExit reports whether an ending agent ends the daemons without clients.
func (m MPSConfig) QuitsOnExit() bool { return m.OnExit == onExitQuit }

// ManyUsers reports whether one server serves clients of all users.
func (m MPSConfig) ManyUsers() bool { return m.MultiUser == nil || *m.MultiUser }

// EndMargin returns Margin or its default.
func (t TerminationConfig) EndMargin() time.Duration { return t.Margin.or(defaultMargin) }

// SampleEvery is the time between two samples of a device.
func (t TelemetryConfig) SampleEvery() time.Duration { return t.Interval.or(defaultTelemetry) }

// PublishEvery is the least time between two writes of the GPUNode for the sake of use alone.
func (t TelemetryConfig) PublishEvery() time.Duration {
	return t.PublishInterval.or(defaultPublishInterval)
}

// Reports returns ReportedRates or its default.
func (t TelemetryConfig) Reports() string {
	if t.ReportedRates == "" {
		return reportsAll
	}
	return t.ReportedRates
}

// WantedEdits says what containers get of the driver.
func (d DriverConfig) WantedEdits() string {
	if d.Edits == "" {
		return EditsAuto
	}
	return d.Edits
}

// Duration is a time span as Go writes it: "30s", "1m30s". An empty one means the default.
type Duration string

// UnmarshalJSON takes whatever stands there, a number too: validate refuses it by the name of the field, together with all
// else that is wrong in the file.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		text = string(raw)
	}
	*d = Duration(text)
	return nil
}

func (d Duration) or(otherwise time.Duration) time.Duration {
	span, err := time.ParseDuration(string(d))
	if err != nil { // empty: validate has refused all else
		return otherwise
	}
	return span
}

func (c Config) validateSettings() []error {
	bad := []error{
		span("health.interval", c.Health.Interval, time.Second, time.Minute),
		span("health.canaryInterval", c.Health.CanaryInterval, 5*time.Second, 10*time.Minute),
		span("health.canaryTimeout", c.Health.CanaryTimeout, time.Second, time.Minute),
		span("health.hold", c.Health.Hold, time.Second, MaxHold),
		word("health.residents", c.Health.Residents, residentsDrain, residentsLeave),
		span("health.drainAfter", c.Health.DrainAfter, 0, time.Hour),
		word("mps.onExit", c.MPS.OnExit, onExitKeep, onExitQuit),
		absolute("mps.launcher", c.MPS.Launcher),
		span("termination.margin", c.Termination.Margin, time.Second, time.Minute),
		span("telemetry.interval", c.Telemetry.Interval, time.Second, 10*time.Minute),
		span("telemetry.publishInterval", c.Telemetry.PublishInterval, 10*time.Second, time.Hour),
		word("telemetry.reportedRates", c.Telemetry.ReportedRates, reportsAll, ReportsAnnotations, ReportsNone),
		absolute("driver.root", c.Driver.Root),
		word("driver.edits", c.Driver.Edits, EditsAuto, EditsLibrary, EditsDevices),
	}
	if timeout, every := c.Health.ProbeTimeout(), c.Health.ProbeEvery(); timeout > every {
		bad = append(bad, fmt.Errorf("health.canaryTimeout: %v, must be at most health.canaryInterval, %v", timeout, every))
	}
	if least, every := c.Telemetry.SampleEvery(), c.Telemetry.PublishEvery(); every < least {
		bad = append(bad, fmt.Errorf("telemetry.publishInterval: %v, must be at least telemetry.interval, %v", every, least))
	}
	return bad
}

func span(field string, d Duration, least, most time.Duration) error {
	if d == "" {
		return nil
	}
	t, err := time.ParseDuration(string(d))
	if err != nil || t < least || t > most {
		return fmt.Errorf("%s: %q, must be a time from %v to %v, for example \"30s\"", field, string(d), least, most)
	}
	return nil
}

func word(field, value string, legal ...string) error {
	if value == "" || slices.Contains(legal, value) {
		return nil
	}
	return fmt.Errorf("%s: %q, must be one of %s", field, value, strings.Join(legal, ", "))
}

func absolute(field, path string) error {
	if path == "" || filepath.IsAbs(path) {
		return nil
	}
	return fmt.Errorf("%s: %q, must be an absolute path", field, path)
}

// MaxHold bounds HealthConfig.Hold, also after the relapses that double it.
const MaxHold = 10 * time.Minute
