package binding

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// setModes gives the devices of starting containers the compute mode that they need. A share can do without
// EXCLUSIVE_PROCESS, which is a second protection, but a container with a whole device may have several processes.
func (b *Binder) setModes(ctx context.Context, a vgpu.Assignment, starting []allocation.Holding) error {
	if b.Exclusive == nil {
		return nil
	}
	devices, _ := b.Inventory.Snapshot()
	for _, h := range starting {
		c := containerOf(a, h.Container)
		for _, id := range c.Devices {
			d := inventory.Find(devices, string(id))
			if d == nil {
				continue // lost since the check; its files are missing too
			}
			if inventory.NeedsSharing(*c, d) {
				if err := b.Exclusive.Claim(d.ID); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot set the compute mode EXCLUSIVE_PROCESS", "device", d.ID)
				}
				continue
			}
			if err := b.Exclusive.Release(d.ID); err != nil {
				return refuse(reasonNode, "device g%d (%s): cannot put the compute mode back to DEFAULT for a container that has the device to itself: %v", d.Index, d.ID, err)
			}
		}
	}
	return nil
}

// listTimeout bounds the wait for the kubelet's pods while starts wait.
const listTimeout = 2 * time.Second

// SettleModes sets the compute modes by the grants of the pods that the kubelet lists. New grants wait meanwhile, so
// SettleModes misses none.
func (b *Binder) SettleModes(ctx context.Context, reader podsource.Reader) error {
	b.granting.Lock()
	defer b.granting.Unlock()
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	pods, err := reader.List(bounded)
	if err != nil {
		return err
	}
	devices, _ := b.Inventory.Snapshot()
	shared := map[string]bool{}
	for _, pod := range pods {
		g, started := b.Records.Grant(string(pod.UID))
		if !started || podsource.Over(pod) {
			continue
		}
		shares, _ := held(g, devices)
		for _, id := range shares {
			shared[id] = true
		}
	}
	b.Exclusive.Settle(ctx, shared)
	return nil
}

// held returns the devices of which the assignment of a grant has shares that MPS serves, and those that it has by
// themselves.
func held(g allocation.Grant, devices []inventory.Device) (shares, whole []string) {
	a, err := kube.DecodeAssignment(g.Assignment)
	if err != nil {
		return nil, nil // the agent checked the grant when it wrote it; its device is unknown now
	}
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			d := inventory.Find(devices, id)
			switch {
			case d == nil:
			case int(c.Slots) >= d.Slots:
				whole = append(whole, d.ID)
			case d.Shared():
				shares = append(shares, d.ID)
			}
		}
	}
	return shares, whole
}

// HoldsWhole reports whether a container that may run has the device by itself. The phase of a known pod says whether
// it runs; an unknown pod may run.
func (b *Binder) HoldsWhole(pods map[types.UID]*podsource.Tenant, id string) bool {
	devices, _ := b.Inventory.Snapshot()
	for uid, g := range b.Records.Snapshot().Grants {
		if t := pods[types.UID(uid)]; t != nil && podsource.Over(t.Pod) {
			continue
		}
		if _, whole := held(g, devices); slices.Contains(whole, id) {
			return true
		}
	}
	return false
}
