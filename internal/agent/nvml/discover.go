package nvml

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// place is the device at one index of NVML.
type place struct {
	gpu Device
	// split says that the GPU is in MIG mode, instances are its MIG devices then.
	split     bool
	instances []Device
	// handle is nil if the GPU does not answer.
	handle nvml.Device
}

// devices returns what of a place can serve.
func (p place) devices() []Device {
	if p.split {
		return p.instances
	}
	return []Device{p.gpu}
}

// address is where to look for a device: the index of its GPU, and the UUID of that.
type address struct {
	index  int
	parent string
}

// Devices lists the GPUs by index and then the MIG instances by GPU. A device that does not answer has its last known
// description, and the reason in Health; the error is about the whole driver.
//
// While a device does not answer, Devices opens the library again from time to time, to see whether the device is back,
// perhaps at another index. Watch ends then, and so it does for every caller that finds other devices than before.
func (l *Library) Devices() ([]Device, error) {
	list, all, err := l.list()
	if err == nil && all {
		l.calm()
		return list, nil
	}
	if l.reopen() {
		list, _, err = l.list()
	}
	return list, err
}

// list says in all whether every GPU answers.
func (l *Library) list() (list []Device, all bool, err error) {
	if err := l.enter(); err != nil {
		return nil, false, fmt.Errorf("list devices: %w", err)
	}
	defer l.leave()
	count, ret := l.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, false, fmt.Errorf("list devices: count: %s", text(ret))
	}
	places := make([]place, count)
	for i := range places {
		places[i] = l.look(i)
	}
	all = l.remember(places)
	l.link(places)
	var instances []Device
	for _, p := range places {
		if !p.split {
			list = append(list, p.gpu)
		}
		instances = append(instances, p.instances...)
	}
	for i := range instances {
		instances[i].Index = count + i
	}
	return append(list, instances...), all, nil
}

// remember gives places that do not answer the names of what was there, and keeps those that do for the next time. A
// device stays at its last known place, so that the list never has it twice.
func (l *Library) remember(places []place) (all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = true
	for i, p := range places {
		if p.handle != nil {
			maps.DeleteFunc(l.known, func(_ int, k place) bool { return k.gpu.UUID == p.gpu.UUID })
			l.known[i] = p
		}
	}
	clear(l.at)
	for i, p := range places {
		if p.handle == nil {
			all = false
			places[i] = l.absent(i, p.gpu.Health)
		}
		for _, d := range places[i].devices() {
			l.at[d.UUID] = address{index: i, parent: cmp.Or(d.Parent, d.UUID)}
		}
	}
	delete(l.at, "")
	return all
}

// absent returns the known facts of a place that does not answer. Links are no part of them, since they may have
// changed.
func (l *Library) absent(index int, health Health) place {
	p, ok := l.known[index]
	if !ok {
		p = place{gpu: Device{Index: index, Minor: index, Model: "unknown", NUMANode: -1}}
	}
	p.handle, p.gpu.Health = nil, health
	p.instances = slices.Clone(p.instances)
	for i := range p.instances {
		p.instances[i].Health = health
	}
	return p
}

// look describes the GPU at an index without its links. The handle is nil if it does not answer.
func (l *Library) look(index int) place {
	handle, ret := l.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return place{gpu: Device{Health: unhealthy("handle", ret)}}
	}
	p := place{gpu: Device{Index: index, NUMANode: -1}, handle: handle}
	for _, read := range []struct {
		what string
		do   func(*Device, nvml.Device) nvml.Return
	}{
		{"UUID", readUUID}, {"minor number", readMinor}, {"name", readModel}, {"memory", l.readMemory},
		{"compute capability", readCapability}, {"PCI bus ID", readPCI},
	} {
		if ret := read.do(&p.gpu, handle); ret != nvml.SUCCESS {
			return place{gpu: Device{Health: unhealthy(read.what, ret)}}
		}
	}
	p.gpu.NUMANode = l.numa(handle)
	if p.split, ret = l.split(handle); p.split {
		p.instances, ret = l.instances(p.gpu, handle)
	}
	if ret != nvml.SUCCESS {
		return place{gpu: Device{Health: unhealthy("MIG instances", ret)}}
	}
	l.baseline(p.gpu.UUID, handle)
	return p
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

// maxModel is the longest Model: GPUNode and values of node labels take no more.
const maxModel = 63

func readModel(d *Device, h nvml.Device) nvml.Return {
	name, ret := h.GetName()
	d.Model = strings.Join(strings.Fields(name), "-")
	d.Model = d.Model[:min(len(d.Model), maxModel)]
	return ret
}

// readMemory prefers the second form of the call, which reports the driver's reserve: shares of the whole would add up
// to more than programs can have. Example: of an A100's 40960 MiB the driver keeps 620, and CUDA programs see 40339.
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
