package deviceplugin

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// slotID names one slot towards the kubelet: "<GPU-UUID>::<slot>", slots from 0.
func slotID(device string, slot int) string {
	return device + v1alpha1.SlotSeparator + strconv.Itoa(slot)
}

// parseSlotID returns the device and the slot of an ID, and false for what is no slot ID.
func parseSlotID(id string) (device string, slot int, ok bool) {
	device, number, ok := strings.Cut(id, v1alpha1.SlotSeparator)
	slot, err := strconv.Atoi(number)
	return device, slot, ok && device != "" && err == nil && slot >= 0
}

// compareSlots orders IDs by device and slot number, so that 2 comes before 10.
func compareSlots(a, b string) int {
	deviceA, slotA, _ := parseSlotID(a)
	deviceB, slotB, _ := parseSlotID(b)
	return cmp.Or(cmp.Compare(deviceA, deviceB), cmp.Compare(slotA, slotB), cmp.Compare(a, b))
}

// advertised is the list for the kubelet. All slots of a device share its health and its NUMA node.
func advertised(devices []device) []*pluginapi.Device {
	var list []*pluginapi.Device
	for i := range devices {
		d := &devices[i]
		health := pluginapi.Healthy
		if d.Sick != nil {
			health = pluginapi.Unhealthy
		}
		for slot := range d.Slots {
			list = append(list, &pluginapi.Device{ID: slotID(d.ID, slot), Health: health, Topology: topology(d)})
		}
	}
	return list
}

func topology(d *device) *pluginapi.TopologyInfo {
	if d.NUMANode < 0 {
		return nil
	}
	return &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(d.NUMANode)}}}
}

// sameSlots reports whether two sets of IDs are equal, whatever their order and repetitions.
func sameSlots(a, b []string) bool { return slices.Equal(slotSet(a), slotSet(b)) }

// slotSet returns the IDs sorted, once each.
func slotSet(ids []string) []string {
	set := slices.Clone(ids)
	slices.SortFunc(set, compareSlots)
	return slices.Compact(set)
}

// shareSlots reports whether two sets of IDs have one in common.
func shareSlots(a, b []string) bool {
	return slices.ContainsFunc(a, func(id string) bool { return slices.Contains(b, id) })
}
