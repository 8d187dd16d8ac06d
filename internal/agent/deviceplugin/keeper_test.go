package deviceplugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// awaitDevice waits until the GPUNode shows a device as wanted.
func (b *bench) awaitDevice(id, what string, holds func(v1alpha1.GPUDevice) bool) v1alpha1.GPUDevice {
	b.t.Helper()
	var found v1alpha1.GPUDevice
	fixture.Eventually(b.t, what, func() error {
		g, err := b.gpuNode()
		if err != nil {
			return err
		}
		for _, d := range g.Status.Devices {
			if found = d; d.ID == id && holds(d) {
				return nil
			}
		}
		return fmt.Errorf("devices %+v", g.Status.Devices)
	})
	return found
}

func (b *bench) awaitReason(id, reason string) v1alpha1.GPUDevice {
	b.t.Helper()
	return b.awaitDevice(id, reason, func(d v1alpha1.GPUDevice) bool { return d.Reason == reason })
}

func (b *bench) awaitCondition(kind, reason string) metav1.Condition {
	b.t.Helper()
	var c *metav1.Condition
	fixture.Eventually(b.t, "condition", func() error {
		g, err := b.gpuNode()
		if err != nil {
			return err
		}
		if c = meta.FindStatusCondition(g.Status.Conditions, kind); c == nil || c.Reason != reason {
			return fmt.Errorf("condition %+v, want %s for %s", c, kind, reason)
		}
		return nil
	})
	return *c
}

func TestXIDFlipsOneDevice(t *testing.T) {
	b := newBench(t)
	b.api()
	b.timing.health = time.Hour // events must not wait for a look
	b.run()
	b.driver.want(fixture.G1, health.RecoveryReset)
	b.driver.log(t, health.XID{Device: fixture.G1, Number: 31, Class: health.XIDApplication})
	b.driver.log(t, health.XID{Device: fixture.G1, Number: 48, Class: health.XIDReset, Label: "reset"})
	b.kubelet.awaitSlots(10, 10)
	d := b.awaitReason(fixture.G1, "XID48")
	if d.Health != v1alpha1.Unhealthy || !strings.Contains(d.Message, "XID 48 (reset)") {
		t.Errorf("device %+v", d)
	}
	c := b.awaitCondition(v1alpha1.ConditionDevicesHealthy, v1alpha1.DevicesSick)
	if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "g1 ("+fixture.G1+"): XID48") {
		t.Errorf("condition %+v", c)
	}
	b.awaitMetric(`tandem_device_xid_errors_total{class="application",device="`+fixture.G1+`"}`, "1")
	b.awaitMetric(`tandem_device_health{device="`+fixture.G1+`",state="sick"}`, "1")
	b.awaitMetric(`tandem_device_health{device="`+fixture.G0+`",state="healthy"}`, "1")
}

func TestXIDIsOverWhenTheDriverIsContent(t *testing.T) {
	b := newBench(t)
	b.api()
	b.driver.want(fixture.G1, health.RecoveryNone)
	b.run()
	b.driver.want(fixture.G1, health.RecoveryReset) // before the error: else the device may be well again before it is seen sick
	b.driver.log(t, health.XID{Device: fixture.G1, Number: 48, Class: health.XIDReset})
	b.awaitReason(fixture.G1, "XID48")
	b.driver.want(fixture.G1, health.RecoveryNone)
	b.kubelet.awaitSlots(20, 0)
	b.awaitCondition(v1alpha1.ConditionDevicesHealthy, v1alpha1.DevicesAllHealthy)
	b.mps.change(func() {
		if b.mps.recycled[fixture.G1] == 0 || b.mps.recycled[fixture.G0] != 0 {
			t.Errorf("recycled %v, want g1 only", b.mps.recycled)
		}
	})
	if n := b.metric(`tandem_device_recycles_total{device="` + fixture.G1 + `",reason="XID48"}`); n == "" || n == "0" {
		t.Errorf("recycles counted: %q", n)
	}
}

// A storm costs a few updates of the kubelet and writes of the GPUNode, and the device heals afterwards. On a busy machine the storm
// pauses for longer than the hold time of the tests: the device then takes work in between, and falls ill once more.
func TestXIDStorm(t *testing.T) {
	b := newBench(t)
	client := b.api()
	b.run()
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll)
	updates := b.kubelet.told()
	client.ClearActions()
	const storm = 20000
	start := time.Now()
	for i := range uint64(storm) {
		b.driver.log(t, health.XID{Device: fixture.G1, Number: 60 + i%8, Class: health.XIDClass(i % 3)})
	}
	t.Logf("%d errors in %v", storm, time.Since(start))
	b.kubelet.awaitSlots(20, 0)
	times := 1 // how often the device fell ill: each time MPS is replaced
	b.mps.change(func() { times = max(times, b.mps.recycled[fixture.G1]) })
	if times > 10 { // the hold time doubles with each: ten recoveries take 20 s
		t.Errorf("the device was tried again %d times", times)
	}
	if n := b.kubelet.told() - updates; n > 4*times { // sick, recovering, healthy, and what coincided
		t.Errorf("%d updates of the kubelet in %d recoveries", n, times)
	}
	writes := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "update" {
			writes++
		}
	}
	if writes > 6*times {
		t.Errorf("%d writes of the GPUNode in %d recoveries", writes, times)
	}
}

func TestFaultIsDrainedAndRecycled(t *testing.T) {
	for name, spoil := range map[string]func(*mpsFake){
		"MPSFault":  func(m *mpsFake) { m.fault[fixture.G1] = true },
		"MPSWedged": func(m *mpsFake) { m.canary[fixture.G1] = sharing.ErrWedged },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.api()
			b.mps.clients = map[string][]int{fixture.G0: {10}, fixture.G1: {11, 12}}
			b.run()
			let := b.mps.hold(fixture.G1)
			b.mps.change(func() { spoil(b.mps) })
			b.kubelet.awaitSlots(10, 10)
			let()
			b.kubelet.awaitSlots(20, 0)
			b.mps.change(func() {
				ended := b.mps.ended[fixture.G1]
				slices.Sort(ended)
				if !slices.Equal(ended, []int{11, 12}) || len(b.mps.ended[fixture.G0]) != 0 || b.mps.recycled[fixture.G1] != 1 || b.mps.recycled[fixture.G0] != 0 {
					t.Errorf("ended %v, recycled %v, want g1's clients and g1", b.mps.ended, b.mps.recycled)
				}
			})
			b.awaitMetric(`tandem_device_recycles_total{device="`+fixture.G1+`",reason="`+name+`"}`, "1")
			b.awaitMetric(`tandem_agent_clients_ended_total{cause="drain"}`, "2")
		})
	}
}

// Clients that cannot be ended lose their server in the end: they hold up everybody.
func TestStubbornClientsLoseTheirServer(t *testing.T) {
	b := newBench(t)
	b.run()
	let := b.mps.hold(fixture.G1)
	b.mps.change(func() {
		b.mps.clients[fixture.G1], b.mps.stubborn[fixture.G1], b.mps.canary[fixture.G1] = []int{11}, true, sharing.ErrWedged
	})
	b.kubelet.awaitSlots(10, 10)
	let()
	b.kubelet.awaitSlots(20, 0)
}

func TestResidentsAreLeftIfConfigured(t *testing.T) {
	b := newBench(t)
	b.api()
	b.config.Health.Residents = "leave"
	b.timing.drainAfter = 0
	b.mps.clients = map[string][]int{fixture.G1: {11}}
	b.run()
	b.mps.change(func() { b.mps.canary[fixture.G1] = sharing.ErrWedged })
	d := b.awaitReason(fixture.G1, "MPSWedged")
	if !strings.Contains(d.Message, "health.residents is leave") {
		t.Errorf("message %q does not say what is waited for", d.Message)
	}
	probes := func() (n int) { b.mps.change(func() { n = b.mps.probes[fixture.G1] }); return n }
	before := probes()
	fixture.Eventually(t, "more looks", func() error {
		if probes() < before+5 {
			return errors.New("few looks")
		}
		return nil
	})
	b.mps.change(func() {
		if b.mps.recycled[fixture.G1] != 0 || len(b.mps.ended[fixture.G1]) != 0 {
			t.Errorf("recycled %v, ended %v under a resident that is to be left", b.mps.recycled, b.mps.ended)
		}
		b.mps.clients[fixture.G1] = nil
	})
	b.kubelet.awaitSlots(20, 0)
}

func TestDaemonThatHangsIsReplaced(t *testing.T) {
	b := newBench(t)
	b.api()
	b.run()
	b.mps.change(func() {
		b.mps.down[fixture.G1], b.mps.lasting[fixture.G1] = fmt.Errorf("get_server_list: %w", sharing.ErrNoAnswer), errors.New("process 7 does not end")
	})
	b.awaitReason(fixture.G1, "MPSNotAnswering")
	b.kubelet.awaitSlots(10, 10) // the kubelet may hear of the sickness later than the API server
	b.mps.change(func() { delete(b.mps.lasting, fixture.G1) })
	b.kubelet.awaitSlots(20, 0)
	b.mps.change(func() {
		if b.mps.recycled[fixture.G1] == 0 || b.mps.recycled[fixture.G0] != 0 {
			t.Errorf("recycled %v, want g1 only", b.mps.recycled)
		}
	})
}

// A driver that gives no answer about one device makes that one sick and holds up no other.
func TestDriverThatHangsHoldsUpOneDevice(t *testing.T) {
	b := newBench(t)
	b.api()
	b.run()
	hang := make(chan struct{})
	b.driver.mu.Lock()
	b.driver.hangs[fixture.G1] = hang
	b.driver.mu.Unlock()
	b.driver.set(fixture.G0, &inventory.Sickness{Reason: string(nvml.Lost), Message: "gone"})
	b.awaitReason(fixture.G0, string(nvml.Lost))
	close(hang)
	b.driver.set(fixture.G0, nil)
	b.kubelet.awaitSlots(20, 0)
}

func TestSilentDriverMakesUnhealthy(t *testing.T) {
	b := newBench(t)
	b.api()
	b.timing.driver = 2 * time.Second // a busy machine needs a part of it
	b.run()
	hang := make(chan struct{})
	b.driver.mu.Lock()
	b.driver.hangs[fixture.G1] = hang
	b.driver.mu.Unlock()
	b.awaitReason(fixture.G1, "DriverNotAnswering")
	b.driver.mu.Lock()
	delete(b.driver.hangs, fixture.G1)
	b.driver.mu.Unlock()
	close(hang)
	b.kubelet.awaitSlots(20, 0)
	b.mps.change(func() {
		if b.mps.recycled[fixture.G1] != 0 {
			t.Error("a driver that was slow costs nobody his server")
		}
	})
}

func TestMonitoredIsReportedApart(t *testing.T) {
	b := newBench(t)
	b.api()
	b.mps.canary[fixture.G1] = sharing.ErrUnwatched
	b.run()
	fixture.Eventually(t, "condition that names g1 alone", func() error { // g0 is named too until it is tried first
		c := b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredNoCUDA)
		if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, fixture.G1) || strings.Contains(c.Message, fixture.G0) {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	b.kubelet.awaitSlots(20, 0)
	b.awaitMetric(`tandem_device_monitored{device="`+fixture.G1+`"}`, "0")
	b.awaitMetric(`tandem_device_monitored{device="`+fixture.G0+`"}`, "1")
	b.mps.change(func() { delete(b.mps.canary, fixture.G1) })
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll)
}

func TestDriverWithoutEventsIsSaid(t *testing.T) {
	b := newBench(t)
	b.api()
	b.driver.noEvents = errors.New("not supported")
	b.run()
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredNoEvents)
	b.driver.mu.Lock()
	b.driver.noEvents = nil
	b.driver.mu.Unlock()
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll)
}

// A canary that was turned away because the device is full says nothing; it is not even tried.
func TestFullDeviceIsNotProbed(t *testing.T) {
	b := newBench(t)
	b.driver.gpus[0].Contexts = 2 // g1
	b.mps.clients[fixture.G1] = []int{11, 12}
	b.api()
	b.run()
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredNotYet)
	b.awaitDevice(fixture.G1, "contexts", func(d v1alpha1.GPUDevice) bool { return d.ContextsUsed == 2 && d.Contexts == 2 })
	b.mps.change(func() {
		if b.mps.probes[fixture.G1] != 0 {
			t.Errorf("%d probes of a full device", b.mps.probes[fixture.G1])
		}
		b.mps.clients[fixture.G1] = []int{11}
	})
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll)
}

func TestStartWaitsForAContext(t *testing.T) {
	t.Parallel() // it waits
	b := newBench(t)
	b.timing.sharingWait = shortWait
	b.driver.gpus[0].Contexts = 3
	b.mps.clients[fixture.G1] = []int{11, 12, 13}
	b.run()
	b.awaitMPS()
	pod, other := fixture.Placed(t, "train", fixture.App(fixture.G1, 3)), fixture.Placed(t, "other", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	b.kubelet.admit(other)
	err := b.kubelet.begin(pod, "main")
	for _, text := range []string{"team/train", "g1", "contexts are in use: 3 of 3", "delete the pod"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("start on a full device: %v, want a refusal that says %q", err, text)
		}
	}
	b.awaitMetric(`tandem_agent_prestart_failures_total{reason="ContextsExhausted"}`, "1")
	b.begins("the other device", other)
	b.mps.change(func() { b.mps.clients[fixture.G1] = []int{11, 12} })
	b.begins("after a client has ended", pod)
}

// On a device that a container has by itself a canary would start a server, which takes of its memory.
func TestWholeDeviceIsNotProbed(t *testing.T) {
	b := newBench(t)
	b.api()
	b.run()
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll)
	b.started("whole", fixture.App(fixture.G1, 10))
	probes := func(id string) (n int) { b.mps.change(func() { n = b.mps.probes[id] }); return n }
	before, others := probes(fixture.G1), probes(fixture.G0)
	fixture.Eventually(t, "probes of the other device", func() error {
		if probes(fixture.G0) < others+5 {
			return errors.New("few")
		}
		return nil
	})
	if n := probes(fixture.G1) - before; n > 1 { // one may have been under way
		t.Errorf("%d probes", n)
	}
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll)
	b.driver.set(fixture.G1, &inventory.Sickness{Reason: string(nvml.NotAnswering), Message: "for a moment"})
	b.kubelet.awaitSlots(10, 10)
	b.driver.set(fixture.G1, nil)
	b.kubelet.awaitSlots(20, 0)
	b.kubelet.change("uid-whole", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	before = probes(fixture.G1)
	fixture.Eventually(t, "probes after its end", func() error {
		if probes(fixture.G1) <= before {
			return errors.New("none")
		}
		return nil
	})
}

// A daemon that ended is started again at the next look, and counted.
func TestDaemonThatEndedIsStartedAgain(t *testing.T) {
	b := newBench(t)
	b.run()
	fixture.Eventually(t, "MPS", func() error { return b.mps.Ready(t.Context(), fixture.G1) })
	probes := func() (n int) { b.mps.change(func() { n = b.mps.probes[fixture.G1] }); return n }
	fixture.Eventually(t, "a look", func() error {
		if probes() == 0 {
			return errors.New("none")
		}
		return nil
	})
	b.mps.change(func() { b.mps.ensured[fixture.G1] = 0 })
	b.awaitMetric(`tandem_device_recycles_total{device="`+fixture.G1+`",reason="MPSNotRunning"}`, "1")
	b.kubelet.awaitSlots(20, 0)
	if b.metric(`tandem_device_recycles_total{device="`+fixture.G0+`",reason="MPSNotRunning"}`) != "" {
		t.Error("the first start of a daemon counts as a recycle")
	}
}

// The GPUNode catches up with the number of clients, also with one that changed too soon after the last writing.
func TestContextsAreWrittenInTheEnd(t *testing.T) {
	b := newBench(t)
	b.api()
	b.timing.announce = 200 * time.Millisecond
	b.run()
	for n := range 5 {
		b.mps.change(func() { b.mps.clients[fixture.G1] = []int{11, 12, 13, 14}[:n:n] })
		b.awaitDevice(fixture.G1, "contexts", func(d v1alpha1.GPUDevice) bool { return int(d.ContextsUsed) == n })
	}
}
