package allocation

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// SlotID names one slot towards the kubelet: "<GPU-UUID>::<slot>", slots from 0.
func SlotID(device string, slot int) string {
	return device + v1alpha1.SlotSeparator + strconv.Itoa(slot)
}

// ParseSlotID returns the device and the slot of an ID, and false for what is no slot ID.
func ParseSlotID(id string) (device string, slot int, ok bool) {
	device, number, ok := strings.Cut(id, v1alpha1.SlotSeparator)
	slot, err := strconv.Atoi(number)
	return device, slot, ok && device != "" && err == nil && slot >= 0
}

// compareSlots orders IDs by device and slot number, so that 2 comes before 10.
func compareSlots(a, b string) int {
	deviceA, slotA, _ := ParseSlotID(a)
	deviceB, slotB, _ := ParseSlotID(b)
	return cmp.Or(cmp.Compare(deviceA, deviceB), cmp.Compare(slotA, slotB), cmp.Compare(a, b))
}

// SameSlots reports whether two sets of IDs are equal, whatever their order and repetitions.
func SameSlots(a, b []string) bool { return slices.Equal(SlotSet(a), SlotSet(b)) }

// SlotSet returns the IDs sorted, once each.
func SlotSet(ids []string) []string {
	set := slices.Clone(ids)
	slices.SortFunc(set, compareSlots)
	return slices.Compact(set)
}

// ShareSlots reports whether two sets of IDs have one in common.
func ShareSlots(a, b []string) bool {
	return slices.ContainsFunc(a, func(id string) bool { return slices.Contains(b, id) })
}
