package deviceplugin

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// series returns the lines of the metrics page that begin so, without comments.
func (b *bench) series(prefix string) []string {
	b.t.Helper()
	_, page := b.get("/metrics")
	var lines []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func podMetric(name, pod, container, device string) string {
	return fmt.Sprintf(`tandem_pod_%s{container=%q,device=%q,namespace="team",pod=%q}`, name, container, device, pod)
}

func measuredMetric(name, pod, container, device, source string) string {
	return fmt.Sprintf(`tandem_pod_%s{container=%q,device=%q,namespace="team",pod=%q,source=%q}`, name, container, device, pod, source)
}

// A share is told from the moment when the kubelet knows its pod; its use follows, and all of it goes with the pod.
func TestSharesAreToldFromTheirAllocation(t *testing.T) {
	b := newBench(t)
	b.driver.measure(g0, nvml.Sample{})
	b.run()
	pod := placed(t, "train", app(g0, 3))
	b.kubelet.admit(pod)
	b.awaitMetric(podMetric("slots", "train", "main", g0), "3")
	b.awaitMetric(podMetric("memory_request_bytes", "train", "main", g0), "1.2884901888e+10")
	b.awaitMetric(podMetric("memory_limit_bytes", "train", "main", g0), "1.2884901888e+10")
	b.awaitMetric(podMetric("compute_request_ratio", "train", "main", g0), "0.3")
	b.awaitMetric(podMetric("compute_limit_ratio", "train", "main", g0), "0.3")
	b.awaitMetric(podMetric("memory_used_bytes", "train", "main", g0), "0")
	b.awaitMetric(measuredMetric("sm_utilization_ratio", "train", "main", g0, "measured"), "0")
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("c", 64)
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + id}}
	})
	writeProcess(t, filepath.Join(b.dir, "proc"), 100, "1", fmt.Sprintf("0::/kubepods/pod%s/%s\n", pod.UID, id))
	b.driver.measure(g0, nvml.Sample{MemoryUsed: 3 << 30, SM: 0.5, MemoryBandwidth: 0.25, Temperature: 55, Power: 250, Processes: []nvml.Process{
		{PID: 1, Memory: 2 << 30, Server: true},
		{PID: 100, Memory: 2 << 30, SM: 0.4, MemoryBandwidth: 0.2, Measured: true}, {PID: 999, Memory: 1 << 30, SM: 0.1, Measured: true},
	}})
	b.awaitMetric(measuredMetric("sm_utilization_ratio", "train", "main", g0, "measured"), "0.4")
	b.awaitMetric(measuredMetric("memory_bandwidth_utilization_ratio", "train", "main", g0, "measured"), "0.2")
	b.awaitMetric(podMetric("memory_used_bytes", "train", "main", g0), "2.147483648e+09")
	b.awaitMetric(podMetric("contexts", "train", "main", g0), "1")
	b.awaitMetric(`tandem_device_contexts{device="`+g0+`"}`, "2")
	b.awaitMetric(`tandem_device_unattributed_processes{device="`+g0+`"}`, "1")
	b.awaitMetric(`tandem_device_unattributed_memory_bytes{device="`+g0+`"}`, "1.073741824e+09")
	b.awaitMetric(`tandem_device_temperature_celsius{device="`+g0+`"}`, "55")
	b.kubelet.remove(string(pod.UID))
	eventually(t, "the end of the series", func() error {
		if left := b.series("tandem_pod_"); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// What the driver does not tell is absent; what is reserved is told all the same.
func TestWhatIsNotMeasuredIsAbsent(t *testing.T) {
	b := newBench(t)
	b.driver.measure(g0, nvml.Sample{SM: 0.5})
	b.run()
	pod := placed(t, "train", app(g0, 3))
	b.kubelet.admit(pod)
	b.awaitMetric(measuredMetric("sm_utilization_ratio", "train", "main", g0, "measured"), "0")
	b.awaitMetric(`tandem_device_sm_utilization_ratio{device="`+g0+`"}`, "0.5")
	b.driver.mu.Lock()
	delete(b.driver.samples, g0)
	b.driver.mu.Unlock()
	eventually(t, "absence", func() error {
		for _, prefix := range []string{"tandem_pod_sm_utilization", "tandem_pod_memory_used", "tandem_device_sm_utilization", "tandem_device_memory_used"} {
			if left := b.series(prefix); len(left) > 0 {
				return fmt.Errorf("%v", left)
			}
		}
		return nil
	})
	b.awaitMetric(podMetric("slots", "train", "main", g0), "3")
	if b.metric(`tandem_agent_sample_errors_total{device="`+g0+`"}`) == "" {
		t.Error("no error is counted")
	}
}

// One container of a pod is told from the other by its container ID; a process whose container is not in the status yet
// is the only holder's.
func TestContainersOfAPodAreToldApart(t *testing.T) {
	devices := []resident{
		{uid: "u", name: "a", deviceID: g0}, {uid: "u", name: "b", deviceID: g0}, {uid: "v", name: "a", deviceID: g0},
	}
	proc := t.TempDir()
	ids := map[string]string{"a": strings.Repeat("a", 64), "b": strings.Repeat("b", 64), "side": strings.Repeat("d", 64)}
	pod := unplaced("p", app(g0, 1))
	pod.UID = "u"
	for name, id := range ids {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: name, ContainerID: "containerd://" + id})
	}
	single := unplaced("q", app(g0, 1))
	single.UID = "v"
	m := &meter{attribution: newAttribution(proc)}
	there := tenancy{pods: tenants(pod, single), residents: devices}
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
		writeProcess(t, proc, pid, "1", "0::"+c.cgroup+"\n")
		if got := m.resident(pid, there); got != c.want {
			t.Errorf("process %d of %s: resident %d, want %d", pid, c.cgroup, got, c.want)
		}
	}
}

// The GPUNode is told of a use that moved far, after the least time between two writes, and of nothing else.
func TestUseIsPublishedWhenItMoved(t *testing.T) {
	drv := &driver{sick: map[string]error{}, gpus: []GPU{gpu(g0, 0, 0), gpu(g1, 1, 1)}}
	b := newBench(t)
	a := b.run() // for its parts; the meter under test is another one
	inv := newInventory(drv.gpus, Config{})
	m := &meter{
		inventory: inv, driver: drv, records: a.binder.records, pods: a.podWatch, attribution: a.attribution, metrics: a.metrics,
		publish: time.Minute, askers: map[string]*asker[sampled]{}, gauge: map[string]*gauge{}, reports: silence, answer: 10 * time.Second,
	}
	now := time.Now()
	round := func(after time.Duration, sm float64) (told bool) {
		t.Helper()
		drv.measure(g0, nvml.Sample{SM: sm, MemoryUsed: 10 * vgpu.GiB})
		noted := inv.notes()
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
		devices, _ := inv.snapshot()
		return devices[0].Usage.SMUtilizationPercent
	}
	if !round(0, 0.5) || percent() != 50 {
		t.Errorf("the first use is not published: %d", percent())
	}
	if devices, _ := inv.snapshot(); devices[1].Usage != nil {
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
	delete(drv.samples, g0)
	drv.mu.Unlock()
	m.measure(t.Context(), now.Add(time.Second))
	if devices, _ := inv.snapshot(); devices[0].Usage == nil {
		t.Error("one sample that failed took the use from the GPUNode")
	}
	m.measure(t.Context(), now.Add(2*time.Minute))
	if devices, _ := inv.snapshot(); devices[0].Usage != nil {
		t.Error("the GPUNode tells a use that nobody has measured for minutes")
	}
}

// A driver that hangs for one device leaves the others measured, and is not asked again meanwhile.
func TestHangingDriverHoldsUpOneDevice(t *testing.T) {
	b := newBench(t)
	drv := &stuck{driver: &driver{sick: map[string]error{}, gpus: []GPU{gpu(g0, 0, 0), gpu(g1, 1, 1)}}, free: make(chan struct{})}
	defer close(drv.free)
	a := b.run()
	drv.measure(g1, nvml.Sample{SM: 0.5})
	m := &meter{
		inventory: newInventory(drv.gpus, Config{}), driver: drv, records: a.binder.records, pods: a.podWatch, attribution: a.attribution,
		metrics: a.metrics, publish: time.Minute, askers: map[string]*asker[sampled]{}, gauge: map[string]*gauge{}, reports: silence, answer: 10 * time.Millisecond,
	}
	for range 3 {
		m.measure(t.Context(), time.Now())
	}
	s := m.snapshot()
	if s.Devices[0].Sample != nil || s.Devices[1].Sample == nil || s.Devices[1].Sample.SM != 0.5 {
		t.Errorf("samples %+v", s.Devices)
	}
	if n := drv.asked.Load(); n != 1 {
		t.Errorf("the driver that hangs was asked %d times, want once", n)
	}
	if got := b.metric(`tandem_agent_sample_errors_total{device="` + g0 + `"}`); got == "" {
		t.Error("no error is counted")
	}
}

// stuck is a driver that does not answer for g0 until free is closed.
type stuck struct {
	*driver
	free  chan struct{}
	asked atomic.Int32
}

func (s *stuck) Sample(id string) (nvml.Sample, error) {
	if id == g0 {
		s.asked.Add(1)
		<-s.free
	}
	return s.driver.Sample(id)
}

// silence is pods that report nothing.
func silence(types.UID) (reported.Rate, bool) { return reported.Rate{}, false }
