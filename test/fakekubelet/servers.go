package fakekubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// All returns the pods for the Pods API.
func (s *podSet) All() []*v1.Pod { return s.GetPods() }

// Synced reports whether the first list of the node's pods is complete.
func (s *podSet) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

func (s *podSet) setSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

// UpdateAllocatedDevices frees the devices of pods that have ended; the pod-resources server calls it before a list.
func (d *devices) UpdateAllocatedDevices(klog.Logger) { d.collect() }

// GetDevices returns what a container holds, an entry per device as the kubelet does.
func (d *devices) GetDevices(uid, container string) []*podresourcesapi.ContainerDevices {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*podresourcesapi.ContainerDevices
	for _, name := range d.resourcesOf(uid, container) {
		ids := d.held[holder{uid, container, name}].ids.Devices()
		all = append(all, describe(name, ids, d.resources[name])...)
	}
	return all
}

// GetAllocatableDevices returns the healthy devices.
func (d *devices) GetAllocatableDevices(klog.Logger) []*podresourcesapi.ContainerDevices {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*podresourcesapi.ContainerDevices
	for name, r := range d.resources {
		all = append(all, describe(name, r.healthy, r)...)
	}
	return all
}

func describe(name string, ids sets.Set[string], r *resourceDevices) []*podresourcesapi.ContainerDevices {
	var all []*podresourcesapi.ContainerDevices
	for _, id := range sets.List(ids) {
		entry := &podresourcesapi.ContainerDevices{ResourceName: name, DeviceIds: []string{id}}
		var device *pluginapi.Device
		if r != nil {
			device = r.known[id]
		}
		if device.GetTopology() == nil {
			all = append(all, entry)
			continue
		}
		for _, node := range device.Topology.Nodes {
			all = append(all, &podresourcesapi.ContainerDevices{
				ResourceName: name, DeviceIds: []string{id},
				Topology: &podresourcesapi.TopologyInfo{Nodes: []*podresourcesapi.NUMANode{{ID: node.ID}}},
			})
		}
	}
	return all
}

// nothing answers the pod-resources server's questions about CPUs, memory and dynamic resources.
type nothing struct{}

func (nothing) GetCPUs(*v1.Pod, *v1.Container) []int64 { return nil }
func (nothing) GetPodCPUs(string) []int64              { return nil }
func (nothing) GetAllocatableCPUs() []int64            { return nil }

func (nothing) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.ContainerMemory {
	return nil
}
func (nothing) GetPodMemory(klog.Logger, string) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory(klog.Logger) []*podresourcesapi.ContainerMemory { return nil }

func (nothing) GetDynamicResources(klog.Logger, *v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
