package deviceplugin

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/kube"
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
		pods, err := a.plugin.pods.list(ctx)
		if err == nil {
			a.binder.settleModes(ctx, pods)
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

// settleModes sets the compute modes by the grants of the pods that run. It excludes new grants meanwhile; a grant whose
// pod the kubelet does not list yet counts.
func (b *binder) settleModes(ctx context.Context, pods []*v1.Pod) {
	b.granting.Lock()
	defer b.granting.Unlock()
	ended := map[string]bool{}
	for _, pod := range pods {
		ended[string(pod.UID)] = over(pod)
	}
	devices, _ := b.inventory.snapshot()
	shared := map[string]bool{}
	for uid, g := range b.records.snapshot().Grants {
		if ended[uid] {
			continue
		}
		for _, id := range sharesIn(g, devices) {
			shared[id] = true
		}
	}
	b.exclusive.settle(ctx, shared)
}

// sharesIn returns the devices of which the assignment of a grant has shares that MPS serves.
func sharesIn(g grant, devices []device) []string {
	a, err := kube.DecodeAssignment(g.Assignment)
	if err != nil {
		return nil // it was valid when it was written; a device that it means is not known
	}
	var ids []string
	for _, c := range a.Containers {
		if len(c.Devices) != 1 {
			continue
		}
		if d := find(devices, c.Devices[0]); d != nil && d.shared() && int(c.Slots) < d.Slots {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
