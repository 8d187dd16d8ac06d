package nvml

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Devices lists the GPUs by index. A device that does not answer is listed with what it was when it last answered, and
// with the reason in Health; the error is about the whole driver.
func (l *Library) Devices() ([]Device, error) {
	count, ret := l.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("list devices: count: %s", text(ret))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	devices := make([]Device, count)
	handles := make([]nvml.Device, count)
	for i := range count {
		devices[i], handles[i] = l.device(i)
	}
	l.link(devices, handles)
	for _, d := range devices {
		if d.Health.OK() {
			l.known[d.Index] = d
		}
	}
	return devices, nil
}

// device describes the device at an index without its links. The handle is nil if it does not answer.
func (l *Library) device(index int) (Device, nvml.Device) {
	handle, ret := l.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return l.sick(index, "handle", ret), nil
	}
	d := Device{Index: index, NUMANode: -1}
	for _, read := range []struct {
		what string
		do   func(*Device, nvml.Device) nvml.Return
	}{
		{"UUID", readUUID}, {"minor number", readMinor}, {"name", readModel}, {"memory", l.readMemory},
		{"compute capability", readCapability}, {"PCI bus ID", readPCI}, {"MIG mode", l.readMIG},
	} {
		if ret := read.do(&d, handle); ret != nvml.SUCCESS {
			return l.sick(index, read.what, ret), nil
		}
	}
	d.NUMANode = l.numa(handle)
	return d, handle
}

// sick returns what is known of a device, with what it failed to tell. Its links are left out: they are not sure.
func (l *Library) sick(index int, what string, ret nvml.Return) Device {
	d, ok := l.known[index]
	if !ok {
		d = Device{Index: index, Minor: index, Model: "unknown", NUMANode: -1}
	}
	d.Links = nil
	d.Health = unhealthy(what, ret)
	return d
}

func unhealthy(what string, ret nvml.Return) Health {
	reason := NotAnswering
	switch ret {
	case nvml.ERROR_GPU_IS_LOST:
		reason = Lost
	case nvml.ERROR_RESET_REQUIRED:
		reason = ResetRequired
	}
	return Health{Reason: reason, Message: fmt.Sprintf("read %s: %s", what, text(ret))}
}

func readUUID(d *Device, h nvml.Device) (ret nvml.Return) {
	d.UUID, ret = h.GetUUID()
	return ret
}

func readMinor(d *Device, h nvml.Device) (ret nvml.Return) {
	d.Minor, ret = h.GetMinorNumber()
	return ret
}

func readModel(d *Device, h nvml.Device) nvml.Return {
	name, ret := h.GetName()
	d.Model = strings.Join(strings.Fields(name), "-")
	return ret
}

// readMemory prefers the second form of the call, which tells what the driver keeps for itself: shares of the whole
// would add up to more than programs can have. Example: of an A100's 40960 MiB the driver keeps 620, and CUDA programs
// see 40339.
func (l *Library) readMemory(d *Device, h nvml.Device) nvml.Return {
	if l.has("nvmlDeviceGetMemoryInfo_v2") {
		m, ret := h.GetMemoryInfo_v2()
		if ret == nvml.SUCCESS && m.Total > m.Reserved {
			d.Memory = vgpu.Bytes(m.Total - m.Reserved)
			return ret
		}
		if ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED {
			return ret
		}
	}
	m, ret := h.GetMemoryInfo()
	d.Memory = vgpu.Bytes(m.Total)
	return ret
}

func readCapability(d *Device, h nvml.Device) (ret nvml.Return) {
	d.Capability.Major, d.Capability.Minor, ret = h.GetCudaComputeCapability()
	return ret
}

func readPCI(d *Device, h nvml.Device) nvml.Return {
	info, ret := h.GetPciInfo()
	d.PCIBusID = busID(info)
	return ret
}

// busID returns the long form of a PCI address, in capitals so that addresses compare.
func busID(info nvml.PciInfo) string {
	var b strings.Builder
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return strings.ToUpper(b.String())
}

// readMIG finds the instances of a device in MIG mode. A device that cannot be split says "not supported".
func (l *Library) readMIG(d *Device, h nvml.Device) nvml.Return {
	if !l.has("nvmlDeviceGetMigMode") {
		return nvml.SUCCESS
	}
	current, _, ret := h.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.SUCCESS && current != nvml.DEVICE_MIG_ENABLE {
		return nvml.SUCCESS
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	d.MIG = &MIG{}
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
		uuid, ret := instance.GetUUID()
		if ret != nvml.SUCCESS {
			return ret
		}
		d.MIG.Instances = append(d.MIG.Instances, uuid)
	}
	slices.Sort(d.MIG.Instances)
	return nvml.SUCCESS
}

// maxNUMANodes bounds the set that NVML fills; Linux's usual limit.
const maxNUMANodes = 1024

// numa returns the one memory node next to a device. nvmlDeviceGetNumaNodeId is something else: the node that the
// memory of the GPU itself forms on coherent platforms.
func (l *Library) numa(h nvml.Device) int {
	if !l.has("nvmlDeviceGetMemoryAffinity") {
		return -1
	}
	words, ret := h.GetMemoryAffinity(maxNUMANodes, nvml.AFFINITY_SCOPE_NODE)
	if ret != nvml.SUCCESS {
		return -1
	}
	node := -1
	for i, word := range words {
		switch bits.OnesCount(word) {
		case 0:
		case 1:
			if node >= 0 {
				return -1
			}
			node = i*bits.UintSize + bits.TrailingZeros(word)
		default:
			return -1
		}
	}
	return node
}
