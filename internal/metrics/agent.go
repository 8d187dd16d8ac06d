package metrics

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace and agent prefix every name of the agent.
const (
	namespace = "tandem"
	agent     = "agent"
)

// Slot states of Agent.SetSlots.
const (
	SlotsFree      = "free"
	SlotsHeld      = "held"
	SlotsUnhealthy = "unhealthy"
)

// Agent holds the collectors of the node agent. Its methods may be called at the same time.
type Agent struct {
	devices       *prometheus.GaugeVec
	slots         *prometheus.GaugeVec
	allocations   prometheus.Counter
	prestart      prometheus.Histogram
	failures      *prometheus.CounterVec
	drift         prometheus.Gauge
	registrations prometheus.Counter
	registered    prometheus.Gauge
	specs         prometheus.Gauge
	checkpoints   *prometheus.CounterVec
	published     *prometheus.CounterVec
}

// NewAgent registers the agent's collectors in r.
func NewAgent(r prometheus.Registerer) (*Agent, error) {
	a := &Agent{
		devices:       gauges("devices", "Devices of the node, by health.", "health"),
		slots:         gauges("slots", "Slots of a device, by state: held by containers, free or unhealthy.", "device", "state"),
		allocations:   counter("allocations_total", "Containers that the kubelet asked slots for."),
		failures:      counters("prestart_failures_total", "Container starts that were refused, by reason.", "reason"),
		drift:         prometheus.NewGauge(opts("assignment_drift", "Containers whose devices or limits differ from their pod's assignment. Must be 0.")),
		registrations: counter("registrations_total", "Registrations with the kubelet that succeeded."),
		registered:    prometheus.NewGauge(opts("registered", "1 while the kubelet watches the agent's slots, else 0.")),
		specs:         prometheus.NewGauge(opts("cdi_specs", "CDI specs on the node that the agent wrote.")),
		checkpoints:   counters("checkpoint_errors_total", "Checkpoints that could not be read, by owner: agent or kubelet.", "owner"),
		published:     counters("gpunode_writes_total", "Writes of the GPUNode status, by result.", "result"),
		prestart: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: agent, Name: "prestart_duration_seconds",
			Help:    "Time from the kubelet's call to the written CDI specs, or to the refusal.",
			Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}),
	}
	all := []prometheus.Collector{
		a.devices, a.slots, a.allocations, a.prestart, a.failures, a.drift, a.registrations, a.registered, a.specs,
		a.checkpoints, a.published, build(),
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// SetDevices reports how many devices take work and how many do not.
func (a *Agent) SetDevices(healthy, unhealthy int) {
	a.devices.WithLabelValues("healthy").Set(float64(healthy))
	a.devices.WithLabelValues("unhealthy").Set(float64(unhealthy))
}

// SetSlots reports the slots of one device in the three states.
func (a *Agent) SetSlots(device string, free, held, unhealthy int) {
	a.slots.WithLabelValues(device, SlotsFree).Set(float64(free))
	a.slots.WithLabelValues(device, SlotsHeld).Set(float64(held))
	a.slots.WithLabelValues(device, SlotsUnhealthy).Set(float64(unhealthy))
}

// Allocated counts one container.
func (a *Agent) Allocated() { a.allocations.Inc() }

// PreStarted records one call; reason is "" for a container that may start.
func (a *Agent) PreStarted(took time.Duration, reason string) {
	a.prestart.Observe(took.Seconds())
	if reason != "" {
		a.failures.WithLabelValues(reason).Inc()
	}
}

// SetDrift reports the number of containers that drifted.
func (a *Agent) SetDrift(containers int) { a.drift.Set(float64(containers)) }

// SetSpecs reports the number of specs on disk.
func (a *Agent) SetSpecs(n int) { a.specs.Set(float64(n)) }

// Registered counts a registration.
func (a *Agent) Registered() { a.registrations.Inc() }

// SetWatched reports whether the kubelet watches the slots.
func (a *Agent) SetWatched(yes bool) {
	if yes {
		a.registered.Set(1)
		return
	}
	a.registered.Set(0)
}

// CheckpointUnreadable counts a checkpoint of the owner ("agent", "kubelet") that could not be used.
func (a *Agent) CheckpointUnreadable(owner string) { a.checkpoints.WithLabelValues(owner).Inc() }

// Published counts a write of the GPUNode status.
func (a *Agent) Published(err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	a.published.WithLabelValues(result).Inc()
}

func opts(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: namespace, Subsystem: agent, Name: name, Help: help}
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(opts(name, help), labels)
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
}

// build is the constant metric that tells which program runs.
func build() prometheus.Collector {
	version, revision := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	o := opts("build_info", "1, with the version of the running agent as labels.")
	o.ConstLabels = prometheus.Labels{"version": version, "revision": revision, "go": runtime.Version()}
	g := prometheus.NewGauge(o)
	g.Set(1)
	return g
}
