package deviceplugin

import (
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
)

// advertised is the list for the kubelet. All slots of a device share its health and its NUMA node.
func advertised(devices []inventory.Device) []*pluginapi.Device {
	var list []*pluginapi.Device
	for i := range devices {
		d := &devices[i]
		health := pluginapi.Healthy
		if d.Sick != nil {
			health = pluginapi.Unhealthy
		}
		for slot := range d.Slots {
			list = append(list, &pluginapi.Device{ID: allocation.SlotID(d.ID, slot), Health: health, Topology: topology(d)})
		}
	}
	return list
}

func topology(d *inventory.Device) *pluginapi.TopologyInfo {
	if d.NUMANode < 0 {
		return nil
	}
	return &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(d.NUMANode)}}}
}
