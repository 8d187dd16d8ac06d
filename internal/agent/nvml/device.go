package nvml

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Device is one GPU or one MIG instance as NVML describes it.
type Device struct {
	// UUID is "GPU-…" or "MIG-…". The field is empty only for a device whose loss came before the library opened.
	UUID string
	// Index is NVML's index for GPUs. MIG instances follow after all GPUs, in the order of their GPU and their numbers.
	// Minor is the N of /dev/nvidiaN, for an instance that of its GPU. Both may change when a device comes back.
	Index, Minor int
	// Model is the product name with dashes for blanks: "NVIDIA-A100-SXM4-40GB", and for an instance
	// "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb". The name has at most 63 characters.
	Model string
	// Memory is the amount that programs can use: the total less the driver's reserve, where the driver reports that.
	Memory vgpu.Bytes
	// Capability is the CUDA compute capability.
	Capability Capability
	// PCIBusID as NVML writes it: "00000000:07:00.0".
	PCIBusID string
	// NUMANode is the memory node next to the device, -1 if the platform has none or several.
	NUMANode int
	// Links to the other GPUs of the node that answer, by peer. MIG instances have none.
	Links []Link
	// Parent is the UUID of the GPU that a MIG instance is part of, empty for a GPU. GI and CI number the GPU instance
	// and the compute instance, Profile names them: "1g.5gb".
	Parent  string
	Profile string
	GI, CI  int
	// Health says whether the device answered; only Library.Health checks its memory.
	Health Health
}

// Capability is a CUDA compute capability.
type Capability struct{ Major, Minor int }

// String returns the usual form, "8.0".
func (c Capability) String() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// Link is the best path to another device.
type Link struct {
	// Peer is the other device's UUID.
	Peer string
	// Type in the words of `nvidia-smi topo -m`.
	Type v1alpha1.LinkType
	// Lanes counts the NVLinks of an NVLink path. Through NVSwitches it is what the narrower end has.
	Lanes int
}

// firstMPS is the first compute capability whose MPS gives every client an address space of its own (Volta). NVIDIA's
// own device plugin compares with 7.5 and so leaves out V100; the MPS documentation says Volta.
var firstMPS = Capability{7, 0}

// Below says whether c is older than other.
func (c Capability) Below(other Capability) bool {
	return c.Major < other.Major || c.Major == other.Major && c.Minor < other.Minor
}

// SupportsMPS says whether shares of such a device can run under MPS.
func (c Capability) SupportsMPS() bool { return !c.Below(firstMPS) }

// MaxMPSContexts returns how many client contexts one device serves at once under MPS. The number is 16 before Volta,
// 48 from Volta on, and 60 from the driver's CUDA version 13.1 on (1000·major + 10·minor). Source: NVIDIA MPS
// documentation, client limits. Example: a T4 (7.5) under CUDA 13.0 (13000) serves 48.
func MaxMPSContexts(c Capability, cudaVersion int) int {
	switch {
	case !c.SupportsMPS():
		return 16
	case cudaVersion >= 13010:
		return 60
	default:
		return 48
	}
}
