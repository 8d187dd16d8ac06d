package e2e

import (
	"context"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// restartOfKubelet kills the kubelet and leaves it away until the cluster knows.
func restartOfKubelet(n *Tenant) {
	n.restart(outage{
		stop: func(ctx context.Context) error {
			n.kubelet.Stop(0)
			return poll(ctx, "a GPUNode that is not ready", func(ctx context.Context) error { return n.gpuNodeReady(ctx, false) })
		},
		start:     func(context.Context) error { return n.startKubelet() },
		meanwhile: true,
	})
}

// upgradeOfAgent stops the agent as a DaemonSet does. Its MPS daemons live on and are adopted.
func upgradeOfAgent(n *Tenant) {
	n.restart(outage{
		stop: func(ctx context.Context) error {
			n.agent.Stop(patience)
			return n.gpuNodeReady(ctx, false)
		},
		start:     func(context.Context) error { return n.startAgent() },
		meanwhile: true,
	})
}

// crashOfAgent kills the agent. Nobody can tell the scheduler at once: a pod that is bound before the agent is back is
// rejected by the kubelet, so new pods come afterwards.
func crashOfAgent(n *Tenant) {
	n.restart(outage{
		stop:  func(context.Context) error { n.agent.Stop(0); return nil },
		start: func(context.Context) error { return n.startAgent() },
	})
}

// crashOfScheduler kills the scheduler; it knows afterwards only what the pods say.
func crashOfScheduler(n *Tenant) {
	n.restart(outage{
		stop:      func(context.Context) error { n.scheduler.Stop(0); return nil },
		start:     func(context.Context) error { return n.startScheduler() },
		meanwhile: true,
	})
}

// outage of one component.
type outage struct {
	stop, start func(context.Context) error
	// meanwhile says that pods can be created during the outage.
	meanwhile bool
}

// restart checks that what runs before the outage runs on untouched, that new pods start and that nothing is booked
// twice.
func (n *Tenant) restart(o outage) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*patience)
	defer cancel()
	n.createSizes("old", 6, 6)
	before := n.containers("old-0", "old-1")
	n.must(o.stop(ctx))
	if o.meanwhile {
		n.create(newPod("new", share("main", 4)))
	}
	n.must(o.start(ctx))
	n.must(poll(ctx, "a registered agent", n.registered))
	n.must(n.awaitSlots(ctx))
	if !o.meanwhile {
		n.create(newPod("new", share("main", 4)))
	}
	n.checkShares(n.running("new")[0])
	n.create(newPod("too-much", share("main", 6)))
	n.event("too-much", "0/1 nodes", "4 of 10")
	n.unbound("too-much")
	if diff := cmp.Diff(before, n.containers("old-0", "old-1")); diff != "" {
		n.t.Errorf("the running containers changed (-before +after):\n%s", diff)
	}
	n.delete("old-1")
	n.checkShares(n.running("too-much")[0])
	n.noDrift()
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
	if diff := cmp.Diff(before, n.containers("here-0", "here-1")); diff != "" {
		n.t.Errorf("the running containers changed (-before +after):\n%s", diff)
	}
}
