package binding

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// admit checks that the pod fits beside the pods that this agent has already let start on the node's devices. A pod
// that started before is in the sum already. An assignment is taken for genuine where it agrees with the pod and with
// the room left, even if a user forged it. The admission policies in deploy/ prevent that.
func (b *Binder) admit(ctx context.Context, pod *v1.Pod, a vgpu.Assignment) error {
	devices, err := b.devices()
	if err != nil {
		return err
	}
	pods, err := b.Pods.List(ctx)
	if err != nil {
		return err
	}
	ledger, full, err := b.ledger(devices, pods, string(pod.UID))
	if err != nil {
		return err
	}
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			if slices.Contains(full, id) {
				return refuse(reasonOverCapacity, "device %s carries more than its %d slots since its configuration changed; the container starts when enough of its pods have ended", id, capacityOf(devices, id))
			}
		}
	}
	if err := ledger.Add(a); err != nil {
		return refuse(reasonOverCapacity, "the assignment does not fit beside the pods that run: %v"+kube.CreateAgain, err)
	}
	return nil
}

// ledger books the pods that were let start and still run, except one. It also returns, as full, the devices that these
// pods alone overfill: a device may have fewer slots than before.
func (b *Binder) ledger(devices []vgpu.Device, pods []*v1.Pod, except string) (*vgpu.Node, []vgpu.DeviceID, error) {
	ledger, err := vgpu.NewNode(b.Node, devices)
	if err != nil {
		return nil, nil, err
	}
	var full []vgpu.DeviceID
	for _, pod := range pods {
		g, started := b.Records.Grant(string(pod.UID))
		if !started || podsource.Over(pod) || string(pod.UID) == except {
			continue
		}
		a, err := allocation.AssignmentOf(pod, g)
		if err != nil {
			continue // the agent checked the grant when it wrote it; a pod whose spec contradicts it has another origin
		}
		if ledger.Add(a) != nil {
			for _, c := range a.Containers {
				full = append(full, c.Devices...)
			}
		}
	}
	return ledger, full, nil
}

func capacityOf(devices []vgpu.Device, id vgpu.DeviceID) vgpu.Slots {
	for _, d := range devices {
		if d.ID == id {
			return d.Slots
		}
	}
	return 0
}
