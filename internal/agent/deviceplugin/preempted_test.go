package deviceplugin

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// A pod that is preempted and does not heed SIGTERM works on while its grace lasts, loses its GPU work the margin before
// the kill, and harms nobody: its neighbour's process and MPS server go on, and the preemptor connects. The margin is a
// minute, so that no machine is too slow for it, and the grace two seconds more.
func TestPreemptedPodEndsBeforeSIGKILL(t *testing.T) {
	if os.Getenv(overFakes) == "" {
		rerunOverFakes(t)
		return
	}
	const margin, grace = time.Minute, 62
	b, state, gpus := newFakeBench(t)
	b.config.Termination.Margin = "1m"
	b.run()
	device := gpus[0].UUID
	neighbour := &tenantTruth{name: "neighbour", slots: 4, memory: 1 << 30, sm: 20, bandwidth: 10, arguments: []string{"--in-flight"}}
	victim := &tenantTruth{name: "victim", slots: 6, memory: 1 << 30, sm: 30, bandwidth: 10, arguments: []string{"--in-flight", "--ignore-term"}}
	b.startTenant(neighbour, device, 0)
	b.startTenant(victim, device, 1)
	server := fakegpu.ReadUsage(state, device).Server.PID

	// A preemption first writes a condition, which alone takes nothing from the pod.
	b.kubelet.change(string(victim.pod.UID), func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}}
	})
	told := time.Now()
	b.delete(victim.pod, grace)
	must.OK(t, victim.program.Process.Signal(syscall.SIGTERM))
	kill := time.AfterFunc(grace*time.Second, func() { _ = victim.program.Process.Kill() }) // as the kubelet does
	defer kill.Stop()
	const terminated = 3 // the program's exit status
	var exit *exec.ExitError
	if err := victim.program.Wait(); !errors.As(err, &exit) || exit.ExitCode() != terminated {
		t.Fatalf("the victim's program: %v, want that its work was terminated", err)
	}
	if took := time.Since(told); took < grace*time.Second-margin {
		t.Errorf("the victim's work ended %v after its deletion; it has %d s, and %v of them are the margin", took, grace, margin)
	}
	b.kubelet.remove(string(victim.pod.UID))

	preemptor := &tenantTruth{name: "preemptor", slots: 6, memory: 1 << 30, sm: 30, bandwidth: 10}
	b.startTenant(preemptor, device, 2)
	use := fakegpu.ReadUsage(state, device)
	pids := make([]int, 0, len(use.Clients))
	for _, c := range use.Clients {
		pids = append(pids, c.PID)
	}
	want := []int{neighbour.program.Process.Pid, preemptor.program.Process.Pid}
	slices.Sort(pids)
	slices.Sort(want)
	if use.Server.PID != server || !slices.Equal(pids, want) {
		t.Errorf("server %d serves %v, want server %d and neighbour and preemptor, %v", use.Server.PID, pids, server, want)
	}
	b.awaitMetric(`tandem_agent_clients_ended_total{cause="termination"}`, "1")

	// A kill that nobody foresees is a fault of all: the result above is no property of the stand-in.
	must.OK(t, neighbour.program.Process.Kill())
	_ = neighbour.program.Wait() // it was killed
	const broken = 4             // the program's exit status
	if err := preemptor.program.Wait(); !errors.As(err, &exit) || exit.ExitCode() != broken {
		t.Errorf("the program beside one that was killed: %v, want that a fault ended it", err)
	}
}
