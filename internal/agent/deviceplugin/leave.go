package deviceplugin

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
)

// tidyTimeout bounds what a leaving agent puts in order. The time is part of the pod's grace period.
const tidyTimeout = 10 * time.Second

// tidy puts the compute modes back and, where the configuration says so, ends the MPS daemons without clients.
func (a *Agent) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if a.exclusive != nil {
		a.exclusive.Settle(ctx, nil)
	}
	if !a.options.Config.MPS.QuitsOnExit() {
		return
	}
	devices, _ := a.inventory.Snapshot()
	var all sync.WaitGroup
	for i := range devices {
		if devices[i].Shared() {
			all.Go(func() { a.quit(ctx, devices[i].GPU) })
		}
	}
	all.Wait()
}

// quit ends the daemon of a device without clients.
func (a *Agent) quit(ctx context.Context, g inventory.GPU) {
	log := klog.FromContext(ctx)
	t, err := a.options.Sharing.Look(ctx, g.ID)
	if err != nil || len(t.Clients) > 0 {
		log.Info("Leaving the MPS daemon as it is", "device", g.ID, "clients", len(t.Clients), "err", err)
		return
	}
	if err := a.options.Sharing.Stop(ctx, g.ID); err != nil {
		log.Error(err, "Cannot end MPS", "device", g.ID)
	}
}

// keepExclusive keeps the compute modes as the running pods need them, until ctx ends.
func (a *Agent) keepExclusive(ctx context.Context) {
	beat := a.pulse.Of("compute modes")
	for ctx.Err() == nil {
		beat()
		if err := a.binder.SettleModes(ctx, a.plugin.pods); err != nil {
			klog.FromContext(ctx).V(2).Info("Leaving the compute modes as they are", "why", err.Error())
		}
		loop.Pause(ctx, a.timing.sweep)
	}
}

// heldWhole reports whether a container that may run has the device by itself.
func (a *Agent) heldWhole(id string) bool {
	pods, _, _ := a.podWatch.Snapshot() // an unknown pod may run
	return a.binder.HoldsWhole(pods, id)
}
