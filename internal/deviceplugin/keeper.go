package deviceplugin

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// keeper watches the devices and keeps sharing up on those that take work. It never stands between the kubelet and
// its slots: a device whose MPS does not come up is still advertised, and its containers wait before they start.
type keeper struct {
	inventory *inventory
	driver    Driver
	sharing   Sharing
	every     time.Duration
	beat      func()
}

const (
	// healthEvery is how often the driver is asked for each device. A lost device is noticed that late at most; an
	// answer takes microseconds.
	healthEvery = 5 * time.Second
	// ensureTimeout bounds one attempt to start or adopt MPS of a device.
	ensureTimeout = 30 * time.Second
	// minEnsureRetry and maxEnsureRetry bound the wait between attempts that failed.
	minEnsureRetry = time.Second
	maxEnsureRetry = time.Minute
)

// watchHealth asks the driver for each device until ctx ends.
func (k *keeper) watchHealth(ctx context.Context) {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		k.beat()
		k.lookAtHealth(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *keeper) lookAtHealth(ctx context.Context) {
	devices, _ := k.inventory.snapshot()
	for i := range devices {
		d := &devices[i]
		sick := sickness(k.driver.Health(d.ID))
		if !k.inventory.setHealth(d.ID, sick) {
			continue
		}
		if sick != nil {
			klog.FromContext(ctx).Error(sick, "Device takes no more work", "device", d.ID, "index", d.Index)
			continue
		}
		klog.FromContext(ctx).Info("Device takes work again", "device", d.ID, "index", d.Index)
	}
}

// keepSharing keeps MPS of one device up until ctx ends. It stops nothing: running clients outlive the agent.
func (k *keeper) keepSharing(ctx context.Context, g GPU) {
	wait := minEnsureRetry
	for {
		next := k.every
		if err := k.ensure(ctx, g); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "MPS is not up", "device", g.ID, "index", g.Index, "retryIn", wait)
			next = wait
			wait = min(2*wait, maxEnsureRetry)
		} else {
			wait = minEnsureRetry
		}
		_, changed := k.inventory.snapshot()
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		case <-changed:
		}
	}
}

func (k *keeper) ensure(ctx context.Context, g GPU) error {
	devices, _ := k.inventory.snapshot()
	if d := find(devices, g.ID); d == nil || d.Sick != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	if k.sharing.Ready(ctx, g.ID) == nil {
		return nil
	}
	return k.sharing.Ensure(ctx, g)
}
