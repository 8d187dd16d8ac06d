package metrics

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// Snapshot is the use of the devices and of their shares at one moment.
type Snapshot struct {
	Devices []Device
	// Shares of running pods, one for each container and device. Two with the same names are two pods of one name, of
	// which the first counts.
	Shares []Share
	// Rates that pods report of themselves. If two have the same names, the first counts.
	Rates []PodRate
}

// PodRate is what a pod reports of itself, in a unit of its own.
type PodRate struct {
	Namespace, Pod string
	Rate           float64
}

// Device is one device.
type Device struct {
	ID, Model, PCIBusID, Parent, Enforcement string
	Index                                    int
	Memory                                   int64
	// ContextsLimit is 0 without a known limit.
	ContextsLimit int
	// Sick is the reason why the device takes no work, "" where it does.
	Sick string
	// Sample is nil where the driver did not answer.
	Sample *Sample
}

// Sample is one measurement of a device.
type Sample struct {
	// MemoryUsed in bytes.
	MemoryUsed int64
	Rates
	// Temperature in degrees Celsius and Power in watts; 0 where the device has no sensor.
	Temperature, Power float64
	// Throttle are the reasons of the driver for a low clock.
	Throttle                     []string
	ECCCorrected, ECCUncorrected uint64
	// Contexts counts the processes without the MPS server, Unattributed those of them without a known share.
	Contexts, Unattributed int
	UnattributedMemory     int64
}

// Rates are parts of the last interval, 0 to 1.
type Rates struct{ SM, MemoryBandwidth float64 }

// Share is a container's share of one device.
type Share struct {
	Namespace, Pod, UID, Container, Device string
	Enforcement                            string
	Slots                                  int
	// ComputeRequest and ComputeLimit are parts of the device, 0 to 1.
	ComputeRequest, ComputeLimit float64
	// MemoryRequest and MemoryLimit in bytes.
	MemoryRequest, MemoryLimit int64
	// Use is nil where the driver did not answer; all 0 before the first sample.
	Use *Use
}

// Use is the measured use of a share.
type Use struct {
	// Memory in bytes.
	Memory int64
	Rates
	Source   string
	Contexts int
}

// Sources of a Use.
const (
	// SourceMeasured: the driver reported each process.
	SourceMeasured = "measured"
	// SourceApportioned: the driver reported a sum, and the agent divided it among the processes.
	SourceApportioned = "apportioned"
)

// use computes the metrics of devices and shares from a snapshot at each scrape, so a device that leaves the snapshot
// leaves the page.
type use struct {
	snapshot func() Snapshot
	descs    map[string]*prometheus.Desc
	types    map[string]prometheus.ValueType
}

// RegisterUse registers the metrics of devices and shares in r. Each scrape calls the function, which must be quick.
func RegisterUse(r prometheus.Registerer, snapshot func() Snapshot) error {
	u := &use{snapshot: snapshot, descs: map[string]*prometheus.Desc{}, types: map[string]prometheus.ValueType{}}
	for _, f := range slices.Concat(deviceUseTable, podTable) {
		u.descs[f.Name] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		u.types[f.Name] = prometheus.GaugeValue
		if f.Type == tandem.Counter {
			u.types[f.Name] = prometheus.CounterValue
		}
	}
	return r.Register(u)
}

// Describe sends all descriptors.
func (u *use) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range u.descs {
		ch <- d
	}
}

// Collect sends the snapshot.
func (u *use) Collect(ch chan<- prometheus.Metric) {
	s := u.snapshot()
	for i := range s.Devices {
		u.device(ch, &s.Devices[i])
	}
	seen := map[[4]string]bool{}
	for i := range s.Shares {
		h := &s.Shares[i]
		names := [4]string{h.Namespace, h.Pod, h.Container, h.Device}
		if seen[names] {
			continue // one series twice would spoil the whole page
		}
		seen[names] = true
		u.share(ch, h)
	}
	told := map[[2]string]bool{}
	for _, r := range s.Rates {
		if names := [2]string{r.Namespace, r.Pod}; !told[names] {
			told[names] = true
			u.send(ch, "tandem_pod_reported_rate", r.Rate, r.Namespace, r.Pod)
		}
	}
}

func (u *use) device(ch chan<- prometheus.Metric, d *Device) {
	send := func(name string, v float64, labels ...string) {
		u.send(ch, "tandem_device_"+name, v, append([]string{d.ID}, labels...)...)
	}
	send("info", 1, strconv.Itoa(d.Index), d.Model, d.PCIBusID, d.Parent, d.Enforcement)
	send("memory_bytes", float64(d.Memory))
	if d.ContextsLimit > 0 {
		send("contexts_limit", float64(d.ContextsLimit))
	}
	if d.Sick != "" {
		send("sick", 1, d.Sick)
	}
	s := d.Sample
	if s == nil {
		return
	}
	send("memory_used_bytes", float64(s.MemoryUsed))
	send("sm_utilization_ratio", s.SM)
	send("memory_bandwidth_utilization_ratio", s.MemoryBandwidth)
	send("contexts", float64(s.Contexts))
	send("unattributed_processes", float64(s.Unattributed))
	send("unattributed_memory_bytes", float64(s.UnattributedMemory))
	send("ecc_errors_total", float64(s.ECCCorrected), "corrected")
	send("ecc_errors_total", float64(s.ECCUncorrected), "uncorrected")
	if s.Temperature > 0 {
		send("temperature_celsius", s.Temperature)
	}
	if s.Power > 0 {
		send("power_watts", s.Power)
	}
	for _, reason := range slices.Compact(slices.Sorted(slices.Values(s.Throttle))) {
		send("throttled", 1, reason)
	}
}

func (u *use) share(ch chan<- prometheus.Metric, h *Share) {
	send := func(name string, v float64, labels ...string) {
		u.send(ch, "tandem_pod_"+name, v, append([]string{h.Namespace, h.Pod, h.Container, h.Device}, labels...)...)
	}
	send("info", 1, h.UID, h.Enforcement)
	send("slots", float64(h.Slots))
	send("compute_request_ratio", h.ComputeRequest)
	send("compute_limit_ratio", h.ComputeLimit)
	send("memory_request_bytes", float64(h.MemoryRequest))
	send("memory_limit_bytes", float64(h.MemoryLimit))
	if h.Use == nil {
		return
	}
	source := cmp.Or(h.Use.Source, SourceMeasured)
	send("memory_used_bytes", float64(h.Use.Memory))
	send("contexts", float64(h.Use.Contexts))
	send("sm_utilization_ratio", h.Use.SM, source)
	send("memory_bandwidth_utilization_ratio", h.Use.MemoryBandwidth, source)
}

func (u *use) send(ch chan<- prometheus.Metric, name string, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(u.descs[name], u.types[name], v, labels...)
}
