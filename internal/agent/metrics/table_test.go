package metrics

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// full returns a registry in which every metric has a series.
func full(t *testing.T) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	a, err := NewAgent(r)
	must.OK(t, err)
	a.SetDevices(3, 1)
	a.SetSlots("GPU-a", 4, 6, 0)
	a.PreStarted(time.Millisecond, "NoAssignment")
	a.CheckpointUnreadable("kubelet")
	a.Published(errors.New("down"))
	a.SampleFailed("GPU-a")
	a.RateScraped("success")
	a.RateDropped("nan")
	a.SetHealth("GPU-a", "sick")
	a.SetMonitored("GPU-a", true)
	a.Recycled("GPU-a", "MPSFault")
	a.XID("GPU-a", "reset", 1)
	a.Probed("GPU-a", time.Second, "well")
	must.OK(t, RegisterUse(r, example))
	return r
}

func example() Snapshot {
	return Snapshot{
		Devices: []Device{
			{
				ID: "GPU-a", Model: "A100", PCIBusID: "00:07.0", Enforcement: "cooperative", Memory: 40, ContextsLimit: 48, Sick: "XID79",
				Sample: &Sample{
					MemoryUsed: 7, Rates: Rates{SM: 0.5, MemoryBandwidth: 0.25}, Temperature: 40, Power: 300,
					Throttle: []string{"sw_power_cap", "hw_slowdown", "sw_power_cap"}, ECCCorrected: 2, ECCUncorrected: 1,
					Contexts: 3, Unattributed: 1, UnattributedMemory: 5,
				},
			},
			{ID: "MIG-b", Index: 8, Parent: "GPU-c", Memory: 5, Enforcement: "none"},
		},
		Shares: []Share{
			{
				Namespace: "team", Pod: "train", UID: "u1", Container: "main", Device: "GPU-a", Enforcement: "cooperative",
				Slots: 3, ComputeRequest: 0.3, ComputeLimit: 0.5, MemoryRequest: 12, MemoryLimit: 20,
				Use: &Use{Memory: 6, Rates: Rates{SM: 0.4, MemoryBandwidth: 0.2}, Source: SourceApportioned, Contexts: 2},
			},
			{Namespace: "team", Pod: "train", UID: "u2", Container: "main", Device: "GPU-a", Slots: 1}, // the pod that takes its name over
			{Namespace: "team", Pod: "untold", UID: "u3", Container: "main", Device: "MIG-b", Slots: 2},
		},
		Rates: []PodRate{{Namespace: "team", Pod: "train", Rate: 12.5}, {Namespace: "team", Pod: "train", Rate: 7}},
	}
}

// Names, types, labels and texts that are served are those of the table, and Prometheus' own rules hold.
func TestServedMetricsAreThoseOfTheTable(t *testing.T) {
	r := full(t)
	var table []tandem.Family
	for _, s := range Sections() {
		table = append(table, s.Families...)
	}
	servedmetrics.Check(t, r, "", servedmetrics.Sorted(table))
}

// Series come from the snapshot alone: those of a pod that is gone are gone, and a figure that the driver did not tell
// is absent.
func TestSharesAndDevicesAreServedAsTheyAre(t *testing.T) {
	now := example()
	r := prometheus.NewPedanticRegistry()
	must.OK(t, RegisterUse(r, func() Snapshot { return now }))
	const labels = `container="main",device="GPU-a",namespace="team",pod="train"`
	want := `
# HELP tandem_device_sick 1 while the device takes no work, with the reason of the GPUNode. Absent for a healthy device.
# TYPE tandem_device_sick gauge
tandem_device_sick{device="GPU-a",reason="XID79"} 1
# HELP tandem_device_throttled 1 while the device runs below its clock, by reason of the driver. Absent for reasons that do not hold.
# TYPE tandem_device_throttled gauge
tandem_device_throttled{device="GPU-a",reason="hw_slowdown"} 1
tandem_device_throttled{device="GPU-a",reason="sw_power_cap"} 1
# HELP tandem_pod_memory_used_bytes Device memory that the container's processes use. 0 until it is measured.
# TYPE tandem_pod_memory_used_bytes gauge
tandem_pod_memory_used_bytes{` + labels + `} 6
# HELP tandem_pod_reported_rate Rate that the pod reports of itself, by annotation or metric. Absent where it reports none, or has not for three intervals. Nobody checks that it is true.
# TYPE tandem_pod_reported_rate gauge
tandem_pod_reported_rate{namespace="team",pod="train"} 12.5
# HELP tandem_pod_slots Slots of the device that the container holds. Init containers are told until they have ended, beside the containers that take their slots over.
# TYPE tandem_pod_slots gauge
tandem_pod_slots{` + labels + `} 3
tandem_pod_slots{container="main",device="MIG-b",namespace="team",pod="untold"} 2
`
	names := []string{"tandem_device_sick", "tandem_device_throttled", "tandem_pod_memory_used_bytes", "tandem_pod_reported_rate", "tandem_pod_slots"}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	now = Snapshot{}
	if n, err := testutil.GatherAndCount(r); err != nil || n != 0 {
		t.Errorf("%d series (%v) of an empty snapshot", n, err)
	}
}

func TestHealthIsOneOfItsStates(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	a, err := NewAgent(r)
	must.OK(t, err)
	a.SetHealth("GPU-a", "sick")
	a.SetHealth("GPU-a", "recovering")
	a.SetHealth("GPU-b", "healthy")
	a.SetSlots("GPU-b", 1, 2, 3)
	a.Recycled("GPU-b", "MPSFault")
	want := `
# HELP tandem_device_health 1 for the state that the device is in, 0 for the others: healthy, sick or recovering.
# TYPE tandem_device_health gauge
tandem_device_health{device="GPU-a",state="healthy"} 0
tandem_device_health{device="GPU-a",state="recovering"} 1
tandem_device_health{device="GPU-a",state="sick"} 0
`
	a.ForgetDevice("GPU-b")
	names := []string{"tandem_device_health", "tandem_agent_slots", "tandem_device_recycles_total"}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// The committed page has the agent's part as the tables are now. (make verify compares the scheduler's too.)
func TestReferenceIsUpToDate(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	must.OK(t, err)
	var b strings.Builder
	must.OK(t, tandem.WriteReference(&b, Sections()))
	tables, _, _ := strings.Cut(b.String(), "## Labels")
	if !strings.HasPrefix(string(page), tables) {
		t.Error("docs/reference/metrics.md differs from the tables: run make generate")
	}
}
