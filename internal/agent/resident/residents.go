package resident

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Share is a container's share of one device.
type Share struct {
	UID                            types.UID
	Namespace, Pod, Name, DeviceID string
	// Slots of the device and all of them.
	Slots, Of                  int
	MemoryRequest, MemoryLimit int64
	ComputeLimit               vgpu.MilliGPU
	// Shared: MPS serves and bounds the share; else the container has the device by itself, or nothing bounds it.
	Shared bool
	Grade  v1alpha1.Enforcement
}

// List returns who holds shares of the devices, in the order of pods, containers and devices. A started pod holds the
// assignment of its grant, and a pod before its start that of its annotation. The pod holds the assignment until its
// last container has ended; ordinary init containers hold it until they have.
func List(pods map[types.UID]*podsource.Tenant, grants map[string]allocation.Grant, devices []inventory.Device) []Share {
	var list []Share
	for _, t := range podsource.ByName(pods) {
		if podsource.Ended(t.Pod) {
			continue
		}
		a, err := t.Assignment, t.Err
		if g, ok := grants[string(t.Pod.UID)]; ok && g.Assignment != t.Pod.Annotations[v1alpha1.AnnotationAssignment] {
			a, err = allocation.AssignmentOf(t.Pod, g)
		}
		if err != nil {
			continue
		}
		for i := range a.Containers {
			list = append(list, sharesOf(t.Pod, &a.Containers[i], devices)...)
		}
	}
	return list
}

func sharesOf(pod *v1.Pod, c *vgpu.ContainerAssignment, devices []inventory.Device) []Share {
	if c.Kind == vgpu.Init && completed(pod, c.Name) {
		return nil
	}
	list := make([]Share, 0, len(c.Devices))
	for _, id := range c.Devices {
		d := inventory.Find(devices, string(id))
		if d == nil {
			continue
		}
		r := Share{
			UID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Name: c.Name, DeviceID: d.ID,
			Slots: int(c.Share.Slots), Of: d.Slots,
			MemoryRequest: int64(c.Share.Memory), MemoryLimit: int64(c.Share.MemoryLimit), ComputeLimit: c.Share.ComputeLimit,
			Shared: inventory.NeedsSharing(*c, d), Grade: grade(*c, d),
		}
		list = append(list, r)
	}
	return list
}

// enforcementPartition is the grade of a container that has a device by itself.
const enforcementPartition v1alpha1.Enforcement = "partition"

// grade is what keeps the share in its bounds.
func grade(c vgpu.ContainerAssignment, d *inventory.Device) v1alpha1.Enforcement {
	if int(c.Share.Slots) >= d.Slots {
		return enforcementPartition
	}
	return inventory.Enforcement(d)
}

// completed reports whether a container of the pod has ended for good.
func completed(pod *v1.Pod, container string) bool {
	for _, c := range pod.Status.InitContainerStatuses {
		if c.Name == container {
			return c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
		}
	}
	return false
}
