package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// xid: an error that asks for a reset takes all slots of its GPU and no other, and they come back after the reset.
func xid(n *Tenant) {
	broken := uuid(0)
	pods := n.working(6, 6)
	others := n.witness(n.on(broken, pods, false))
	n.must(fakegpu.Update(n.layout.state(), func(s *fakegpu.State) {
		d, _ := s.Find(broken)
		d.RecoveryAction = 1 // reset
		s.Events = append(s.Events, fakegpu.Event{UUID: broken, XID: 95})
	}))
	struck := time.Now()
	n.t.Cleanup(func() { n.reset(broken) })
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	n.must(poll(ctx, "the loss of the slots", func(context.Context) error {
		return n.healthySlots(map[string]int{uuid(1): slotsPerGPU})
	}))
	n.t.Logf("the kubelet knew after %.1f s", time.Since(struck).Seconds())
	n.t.Logf("the GPUNode says: %s", n.sick(broken, "XID95"))
	others.undisturbed()
	n.reset(broken)
	n.recovered(broken)
	for _, pod := range n.on(broken, pods, true) {
		n.works(pod)
	}
	others.undisturbed()
	n.noDrift()
}

// reset does what an operator does with a GPU that asks for it.
func (n *Tenant) reset(uuid string) {
	if err := fakegpu.Update(n.layout.state(), func(s *fakegpu.State) {
		d, _ := s.Find(uuid)
		d.RecoveryAction = 0
	}); err != nil {
		n.t.Error(err)
	}
}

// fault: a client breaks the server of its GPU, and one that does not notice keeps it from recovering by itself.
func fault(n *Tenant) {
	broken := uuid(0)
	pods := n.working(6, 6)
	others := n.witness(n.on(broken, pods, false))
	before := n.recycles(broken)
	deaf, err := fakegpu.Dial(n.t.Context(), pipeDir(broken), fakegpu.ClientLoad{})
	n.must(err)
	n.t.Cleanup(deaf.Close)
	guilty, err := fakegpu.Dial(n.t.Context(), pipeDir(broken), fakegpu.ClientLoad{})
	n.must(err)
	n.t.Cleanup(guilty.Close)
	n.must(guilty.Fault())
	n.t.Logf("the GPUNode says: %s", n.sick(broken, "MPSFault"))
	n.recovered(broken)
	if after := n.recycles(broken); after != before+1 {
		n.t.Errorf("MPS of the device was replaced %v times, want once", after-before)
	}
	for _, pod := range n.on(broken, pods, true) {
		n.works(pod) // in its second life
	}
	others.undisturbed()
	n.noDrift()
}

// recycles reads how often MPS of a device was replaced.
func (n *Tenant) recycles(uuid string) float64 {
	n.t.Helper()
	times, err := n.agentMetric(n.t.Context(), "tandem_device_recycles_total", uuid)
	n.must(err)
	return times
}

// wedge: a server answers every command and serves nobody new. Users report that of servers whose client was killed at
// work; here it is ordered.
func wedge(n *Tenant) {
	broken := uuid(0)
	pods := n.working(6, 6)
	others := n.witness(n.on(broken, pods, false))
	before := n.recycles(broken)
	n.must(n.orderWedge(broken, true))
	n.t.Cleanup(func() {
		if err := n.orderWedge(broken, false); err != nil {
			n.t.Error(err)
		}
	})
	n.wedged(broken)
	n.t.Logf("the GPUNode says: %s", n.sick(broken, "MPSWedged"))
	n.recovered(broken)
	if after := n.recycles(broken); after != before+1 {
		n.t.Errorf("MPS of the device was replaced %v times, want once", after-before)
	}
	for _, pod := range n.on(broken, pods, true) {
		n.works(pod)
	}
	others.undisturbed()
	n.noDrift()
}

// orderWedge gives the daemon of a device the order to wedge its server, or withdraws it. A server that is wedged stays so.
func (n *Tenant) orderWedge(uuid string, wedge bool) error {
	return fakegpu.Update(n.layout.state(), func(s *fakegpu.State) {
		d, _ := s.Find(uuid)
		d.MPS.Wedge = wedge
	})
}

// upgradeUnderLoad: the agent is killed, and later replaced by another binary, while eight pods work.
func upgradeUnderLoad(n *Tenant) {
	pods := n.working(2, 2, 2, 2, 2, 2, 2, 2)
	all := n.witness(pods)
	daemons := n.mpsPIDs()
	n.must(n.copyProgram("tandem-device-plugin", "tandem-device-plugin-next"))
	for _, way := range []struct {
		name    string
		grace   time.Duration
		program string
	}{
		{"killed", 0, "tandem-device-plugin"},
		{"upgraded", patience, "tandem-device-plugin-next"},
		{"killed and upgraded", 0, "tandem-device-plugin"},
	} {
		n.agent.Stop(way.grace)
		n.must(n.startAgentFrom(way.program))
		ctx, cancel := context.WithTimeout(n.t.Context(), patience)
		defer cancel()
		n.must(poll(ctx, "a registered agent", n.registered))
		n.must(n.awaitSlots(ctx))
		n.must(poll(ctx, "a GPUNode that is ready", func(ctx context.Context) error { return n.gpuNodeReady(ctx, true) }))
		if diff := cmp.Diff(daemons, n.mpsPIDs()); diff != "" {
			n.t.Errorf("agent %s: MPS was not adopted (-before +after):\n%s", way.name, diff)
		}
		all.undisturbed()
		n.noDrift()
	}
	n.t.Logf("%d pods on %v", len(pods), slices.Sorted(maps.Keys(daemons)))
}

func (n *Tenant) copyProgram(from, to string) error {
	content, err := os.ReadFile(n.layout.bin(from))
	if err != nil {
		return err
	}
	return os.WriteFile(n.layout.bin(to), content, 0o755) //nolint:gosec // it is a program
}

// kubeletRestartInit: a restart of the kubelet finds one pod whose init container has ended and one whose has not.
func kubeletRestartInit(n *Tenant) {
	const waits = tell + "sleep 10" // about as long as the restart takes; it does not matter which is first
	done, begun := newPod("done", work(3)), newPod("begun", work(3))
	done.Spec.InitContainers = []v1.Container{initShare("prepare", 5)}
	begun.Spec.InitContainers = []v1.Container{initShare("prepare", 5)}
	begun.Spec.InitContainers[0].Command = []string{"sh", "-c", waits}
	n.create(done)
	done = n.running("done")[0]
	n.works(done)
	before := n.witness([]*v1.Pod{done})
	n.create(begun)
	n.await("the init container of pod begun", func(ctx context.Context) error {
		pod, err := n.pods.Get(ctx, "begun", metav1.GetOptions{})
		// On a busy machine it may have ended before the kubelet tells that it runs.
		if err == nil && (len(pod.Status.InitContainerStatuses) == 0 || pod.Status.InitContainerStatuses[0].State.Running == nil && pod.Status.InitContainerStatuses[0].State.Terminated == nil) {
			err = errors.New("it has not begun")
		}
		return err
	})
	n.kubelet.Stop(0)
	n.must(n.startKubelet())
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*patience)
	defer cancel()
	n.must(poll(ctx, "a registered agent", n.registered))
	n.must(n.awaitSlots(ctx))
	begun = n.running("begun")[0]
	n.works(begun)
	n.checkShares(begun)
	before.undisturbed()
	n.noDrift()
}

// hangingPod ignores SIGTERM and works until it is killed.
func hangingPod(name string, grace int64) *v1.Pod {
	pod := newPod(name, work(6, "--ignore-term"))
	pod.Spec.TerminationGracePeriodSeconds = &grace
	return pod
}

// eviction: a pod that hangs at its end is taken from the GPU before the kubelet kills it, so its neighbours work on.
// Without that the kill is a fault of all.
func eviction(n *Tenant) {
	n.create(hangingPod("hangs", 5))
	hanging := n.running("hangs")[0]
	n.works(hanging)
	device := n.device(hanging)
	n.create(newPod("neighbour", work(4)))
	neighbour := n.running("neighbour")[0]
	n.works(neighbour)
	if n.device(neighbour) != device {
		n.t.Fatalf("the neighbour is on %s, want %s", n.device(neighbour), device)
	}
	beside := n.witness([]*v1.Pod{neighbour})
	daemons := n.mpsOf(device)
	n.delete("hangs")
	n.must(connects(n.t.Context(), device, patience))
	beside.undisturbed()

	// The same without an agent, which is the one that ends clients. One client does not notice what happens to it, so
	// that the server cannot recover by itself before the agent is back.
	n.create(hangingPod("hangs", 2))
	hanging = n.running("hangs")[0]
	n.works(hanging)
	if n.device(hanging) != device {
		n.t.Fatalf("the pod that hangs is on %s, want %s", n.device(hanging), device)
	}
	n.must(connects(n.t.Context(), device, patience))
	if now := n.mpsOf(device); now != daemons {
		n.t.Errorf("MPS of the device was replaced: %s, then %s", daemons, now)
	}
	deaf, err := fakegpu.Dial(n.t.Context(), pipeDir(device), fakegpu.ClientLoad{})
	n.must(err)
	n.t.Cleanup(deaf.Close)
	n.agent.Stop(0)
	n.delete("hangs")
	n.broken(device)
	n.met(neighbour, "fault")
	n.must(n.startAgent())
	n.t.Logf("the GPUNode says: %s", n.sick(device, "MPSFault"))
	n.recovered(device)
	n.works(neighbour) // its server was replaced
	n.noDrift()
}

// mpsOf returns the server of a device.
func (n *Tenant) mpsOf(uuid string) string {
	return fmt.Sprint(fakegpu.ReadUsage(n.layout.state(), uuid).Server.PID)
}
