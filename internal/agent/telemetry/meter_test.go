package telemetry

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// One container of a pod is told from the other by its container ID; a process whose container is not in the status yet
// is the only holder's.
func TestContainersOfAPodAreDistinguished(t *testing.T) {
	devices := []resident.Share{
		{UID: "u", Name: "a", DeviceID: fixture.G0}, {UID: "u", Name: "b", DeviceID: fixture.G0}, {UID: "v", Name: "a", DeviceID: fixture.G0},
	}
	proc := t.TempDir()
	ids := map[string]string{"a": strings.Repeat("a", 64), "b": strings.Repeat("b", 64), "side": strings.Repeat("d", 64)}
	pod := fixture.Unplaced("p", fixture.App(fixture.G0, 1))
	pod.UID = "u"
	for name, id := range ids {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: name, ContainerID: "containerd://" + id})
	}
	single := fixture.Unplaced("q", fixture.App(fixture.G0, 1))
	single.UID = "v"
	m := NewMeter(MeterOptions{Attribution: resident.NewAttribution(proc)})
	there := round{pods: tenantsOf(pod, single), residents: devices}
	for pid, c := range map[int]struct {
		cgroup string
		want   int
	}{
		1: {"/kubepods/podu/" + ids["a"], 0},
		2: {"/kubepods/podu/" + ids["b"], 1},
		3: {"/kubepods/podu/" + strings.Repeat("e", 64), -1}, // new, and there are two candidates
		4: {"/kubepods/podu/" + ids["side"], -1},             // has no share
		5: {"/kubepods/podv/" + strings.Repeat("e", 64), 2},
		6: {"/system.slice", -1},
	} {
		fixture.WriteProcess(t, proc, pid, "1", "0::"+c.cgroup+"\n")
		if got := m.resident(pid, there); got != c.want {
			t.Errorf("process %d of %s: resident %d, want %d", pid, c.cgroup, got, c.want)
		}
	}
}

// The GPUNode is told of a use that moved far, after the least time between two writes, and of nothing else.
func TestUseIsPublishedWhenItMoved(t *testing.T) {
	drv := &sampleDriver{}
	opened, counts := parts(t)
	inv := tenSlots(fixture.GPU(fixture.G0, 0, 0), fixture.GPU(fixture.G1, 1, 1))
	m := NewMeter(MeterOptions{
		Inventory: inv, Driver: drv, Records: opened, Pods: &shownPods{}, Attribution: resident.NewAttribution(t.TempDir()), Metrics: counts,
		Publish: time.Minute, Reports: silence, Answer: 10 * time.Second,
	})
	now := time.Now()
	round := func(after time.Duration, sm float64) (told bool) {
		t.Helper()
		drv.measure(fixture.G0, nvml.Sample{SM: sm, MemoryUsed: 10 * vgpu.GiB})
		noted := inv.Notes()
		now = now.Add(after)
		m.measure(t.Context(), now)
		select {
		case <-noted:
			return true
		default:
			return false
		}
	}
	percent := func() int32 {
		devices, _ := inv.Snapshot()
		return devices[0].Usage.SMUtilizationPercent
	}
	if !round(0, 0.5) || percent() != 50 {
		t.Errorf("the first use is not published: %d", percent())
	}
	if devices, _ := inv.Snapshot(); devices[1].Usage != nil {
		t.Errorf("the use of the other device: %+v, want none", devices[1].Usage)
	}
	if round(10*time.Second, 1) {
		t.Error("published before the least time between two writes")
	}
	if !round(50*time.Second, 1) || percent() < 60 {
		t.Errorf("a large move is not published: %d %%", percent())
	}
	for range 20 {
		round(time.Minute, 1)
	}
	if percent() < 95 {
		t.Errorf("published %d %% after 20 minutes of full load", percent())
	}
	if round(time.Hour, 0.98) {
		t.Error("a move of two points is published")
	}
	drv.mu.Lock()
	delete(drv.samples, fixture.G0)
	drv.mu.Unlock()
	m.measure(t.Context(), now.Add(time.Second))
	if devices, _ := inv.Snapshot(); devices[0].Usage == nil {
		t.Error("one sample that failed took the use from the GPUNode")
	}
	m.measure(t.Context(), now.Add(2*time.Minute))
	if devices, _ := inv.Snapshot(); devices[0].Usage != nil {
		t.Error("the GPUNode tells a use that nobody has measured for minutes")
	}
}

// A driver that hangs for one device leaves the others measured, and is not asked again meanwhile.
func TestHangingDriverHoldsUpOneDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := &stuck{sampleDriver: &sampleDriver{}, free: make(chan struct{})}
		defer close(drv.free)
		opened, err := allocation.Open(t.TempDir())
		must.OK(t, err)
		registry := prometheus.NewRegistry()
		counts, err := metrics.NewAgent(registry)
		must.OK(t, err)
		drv.measure(fixture.G1, nvml.Sample{SM: 0.5})
		m := NewMeter(MeterOptions{
			Inventory: tenSlots(fixture.GPU(fixture.G0, 0, 0), fixture.GPU(fixture.G1, 1, 1)), Driver: drv, Records: opened, Pods: &shownPods{},
			Attribution: resident.NewAttribution(t.TempDir()), Metrics: counts, Publish: time.Minute, Reports: silence, Answer: 10 * time.Second,
		})
		for range 3 {
			m.measure(t.Context(), time.Now())
		}
		s := m.Snapshot()
		if s.Devices[0].Sample != nil || s.Devices[1].Sample == nil || s.Devices[1].Sample.SM != 0.5 {
			t.Errorf("samples %+v", s.Devices)
		}
		if n := drv.asked.Load(); n != 1 {
			t.Errorf("the driver that hangs was asked %d times, want once", n)
		}
		if n, err := testutil.GatherAndCount(registry, "tandem_agent_sample_errors_total"); err != nil || n != 1 {
			t.Errorf("errors are counted for %d devices (%v), want for the one that hangs", n, err)
		}
	})
}

// stuck is a driver that does not answer for g0 until free is closed.
type stuck struct {
	*sampleDriver
	free  chan struct{}
	asked atomic.Int32
}

func (s *stuck) Sample(id string) (nvml.Sample, error) {
	if id == fixture.G0 {
		s.asked.Add(1)
		<-s.free
	}
	return s.sampleDriver.Sample(id)
}

// silence is pods that report nothing.
func silence(types.UID) (reported.Rate, bool) { return reported.Rate{}, false }
