package deviceplugin

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// tidyTimeout bounds what a leaving agent puts in order. It is part of the pod's grace period.
const tidyTimeout = 10 * time.Second

// tidy puts the compute modes back and, where the configuration asks for it, ends the MPS daemons that serve nobody.
func (a *Agent) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if a.exclusive != nil {
		a.exclusive.settle(ctx, nil)
	}
	if !a.options.Config.MPS.quitOnExit() {
		return
	}
	devices, _ := a.inventory.snapshot()
	var all sync.WaitGroup
	for i := range devices {
		if devices[i].shared() {
			all.Go(func() { a.quit(ctx, devices[i].GPU) })
		}
	}
	all.Wait()
}

// quit ends the daemon of a device that serves nobody.
func (a *Agent) quit(ctx context.Context, g GPU) {
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
	beat := a.pulse.of("compute modes")
	for ctx.Err() == nil {
		beat()
		if err := a.binder.settleModes(ctx, a.plugin.pods); err != nil {
			klog.FromContext(ctx).V(2).Info("Leaving the compute modes as they are", "why", err.Error())
		}
		pause(ctx, a.timing.sweep)
	}
}

// setModes gives the devices of starting containers the compute mode that they need: EXCLUSIVE_PROCESS is a net that a
// share can do without, but a container with a whole device may have several processes.
func (b *binder) setModes(ctx context.Context, a vgpu.Assignment, starting []holding) error {
	if b.exclusive == nil {
		return nil
	}
	devices, _ := b.inventory.snapshot()
	for _, h := range starting {
		c := containerOf(a, h.Container)
		for _, id := range c.Devices {
			d := find(devices, string(id))
			if d == nil {
				continue // gone since it was checked; its files are missing too
			}
			if needsSharing(*c, d) {
				if err := b.exclusive.claim(d.ID); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot set the compute mode EXCLUSIVE_PROCESS", "device", d.ID)
				}
				continue
			}
			if err := b.exclusive.release(d.ID); err != nil {
				return refuse(reasonNode, "device g%d (%s): cannot put the compute mode back to DEFAULT for a container that has the device to itself: %v", d.Index, d.ID, err)
			}
		}
	}
	return nil
}

// listTimeout bounds the wait for the kubelet's pods while starts wait.
const listTimeout = 2 * time.Second

// settleModes sets the compute modes by the grants of the pods that the kubelet lists. New grants wait meanwhile, so none
// is missed.
func (b *binder) settleModes(ctx context.Context, reader podReader) error {
	b.granting.Lock()
	defer b.granting.Unlock()
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	pods, err := reader.list(bounded)
	if err != nil {
		return err
	}
	devices, _ := b.inventory.snapshot()
	shared := map[string]bool{}
	for _, pod := range pods {
		g, started := b.records.grant(string(pod.UID))
		if !started || over(pod) {
			continue
		}
		shares, _ := held(g, devices)
		for _, id := range shares {
			shared[id] = true
		}
	}
	b.exclusive.settle(ctx, shared)
	return nil
}

// heldWhole reports whether a container that may run has the device by itself.
func (a *Agent) heldWhole(id string) bool {
	devices, _ := a.inventory.snapshot()
	pods, _, _ := a.podWatch.snapshot() // a pod that is not known may run
	for uid, g := range a.binder.records.snapshot().Grants {
		if t := pods[types.UID(uid)]; t != nil && over(t.pod) {
			continue
		}
		if _, whole := held(g, devices); slices.Contains(whole, id) {
			return true
		}
	}
	return false
}

// held returns the devices of which the assignment of a grant has shares that MPS serves, and those that it has by
// themselves.
func held(g grant, devices []device) (shares, whole []string) {
	a, err := kube.DecodeAssignment(g.Assignment)
	if err != nil {
		return nil, nil // it was valid when it was written; a device that it means is not known
	}
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			d := find(devices, id)
			switch {
			case d == nil:
			case int(c.Slots) >= d.Slots:
				whole = append(whole, d.ID)
			case d.shared():
				shares = append(shares, d.ID)
			}
		}
	}
	return shares, whole
}
