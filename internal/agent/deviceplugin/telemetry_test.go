package deviceplugin

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
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
func TestSharesAreReportedFromTheirAllocation(t *testing.T) {
	b := newBench(t)
	b.driver.measure(fixture.G0, nvml.Sample{})
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	b.awaitMetric(podMetric("slots", "train", "main", fixture.G0), "3")
	b.awaitMetric(podMetric("memory_request_bytes", "train", "main", fixture.G0), "1.2884901888e+10")
	b.awaitMetric(podMetric("memory_limit_bytes", "train", "main", fixture.G0), "1.2884901888e+10")
	b.awaitMetric(podMetric("compute_request_ratio", "train", "main", fixture.G0), "0.3")
	b.awaitMetric(podMetric("compute_limit_ratio", "train", "main", fixture.G0), "0.3")
	b.awaitMetric(podMetric("memory_used_bytes", "train", "main", fixture.G0), "0")
	b.awaitMetric(measuredMetric("sm_utilization_ratio", "train", "main", fixture.G0, "measured"), "0")
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("c", 64)
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + id}}
	})
	fixture.WriteProcess(t, filepath.Join(b.dir, "proc"), 100, "1", fmt.Sprintf("0::/kubepods/pod%s/%s\n", pod.UID, id))
	b.driver.measure(fixture.G0, nvml.Sample{MemoryUsed: 3 << 30, SM: 0.5, MemoryBandwidth: 0.25, Temperature: 55, Power: 250, Processes: []nvml.Process{
		{PID: 1, Memory: 2 << 30, Server: true},
		{PID: 100, Memory: 2 << 30, SM: 0.4, MemoryBandwidth: 0.2, Measured: true}, {PID: 999, Memory: 1 << 30, SM: 0.1, Measured: true},
	}})
	b.awaitMetric(measuredMetric("sm_utilization_ratio", "train", "main", fixture.G0, "measured"), "0.4")
	b.awaitMetric(measuredMetric("memory_bandwidth_utilization_ratio", "train", "main", fixture.G0, "measured"), "0.2")
	b.awaitMetric(podMetric("memory_used_bytes", "train", "main", fixture.G0), "2.147483648e+09")
	b.awaitMetric(podMetric("contexts", "train", "main", fixture.G0), "1")
	b.awaitMetric(`tandem_device_contexts{device="`+fixture.G0+`"}`, "2")
	b.awaitMetric(`tandem_device_unattributed_processes{device="`+fixture.G0+`"}`, "1")
	b.awaitMetric(`tandem_device_unattributed_memory_bytes{device="`+fixture.G0+`"}`, "1.073741824e+09")
	b.awaitMetric(`tandem_device_temperature_celsius{device="`+fixture.G0+`"}`, "55")
	b.kubelet.remove(string(pod.UID))
	fixture.Eventually(t, "the end of the series", func() error {
		if left := b.series("tandem_pod_"); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// A figure that the driver does not tell is absent; the agent tells the reserved amounts all the same.
func TestWhatIsNotMeasuredIsAbsent(t *testing.T) {
	b := newBench(t)
	b.driver.measure(fixture.G0, nvml.Sample{SM: 0.5})
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	b.awaitMetric(measuredMetric("sm_utilization_ratio", "train", "main", fixture.G0, "measured"), "0")
	b.awaitMetric(`tandem_device_sm_utilization_ratio{device="`+fixture.G0+`"}`, "0.5")
	b.driver.mu.Lock()
	delete(b.driver.samples, fixture.G0)
	b.driver.mu.Unlock()
	fixture.Eventually(t, "absence", func() error {
		for _, prefix := range []string{"tandem_pod_sm_utilization", "tandem_pod_memory_used", "tandem_device_sm_utilization", "tandem_device_memory_used"} {
			if left := b.series(prefix); len(left) > 0 {
				return fmt.Errorf("%v", left)
			}
		}
		return nil
	})
	b.awaitMetric(podMetric("slots", "train", "main", fixture.G0), "3")
	if b.metric(`tandem_agent_sample_errors_total{device="`+fixture.G0+`"}`) == "" {
		t.Error("no error is counted")
	}
}
