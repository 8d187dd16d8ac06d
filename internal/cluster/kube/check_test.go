package kube

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestCheckAssignment(t *testing.T) {
	devices := func() []vgpu.Device {
		var all []vgpu.Device
		for i, id := range []vgpu.DeviceID{"GPU-0", "GPU-1", "GPU-2"} {
			all = append(all, vgpu.Device{ID: id, Index: i, Model: "A100", Slots: 10, Memory: 40 * gib, Healthy: true})
		}
		return all
	}
	if err := CheckAssignment(example(), devices()); err != nil {
		t.Fatal(err)
	}
	sick := devices()
	sick[0].Healthy = false
	if err := CheckAssignment(example(), sick); err != nil {
		t.Errorf("an assignment on a sick device is refused: %v", err)
	}
	for name, c := range map[string]struct {
		assignment func(*vgpu.Assignment)
		devices    func([]vgpu.Device)
	}{
		"unknown device":          {func(a *vgpu.Assignment) { a.Containers[0].Devices[0] = "GPU-9" }, nil},
		"more slots than it has":  {nil, func(d []vgpu.Device) { d[0].Slots = 2 }},
		"several, not whole":      {nil, func(d []vgpu.Device) { d[1].Slots = 20 }},
		"more memory than it has": {nil, func(d []vgpu.Device) { d[0].Memory = 8 * gib }},
		"a limit above it":        {func(a *vgpu.Assignment) { a.Containers[0].Share.MemoryLimit = 41 * gib }, nil},
		"a limit below the share": {func(a *vgpu.Assignment) { a.Containers[0].Share.ComputeLimit = 290 }, nil},
		"its containers together": {func(a *vgpu.Assignment) { a.Containers[0].Devices[0] = "GPU-1" }, nil},
	} {
		a, d := example(), devices()
		if c.assignment != nil {
			c.assignment(&a)
		}
		if c.devices != nil {
			c.devices(d)
		}
		if err := CheckAssignment(a, d); err == nil || !strings.Contains(err.Error(), "pod ns/p") {
			t.Errorf("%s: CheckAssignment = %v, want an error that names the pod", name, err)
		}
	}
}
