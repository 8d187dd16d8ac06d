package deviceplugin

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// resident is a container's share of one device.
type resident struct {
	uid                            types.UID
	namespace, pod, name, deviceID string
	// slots of the device and all of them.
	slots, of                  int
	memoryRequest, memoryLimit int64
	computeLimit               vgpu.MilliGPU
	// shared: MPS serves and bounds the share; else the container has the device by itself, or nothing bounds it.
	shared bool
	grade  v1alpha1.Enforcement
}

// residents returns who holds shares of the devices, in the order of pods, containers and devices. A pod holds the
// assignment that it was started with, and before that the one that its annotation says. It holds it until its last
// container has ended; ordinary init containers until they have.
func residents(pods map[types.UID]*tenant, grants map[string]grant, devices []device) []resident {
	var list []resident
	for _, t := range byName(pods) {
		if ended(t.pod) {
			continue
		}
		a, err := t.assignment, t.err
		if g, ok := grants[string(t.pod.UID)]; ok && g.Assignment != t.pod.Annotations[v1alpha1.AnnotationAssignment] {
			a, err = grantOf(t.pod, g)
		}
		if err != nil {
			continue
		}
		for i := range a.Containers {
			list = append(list, residentsOf(t.pod, &a.Containers[i], devices)...)
		}
	}
	return list
}

func residentsOf(pod *v1.Pod, c *vgpu.ContainerAssignment, devices []device) []resident {
	if c.Kind == vgpu.Init && completed(pod, c.Name) {
		return nil
	}
	list := make([]resident, 0, len(c.Devices))
	for _, id := range c.Devices {
		d := find(devices, string(id))
		if d == nil {
			continue
		}
		r := resident{
			uid: pod.UID, namespace: pod.Namespace, pod: pod.Name, name: c.Name, deviceID: d.ID,
			slots: int(c.Share.Slots), of: d.Slots,
			memoryRequest: int64(c.Share.Memory), memoryLimit: int64(c.Share.MemoryLimit), computeLimit: c.Share.ComputeLimit,
			shared: needsSharing(*c, d), grade: grade(*c, d),
		}
		list = append(list, r)
	}
	return list
}

// enforcementPartition is the grade of a container that has a device by itself.
const enforcementPartition v1alpha1.Enforcement = "partition"

// grade is what keeps the share in its bounds.
func grade(c vgpu.ContainerAssignment, d *device) v1alpha1.Enforcement {
	if int(c.Share.Slots) >= d.Slots {
		return enforcementPartition
	}
	return enforcement(d)
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

// ended reports whether nothing of the pod runs any more. The phase alone does not say so: a pod that the kubelet
// evicts is Failed while its containers still have their grace.
func ended(pod *v1.Pod) bool { return over(pod) && !running(pod) }

func running(pod *v1.Pod) bool {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if c.State.Running != nil {
				return true
			}
		}
	}
	return false
}
