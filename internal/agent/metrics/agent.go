package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-gpu/tandem/internal/version"
)

// Slot states of Agent.SetSlots.
const (
	SlotsFree      = "free"
	SlotsHeld      = "held"
	SlotsUnhealthy = "unhealthy"
)

// Results of a write of the GPUNode.
const (
	resultSuccess = "success"
	resultError   = "error"
)

// Causes of Agent.ClientsEnded.
const (
	// CauseTermination: the pod of the clients terminates.
	CauseTermination = "termination"
	// CauseDrain: the device of the clients is unhealthy.
	CauseDrain = "drain"
)

// Sources of Agent.SetPodSource.
const (
	PodsFromKubelet = "kubelet"
	PodsFromServer  = "apiserver"
)

// healthStates are the states that SetHealth knows.
var healthStates = []string{"healthy", "sick", "recovering"}

// Agent holds the collectors of the node agent. Callers may use its methods at the same time.
type Agent struct {
	devices       *prometheus.GaugeVec
	slots         *prometheus.GaugeVec
	allocations   *prometheus.CounterVec
	prestart      *prometheus.HistogramVec
	failures      *prometheus.CounterVec
	drift         *prometheus.GaugeVec
	registrations *prometheus.CounterVec
	registered    *prometheus.GaugeVec
	specs         *prometheus.GaugeVec
	checkpoints   *prometheus.CounterVec
	published     *prometheus.CounterVec
	watchErrors   *prometheus.CounterVec
	podSource     *prometheus.GaugeVec
	shm           *prometheus.GaugeVec
	shmSwept      *prometheus.CounterVec
	ended         *prometheus.CounterVec
	endErrors     *prometheus.CounterVec
	sampleErrors  *prometheus.CounterVec
	rateScrapes   *prometheus.CounterVec
	ratesDropped  *prometheus.CounterVec
	probes        *prometheus.HistogramVec

	health    *prometheus.GaugeVec
	monitored *prometheus.GaugeVec
	recycles  *prometheus.CounterVec
	xids      *prometheus.CounterVec
}

// NewAgent registers the agent's collectors in r.
func NewAgent(r prometheus.Registerer) (*Agent, error) {
	s := newSet(slices.Concat(agentTable, deviceTable))
	a := &Agent{
		devices:       s.gauge("tandem_agent_devices"),
		slots:         s.gauge("tandem_agent_slots"),
		allocations:   s.counter("tandem_agent_allocations_total"),
		prestart:      s.histogram("tandem_agent_prestart_duration_seconds"),
		failures:      s.counter("tandem_agent_prestart_failures_total"),
		drift:         s.gauge("tandem_agent_assignment_drift"),
		registrations: s.counter("tandem_agent_registrations_total"),
		registered:    s.gauge("tandem_agent_registered"),
		specs:         s.gauge("tandem_agent_cdi_specs"),
		checkpoints:   s.counter("tandem_agent_checkpoint_errors_total"),
		published:     s.counter("tandem_agent_gpunode_writes_total"),
		watchErrors:   s.counter("tandem_agent_pod_watch_errors_total"),
		podSource:     s.gauge("tandem_agent_pod_source"),
		shm:           s.gauge("tandem_agent_shared_memory_bytes"),
		shmSwept:      s.counter("tandem_agent_shared_memory_swept_bytes_total"),
		ended:         s.counter("tandem_agent_clients_ended_total"),
		endErrors:     s.counter("tandem_agent_termination_errors_total"),
		sampleErrors:  s.counter("tandem_agent_sample_errors_total"),
		rateScrapes:   s.counter("tandem_agent_rate_scrapes_total"),
		ratesDropped:  s.counter("tandem_agent_rates_dropped_total"),
		probes:        s.histogram("tandem_agent_probe_duration_seconds"),
		health:        s.gauge("tandem_device_health"),
		monitored:     s.gauge("tandem_device_monitored"),
		recycles:      s.counter("tandem_device_recycles_total"),
		xids:          s.counter("tandem_device_xid_errors_total"),
	}
	s.gauge(version.Metric).WithLabelValues(version.Get().Values()...).Set(1)
	a.begin()
	for _, c := range s.built {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// begin shows at 0 what has no labels of devices or pods, so that the first event is an increase.
func (a *Agent) begin() {
	for _, c := range []*prometheus.CounterVec{a.allocations, a.registrations, a.watchErrors, a.endErrors} {
		c.WithLabelValues()
	}
	for _, g := range []*prometheus.GaugeVec{a.drift, a.registered, a.specs} {
		g.WithLabelValues()
	}
	a.prestart.WithLabelValues()
	a.SetPodSource("")
	a.SharedMemory(0, 0, 0)
	a.SharedMemorySwept(0)
	for _, result := range []string{resultSuccess, resultError} {
		a.published.WithLabelValues(result)
	}
	for _, cause := range []string{CauseTermination, CauseDrain} {
		a.ended.WithLabelValues(cause)
	}
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
func (a *Agent) Allocated() { a.allocations.WithLabelValues().Inc() }

// PreStarted records one call; reason is "" for a container that may start.
func (a *Agent) PreStarted(took time.Duration, reason string) {
	a.prestart.WithLabelValues().Observe(took.Seconds())
	if reason != "" {
		a.failures.WithLabelValues(reason).Inc()
	}
}

// SetDrift reports the number of containers that drifted.
func (a *Agent) SetDrift(containers int) { a.drift.WithLabelValues().Set(float64(containers)) }

// SetSpecs reports the number of specs on disk.
func (a *Agent) SetSpecs(n int) { a.specs.WithLabelValues().Set(float64(n)) }

// Registered counts a registration.
func (a *Agent) Registered() { a.registrations.WithLabelValues().Inc() }

// SetWatched reports whether the kubelet watches the slots.
func (a *Agent) SetWatched(yes bool) { a.registered.WithLabelValues().Set(truth(yes)) }

// CheckpointUnreadable counts a checkpoint of the owner ("agent", "kubelet") that could not be used.
func (a *Agent) CheckpointUnreadable(owner string) { a.checkpoints.WithLabelValues(owner).Inc() }

// Published counts a write of the GPUNode status.
func (a *Agent) Published(err error) {
	result := resultSuccess
	if err != nil {
		result = resultError
	}
	a.published.WithLabelValues(result).Inc()
}

// SetPodSource sets the source of the node's pods.
func (a *Agent) SetPodSource(source string) {
	for _, s := range []string{PodsFromKubelet, PodsFromServer} {
		value := 0.
		if s == source {
			value = 1
		}
		a.podSource.WithLabelValues(s).Set(value)
	}
}

// SharedMemory reports the used and the free part of the memory that tenants share with MPS. unjudged is the part in
// old files whose users the agent has no right to see.
func (a *Agent) SharedMemory(used, free, unjudged int64) {
	a.shm.WithLabelValues("used").Set(float64(used))
	a.shm.WithLabelValues("free").Set(float64(free))
	a.shm.WithLabelValues("unjudged").Set(float64(unjudged))
}

// SharedMemorySwept counts the bytes of removed files.
func (a *Agent) SharedMemorySwept(bytes int64) { a.shmSwept.WithLabelValues().Add(float64(bytes)) }

// WatchBroke counts a watch of the pods that failed or broke.
func (a *Agent) WatchBroke() { a.watchErrors.WithLabelValues().Inc() }

// ClientsEnded counts clients whose GPU work the agent ended for a cause.
func (a *Agent) ClientsEnded(cause string, n int) { a.ended.WithLabelValues(cause).Add(float64(n)) }

// EndFailed counts an attempt to end clients of terminating pods that failed.
func (a *Agent) EndFailed() { a.endErrors.WithLabelValues().Inc() }

// SampleFailed counts a device whose use the driver did not report.
func (a *Agent) SampleFailed(device string) { a.sampleErrors.WithLabelValues(device).Inc() }

// RateScraped counts an attempt to read the rate that a pod shows, by a result of package reported.
func (a *Agent) RateScraped(result string) { a.rateScrapes.WithLabelValues(result).Inc() }

// RateDropped counts a reported rate that was not taken, by a reason of package reported.
func (a *Agent) RateDropped(reason string) { a.ratesDropped.WithLabelValues(reason).Inc() }

// SetHealth sets the state of a device: "healthy", "sick" or "recovering".
func (a *Agent) SetHealth(device, state string) {
	for _, s := range healthStates {
		a.health.WithLabelValues(device, s).Set(truth(s == state))
	}
}

// SetMonitored reports whether the agent would notice that a device serves no program.
func (a *Agent) SetMonitored(device string, yes bool) {
	a.monitored.WithLabelValues(device).Set(truth(yes))
}

// Recycled counts a replaced MPS daemon, by the reason why the device was unhealthy.
func (a *Agent) Recycled(device, reason string) { a.recycles.WithLabelValues(device, reason).Inc() }

// XID counts n errors of a device, by class: "application", "contained" or "reset".
func (a *Agent) XID(device, class string, n int) {
	a.xids.WithLabelValues(device, class).Add(float64(n))
}

// Probed records a probe of a device's data plane, by result: "well", "wedged", "fault", "no-cuda" or "failed". The
// histogram has no label for the device: its buckets times the devices would be the most of the page.
func (a *Agent) Probed(_ string, took time.Duration, result string) {
	a.probes.WithLabelValues(result).Observe(took.Seconds())
}

// ForgetDevice drops the series of a device that is gone for good.
func (a *Agent) ForgetDevice(device string) {
	labels := prometheus.Labels{"device": device}
	for _, g := range []*prometheus.GaugeVec{a.slots, a.health, a.monitored} {
		g.DeletePartialMatch(labels)
	}
	for _, c := range []*prometheus.CounterVec{a.recycles, a.xids, a.sampleErrors} {
		c.DeletePartialMatch(labels)
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
