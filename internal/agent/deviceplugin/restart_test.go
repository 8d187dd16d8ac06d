package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestAgentRegistersBeforeAnythingElseIsReady(t *testing.T) {
	b := newBench(t)
	b.mps.set(fixture.G0, errors.New("no MPS here"))
	b.mps.set(fixture.G1, errors.New("no MPS here"))
	b.run()
	if !b.kubelet.options.PreStartRequired || !b.kubelet.options.GetPreferredAllocationAvailable {
		t.Errorf("options %v, want both", b.kubelet.options)
	}
	for _, page := range []string{"/healthz", "/readyz"} {
		if code, body := b.get(page); code != 200 {
			t.Errorf("%s: %d %s", page, code, body)
		}
	}
	for _, d := range b.kubelet.watched() {
		device, _, _ := allocation.ParseSlotID(d.ID)
		want := map[string]int64{fixture.G0: 0, fixture.G1: 1}[device]
		if len(d.Topology.GetNodes()) != 1 || d.Topology.Nodes[0].ID != want {
			t.Errorf("slot %s has topology %v, want NUMA node %d", d.ID, d.Topology, want)
		}
	}
}

func TestAgentWaitsForTheKubelet(t *testing.T) {
	b := newBench(t)
	b.kubelet.stop()
	b.launch()
	if code, body := b.get("/readyz"); code != 503 || !strings.Contains(body, "kubelet") {
		t.Errorf("/readyz without a kubelet: %d %s", code, body)
	}
	b.kubelet.start()
	b.kubelet.awaitSlots(20, 0)
}

func TestKubeletRestart(t *testing.T) {
	b := newBench(t)
	a := b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	before, err := b.spec(pod, "main")
	must.OK(t, err)
	for i := range 3 {
		// The kubelet has the slots before the agent has its answer, which the agent must have before the kubelet stops.
		b.awaitMetric("tandem_agent_registrations_total", strconv.Itoa(i+1))
		b.kubelet.stop()
		start := time.Now()
		b.kubelet.start()
		b.kubelet.awaitSlots(20, 0)
		t.Logf("the kubelet had no slots for %v: pods that are admitted meanwhile are rejected for good", time.Since(start))
	}
	fixture.Eventually(t, "ready", a.ready)
	after, err := b.spec(pod, "main")
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("spec: %v (-before +after):\n%s", err, diff)
	}
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Errorf("the container starts again: %v", err)
	}
	seen := map[string]bool{}
	for _, endpoint := range b.kubelet.registrations {
		if seen[endpoint] {
			t.Errorf("endpoint %s was registered twice: a kubelet that missed the end of the first refuses it", endpoint)
		}
		seen[endpoint] = true
	}
	b.awaitMetric("tandem_agent_registrations_total", "4")
}

// A socket that vanishes is there again, and the kubelet's connection over the old one goes on.
func TestOwnSocketVanishes(t *testing.T) {
	b := newBench(t)
	b.run()
	path := filepath.Join(b.kubelet.pluginDir(), b.kubelet.registrations[0])
	must.OK(t, os.Remove(path))
	fixture.Eventually(t, "socket", func() error { _, err := os.Stat(path); return err })
	b.kubelet.admit(fixture.Placed(t, "train", fixture.App(fixture.G0, 1)))
	if n := b.kubelet.registered(); n != 1 {
		t.Errorf("%d registrations, want 1: the kubelet never lost the agent", n)
	}
}

func TestAgentRestart(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	late := fixture.Placed(t, "late", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	b.kubelet.admit(late)
	must.OK(t, b.kubelet.begin(pod, "main"))
	before, err := b.spec(pod, "main")
	must.OK(t, err)
	if err := b.stop(); err != nil {
		t.Fatalf("the agent ends with %v", err)
	}
	if after, err := b.spec(pod, "main"); err != nil || cmp.Diff(before, after) != "" {
		t.Errorf("the spec does not outlive the agent: %v", err)
	}
	b.run()
	for _, p := range []*v1.Pod{pod, late} { // one starts again, the other was admitted under the agent before
		if err := b.kubelet.begin(p, "main"); err != nil {
			t.Error(err)
		}
	}
	if got := b.visible(late, "main"); got != fixture.G0 {
		t.Errorf("late sees %s, want %s", got, fixture.G0)
	}
	b.awaitMetric(`tandem_agent_slots{device="`+fixture.G1+`",state="held"}`, "3")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
}

// The folder of specs is gone after a reboot; containers that had started find theirs again.
func TestSpecsAreRestored(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	before, err := b.spec(pod, "main")
	must.OK(t, err)
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	})
	must.OK(t, errors.Join(b.stop(), os.RemoveAll(b.cdiDir())))
	b.run()
	fixture.Eventually(t, "spec", func() error {
		after, err := b.spec(pod, "main")
		if err == nil && cmp.Diff(before, after) != "" {
			err = errors.New(cmp.Diff(before, after))
		}
		return err
	})
}

func TestOwnCheckpointCorrupt(t *testing.T) {
	for name, content := range map[string]string{
		"not JSON": "{", "empty": "", "no checksum": `{"version":1,"data":{"names":{},"grants":{}}}`,
		"a later version": `{"version":2,"checksum":"","data":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.run()
			first := fixture.Placed(t, "first", fixture.App(fixture.G0, 6))
			b.kubelet.admit(first)
			must.OK(t, b.kubelet.begin(first, "main"))
			path := filepath.Join(b.stateDir(), "checkpoint.json")
			must.OK(t, errors.Join(b.stop(), os.WriteFile(path, []byte(content), 0o600)))
			b.run()
			if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) != 1 {
				t.Errorf("moved aside: %v, want one file", aside)
			}
			b.awaitMetric(`tandem_agent_checkpoint_errors_total{owner="agent"}`, "1")
			// The agent knows the grant of the first pod again: 6 + 5 of 10 do not fit.
			second := fixture.Placed(t, "second", fixture.App(fixture.G0, 5))
			b.kubelet.admit(second)
			if err := b.kubelet.begin(second, "main"); err == nil || !strings.Contains(err.Error(), "does not fit") {
				t.Errorf("a pod beside the one that was granted before: %v, want a refusal", err)
			}
		})
	}
}

// An agent that moved a corrupt checkpoint aside and found no room for the next leaves none: that is no fresh node.
func TestOwnCheckpointMovedAside(t *testing.T) {
	b := newBench(t)
	b.run()
	first := fixture.Placed(t, "first", fixture.App(fixture.G0, 6))
	b.kubelet.admit(first)
	must.OK(t, b.kubelet.begin(first, "main"))
	path := filepath.Join(b.stateDir(), "checkpoint.json")
	must.OK(t, errors.Join(b.stop(), os.Rename(path, path+".corrupt-20260101T000000")))
	b.run()
	b.awaitMetric(`tandem_agent_checkpoint_errors_total{owner="agent"}`, "1")
	second := fixture.Placed(t, "second", fixture.App(fixture.G0, 5))
	b.kubelet.admit(second)
	if err := b.kubelet.begin(second, "main"); err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("a pod beside the one that was granted before: %v, want a refusal", err)
	}
}

// Without the kubelet's checkpoint app containers start by pod-resources; init containers, which it does not list, do not.
func TestKubeletCheckpointCorrupt(t *testing.T) {
	b := newBench(t)
	b.timing.grace = fixture.TooLong // on a slow disk it passes between an allocation and the kubelet's checkpoint, and the names are forgotten
	b.run()
	pod := fixture.Placed(t, "train",
		fixture.Want{Name: "fetch", Kind: vgpu.Init, Devices: []string{fixture.G0}, Slots: 1},
		fixture.Want{Name: "main", Kind: vgpu.App, Devices: []string{fixture.G1}, Slots: 3})
	b.kubelet.admit(pod)
	must.OK(t, os.WriteFile(b.kubelet.checkpointPath(), []byte(`{"Data":{},"Checksum":1}`), 0o600))
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Errorf("app container: %v", err)
	} else if got := b.visible(pod, "main"); got != fixture.G1 {
		t.Errorf("main sees %s, want %s", got, fixture.G1)
	}
	if err := b.kubelet.begin(pod, "fetch"); err == nil || !strings.Contains(err.Error(), "checkpoint is unreadable") {
		t.Errorf("init container: %v, want a refusal that says why", err)
	}
	b.kubelet.mu.Lock()
	b.kubelet.writeCheckpoint()
	b.kubelet.mu.Unlock()
	if err := b.kubelet.begin(pod, "fetch"); err != nil {
		t.Errorf("init container after the kubelet has written again: %v", err)
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	b := newBench(t)
	b.run()
	second := b.agent()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.TooLong) // an agent that is let in runs until then
	defer cancel()
	err := second.Run(ctx)
	for _, text := range []string{"another agent", fmt.Sprint(os.Getpid()), lockFile} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the second agent: %v, want a message that says %q", err, text)
		}
	}
	must.OK(t, b.stop())
	b.run() // the lock is free again
}

func TestSpecsGoWithTheirPod(t *testing.T) {
	b := newBench(t)
	b.timing.grace = 300 * time.Millisecond
	b.run()
	keep, drop := fixture.Placed(t, "keep", fixture.App(fixture.G0, 3)), fixture.Placed(t, "drop", fixture.App(fixture.G1, 3))
	for _, pod := range []*v1.Pod{keep, drop} {
		b.kubelet.admit(pod)
		must.OK(t, b.kubelet.begin(pod, "main"))
	}
	gone := time.Now()
	b.kubelet.remove(string(drop.UID))
	fixture.Eventually(t, "removal", func() error {
		_, err := b.spec(drop, "main")
		return absent(err)
	})
	if after := time.Since(gone); after < b.timing.grace {
		t.Errorf("removed after %v, want not before %v", after, b.timing.grace)
	}
	if _, err := b.spec(keep, "main"); err != nil {
		t.Errorf("spec of the pod that runs: %v", err)
	}
	b.awaitMetric("tandem_agent_cdi_specs", "1")
	b.awaitMetric(`tandem_agent_slots{device="`+fixture.G1+`",state="free"}`, "10")
}

// While the kubelet does not answer nothing is removed.
func TestSpecsStayWhileTheKubeletIsAway(t *testing.T) {
	b := newBench(t)
	a := b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	b.kubelet.stop()
	fixture.Eventually(t, "the end of the watch", func() error {
		if _, _, err := a.podWatch.Snapshot(); err == nil {
			return errors.New("the pods are known")
		}
		return nil
	})
	s := a.sweeper()
	for range 3 {
		if _, err := s.Sweep(t.Context(), time.Now().Add(time.Hour)); err == nil {
			t.Error("a round without the kubelet's pods: no error")
		}
	}
	if _, err := b.spec(pod, "main"); err != nil {
		t.Errorf("spec: %v", err)
	}
}

func TestDriftIsSeen(t *testing.T) {
	b := newBench(t)
	b.run()
	pods := []*v1.Pod{fixture.Placed(t, "one", fixture.App(fixture.G0, 3)), fixture.Placed(t, "two", fixture.App(fixture.G1, 3))}
	for _, pod := range pods {
		b.kubelet.admit(pod)
		must.OK(t, b.kubelet.begin(pod, "main"))
	}
	b.awaitMetric("tandem_agent_cdi_specs", "2")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
	path := filepath.Join(b.cdiDir(), "tandem-gpu.io-vgpu_"+b.kubelet.cdiName(pods[0], "main")+".json")
	sound, err := os.ReadFile(path)
	must.OK(t, err)
	cases := map[string][2]string{
		"another device":   {fixture.G0, fixture.G1},
		"more memory":      {"=12288M", "=40960M"},
		"more compute":     {"PERCENTAGE=30", "PERCENTAGE=90"},
		"another file":     {"nvidia5", "nvidia3"},
		"another owner":    {`"tandem-gpu.io/pod-uid":"uid-one"`, `"tandem-gpu.io/pod-uid":"uid-two"`},
		"another mount":    {`"hostPath":"/run/mps/` + fixture.G0, `"hostPath":"/run/mps/` + fixture.G1},
		"another pipe":     {"/run/mps/" + fixture.G0, "/run/mps/" + fixture.G1},
		"a device too few": {"CUDA_VISIBLE_DEVICES=" + fixture.G0, "CUDA_VISIBLE_DEVICES="},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			broken := strings.ReplaceAll(string(sound), c[0], c[1])
			if broken == string(sound) {
				t.Fatalf("%s does not hold %s", sound, c[0])
			}
			must.OK(t, os.WriteFile(path, []byte(broken), 0o600))
			b.awaitMetric("tandem_agent_assignment_drift", "1")
			must.OK(t, os.WriteFile(path, sound, 0o600))
			b.awaitMetric("tandem_agent_assignment_drift", "0")
		})
	}
}
