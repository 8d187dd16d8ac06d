package e2e

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// restartOfKubelet kills the kubelet, leaves it away for a while and starts it again.
func restartOfKubelet(n *Tenant) {
	n.restart(func(ctx context.Context) error {
		if err := n.restartKubelet(ctx, 3*time.Second); err != nil {
			return err
		}
		if err := poll(ctx, "a registered agent", n.registered); err != nil {
			return err
		}
		return poll(ctx, "a ready node", n.nodeReady)
	})
}

// restartOfAgent kills the agent; its MPS daemons live on and are adopted.
func restartOfAgent(n *Tenant) {
	n.restart(func(ctx context.Context) error {
		n.agent.Stop(0)
		if err := n.startAgent(); err != nil {
			return err
		}
		return poll(ctx, "a registered agent", n.registered)
	})
}

// restartOfScheduler kills the scheduler; it knows afterwards only what the pods say.
func restartOfScheduler(n *Tenant) {
	n.restart(func(context.Context) error {
		n.scheduler.Stop(0)
		return n.startScheduler()
	})
}

// restart checks that what runs before do runs on untouched, that new pods start afterwards and that nothing is booked
// twice.
func (n *Tenant) restart(do func(context.Context) error) {
	n.t.Helper()
	n.createSizes("old", 6, 6)
	before := n.containers("old-0", "old-1")
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	n.must(do(ctx))
	n.must(n.awaitSlots(ctx, gpus*slotsPerGPU))
	n.create(newPod("new", share("main", 4)))
	n.checkShares(n.running("new")[0])
	n.create(newPod("too-much", share("main", 6)))
	n.event("too-much", "0/1 nodes", "4 of 10")
	n.unbound("too-much")
	n.delete("old-1")
	n.checkShares(n.running("too-much")[0])
	after := n.containers("old-0")
	delete(before, "old-1")
	if diff := cmp.Diff(before, after); diff != "" {
		n.t.Errorf("the running containers changed (-before +after):\n%s", diff)
	}
	n.noDrift()
}

// containers returns the identity of every container of running pods.
func (n *Tenant) containers(names ...string) map[string]string {
	n.t.Helper()
	all := map[string]string{}
	for _, pod := range n.running(names...) {
		n.checkShares(pod)
		for _, s := range pod.Status.ContainerStatuses {
			all[pod.Name] = fmt.Sprintf("%s, %d restarts, since %s", s.ContainerID, s.RestartCount, s.State.Running.StartedAt)
		}
	}
	return all
}

// lostGPU: all slots of a device that falls off the bus go, its pods stay, and the slots come back with it.
func lostGPU(n *Tenant) {
	n.createSizes("here", 6, 6)
	before := n.containers("here-0", "here-1")
	lost := 1
	n.must(fakegpu.Update(n.layout.state(), func(s *fakegpu.State) { s.Devices[lost].Lost = true }))
	n.t.Cleanup(func() {
		if err := fakegpu.Update(n.layout.state(), func(s *fakegpu.State) { s.Devices[lost].Lost = false }); err != nil {
			n.t.Error(err)
		}
	})
	n.await("the loss of ten slots", func(ctx context.Context) error { return n.offers(ctx, slotsPerGPU) })
	n.create(newPod("small", share("main", 4)))
	if pod := n.running("small")[0]; n.device(pod) != uuid(1-lost) {
		n.t.Errorf("pod small runs on the lost device")
	}
	n.create(newPod("waits", share("main", 3)))
	n.event("waits", "0/1 nodes")
	n.unbound("waits")
	n.must(fakegpu.Update(n.layout.state(), func(s *fakegpu.State) { s.Devices[lost].Lost = false }))
	n.checkShares(n.running("waits")[0])
	n.await("all slots", func(ctx context.Context) error { return n.offers(ctx, gpus*slotsPerGPU) })
	if after := n.containers("here-0", "here-1"); !maps.Equal(before, after) {
		n.t.Errorf("the running containers changed: %v before, %v after", before, after)
	}
}
