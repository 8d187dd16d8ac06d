package nvml

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// split says whether a GPU is in MIG mode. A GPU without MIG answers "not supported".
func (l *Library) split(h nvml.Device) (bool, nvml.Return) {
	if !l.has("nvmlDeviceGetMigMode") {
		return false, nvml.SUCCESS
	}
	current, _, ret := h.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return false, nvml.SUCCESS
	}
	return ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE, ret
}

// instances describes the MIG devices of a GPU by GPU instance and compute instance.
func (l *Library) instances(gpu Device, h nvml.Device) ([]Device, nvml.Return) {
	var list []Device
	ret := eachInstance(h, func(instance nvml.Device) nvml.Return {
		d, ret := l.instance(gpu, instance)
		if ret == nvml.SUCCESS && !strings.Contains(d.UUID, "/") {
			list = append(list, d)
		}
		return ret
	})
	slices.SortFunc(list, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.GI, b.GI), cmp.Compare(a.CI, b.CI), cmp.Compare(a.UUID, b.UUID))
	})
	return list, ret
}

// eachInstance calls do for the MIG devices of a GPU until one of them fails.
func eachInstance(h nvml.Device, do func(nvml.Device) nvml.Return) nvml.Return {
	count, ret := h.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return ret
	}
	for i := range count {
		instance, ret := h.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if ret != nvml.SUCCESS {
			return ret
		}
		if ret := do(instance); ret != nvml.SUCCESS {
			return ret
		}
	}
	return nvml.SUCCESS
}

// instance describes one MIG device. Drivers before r470 name them "MIG-<GPU>/<GI>/<CI>"; such a name is no ID for
// Kubernetes, and the caller leaves it out.
func (l *Library) instance(gpu Device, h nvml.Device) (Device, nvml.Return) {
	d := gpu
	d.Parent, d.Links = gpu.UUID, nil
	var ret nvml.Return
	if d.UUID, ret = h.GetUUID(); ret != nvml.SUCCESS {
		return d, ret
	}
	if d.GI, ret = h.GetGpuInstanceId(); ret != nvml.SUCCESS {
		return d, ret
	}
	if d.CI, ret = h.GetComputeInstanceId(); ret != nvml.SUCCESS {
		return d, ret
	}
	d.Memory = 0
	if ret = l.readMemory(&d, h); ret != nvml.SUCCESS {
		return d, ret
	}
	d.Profile = l.profile(gpu.Memory, d.Memory, h)
	d.Model = instanceModel(gpu.Model, d.Profile)
	return d, nvml.SUCCESS
}

// profile names the shape of an instance. Drivers write it at the end of the name, as CUDA does: "NVIDIA A100-SXM4-40GB
// MIG 1g.5gb". Otherwise profile makes the name from the slices and the memory.
func (l *Library) profile(whole, memory vgpu.Bytes, h nvml.Device) string {
	if name, ret := h.GetName(); ret == nvml.SUCCESS {
		if _, profile, ok := strings.Cut(name, " MIG "); ok && profile != "" {
			return strings.Join(strings.Fields(profile), "-")
		}
	}
	// Instances get eighths of the memory, less a little; "5gb" is an eighth of 40.
	eighths := math.Ceil(8 * float64(memory) / float64(max(whole, 1)))
	size := fmt.Sprintf("%dgb", int64(math.Round(eighths/8*math.Ceil(float64(whole)/(1<<30)))))
	if !l.has("nvmlDeviceGetAttributes_v2") {
		return size
	}
	a, ret := h.GetAttributes()
	switch {
	case ret != nvml.SUCCESS || a.GpuInstanceSliceCount == 0:
		return size
	case a.ComputeInstanceSliceCount != a.GpuInstanceSliceCount:
		return fmt.Sprintf("%dc.%dg.%s", a.ComputeInstanceSliceCount, a.GpuInstanceSliceCount, size)
	default:
		return fmt.Sprintf("%dg.%s", a.GpuInstanceSliceCount, size)
	}
}

// instanceModel names an instance after its GPU. The profile stays whole if the name is too long, and has dots for
// characters that values of labels do not take: "1g.10gb+me" becomes "1g.10gb.me".
func instanceModel(gpu, profile string) string {
	end := "-MIG-" + strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-', r == '_':
			return r
		default:
			return '.'
		}
	}, profile)
	end = end[:min(len(end), maxModel)]
	return gpu[:min(len(gpu), maxModel-len(end))] + end
}

// target is what calls about one device go to. For a GPU both are the same.
type target struct {
	device, gpu nvml.Device
	// parent is the UUID of the GPU.
	parent string
}

// find returns the handles of a device. A MIG instance is known after Devices has listed it.
//
// find tries the last known index of the device first. The search by UUID may fail with "GPU is lost" while any GPU of
// the node is lost (nvml.h), and that must not make the others unhealthy.
func (l *Library) find(uuid string) (target, nvml.Return) {
	l.mu.Lock()
	at, ok := l.at[uuid]
	l.mu.Unlock()
	if !ok {
		at = address{index: -1, parent: uuid}
	}
	gpu, ret := l.gpu(at.parent, at.index)
	t := target{device: gpu, gpu: gpu, parent: at.parent}
	if ret != nvml.SUCCESS || at.parent == uuid {
		return t, ret
	}
	t.device = nil
	ret = eachInstance(gpu, func(instance nvml.Device) nvml.Return {
		if id, ret := instance.GetUUID(); ret == nvml.SUCCESS && id == uuid {
			t.device = instance
		}
		return nvml.SUCCESS
	})
	if ret == nvml.SUCCESS && t.device == nil {
		ret = nvml.ERROR_NOT_FOUND
	}
	return t, ret
}

// gpu returns the handle of a GPU that was last seen at an index, -1 for one that was not.
func (l *Library) gpu(uuid string, index int) (nvml.Device, nvml.Return) {
	if h, ok := l.isAt(uuid, index); ok {
		return h, nvml.SUCCESS
	}
	h, ret := l.api.DeviceGetHandleByUUID(uuid)
	if ret != nvml.ERROR_GPU_IS_LOST {
		return h, ret
	}
	count, _ := l.api.DeviceGetCount()
	for i := range count {
		if h, ok := l.isAt(uuid, i); ok {
			return h, nvml.SUCCESS
		}
	}
	return nil, ret
}

func (l *Library) isAt(uuid string, index int) (nvml.Device, bool) {
	if index < 0 {
		return nil, false
	}
	h, ret := l.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, false
	}
	id, ret := h.GetUUID()
	return h, ret == nvml.SUCCESS && id == uuid
}
